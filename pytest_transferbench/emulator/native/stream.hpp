// Streams, events and the virtual clock.
//
// A stream is an in-order queue with a thread of its own. Every operation has a virtual start, the latest of the
// stream's clock, the host's clock when it was enqueued and the ends of what it depends on, and a virtual end that the
// operation itself computes. Real time never enters, so two runs of a program give the same figures.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hip_abi.hpp"
#include "runtime.hpp"

namespace emulator {

// Seconds on the host's virtual clock: calls that enqueue or wait move it, nothing else does.
double host_clock();
double advance_host_clock(double seconds);
void raise_host_clock(double to);

// One operation's end: waited for in real time, and read in virtual time.
class Completion {
 public:
  void finish(double end);
  double wait();  // returns the virtual end
  bool ready();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  double end_ = 0;
};
using CompletionPtr = std::shared_ptr<Completion>;

struct OperationStart {
  double at = 0;
  bool back_to_back = false;  // the operation before moved data and ended at this very moment
};

struct OperationEnd {
  double at = 0;
  enum class Data { None, Moved, Transparent } data = Data::None;  // Transparent: as if it had not been there
  hipError_t error = hipSuccess;
};

using Work = std::function<OperationEnd(const OperationStart&)>;

struct Capture {
  unsigned long long id = 0;
  bool invalidated = false;
  std::vector<Work> nodes;
};

class Stream {
 public:
  Stream(int device, unsigned flags, int priority);
  ~Stream();

  CompletionPtr submit(Work work, std::vector<CompletionPtr> after, double enqueued);
  CompletionPtr last();  // of the operation enqueued last; null when there was none
  void close();          // waits for everything and ends the thread

  const int device;
  const unsigned flags;
  const int priority;
  std::unique_ptr<Capture> capture;  // guarded by Runtime::mutex

 private:
  struct Operation {
    Work work;
    std::vector<CompletionPtr> after;
    double enqueued;
    CompletionPtr completion;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;
  CompletionPtr last_;
  bool closing_ = false;
  std::thread thread_;
  double clock_ = 0;         // of the worker thread only
  bool moved_data_ = false;  // the last operation that counts moved data
};

// The stream a handle means: NULL and hipStreamLegacy are the current device's null stream, hipStreamPerThread the
// calling thread's own. Null for a handle that is no stream.
std::shared_ptr<Stream> resolve(hipStream_t handle);

// The device a call with this stream is for; the current one where the handle is no stream.
int device_of(hipStream_t handle);

// Runs the body of a HIP call that was handed a stream.
template <class Body>
hipError_t api_on(hipStream_t handle, Body&& body, const char* call = __builtin_FUNCTION()) {
  return api(body, call, device_of(handle));
}

// Puts work into a stream under the rules of the null stream, or into the graph that is being captured. Costs the host
// one call. `completion` stays null for captured work.
hipError_t enqueue(const std::shared_ptr<Stream>& stream, Work work, CompletionPtr* completion = nullptr);

// The same with several, one after another, for the price of one call; `completion` is that of the last.
hipError_t enqueue(const std::shared_ptr<Stream>& stream, const std::vector<Work>& nodes, CompletionPtr* completion);

hipError_t synchronize(const std::shared_ptr<Stream>& stream);
hipError_t synchronize_device(int device);
void wait_for_all_devices();

}  // namespace emulator

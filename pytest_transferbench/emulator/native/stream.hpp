// Streams and events.
//
// A stream is an in-order queue with a thread of its own, which carries its operations out; the timeline times them.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "hip_abi.hpp"
#include "runtime.hpp"
#include "timeline.hpp"

namespace emulator {

struct Capture {
  unsigned long long id = 0;
  bool invalidated = false;
  std::vector<Job> nodes;
};

class Stream {
 public:
  Stream(int device, unsigned flags, int priority);
  ~Stream();

  OperationPtr submit(Job job, std::vector<OperationPtr> after, double enqueued);
  OperationPtr last();  // the operation enqueued last; null when there was none
  // What has to be over before the hardware queue takes more: the host waits for it then, unless it waits for the host.
  OperationPtr in_the_way();
  void take_queue();    // where it has none yet: the hardware queue of its device that fewest streams use
  void close();         // waits for everything and ends the thread

  // Whether it has work that waits for nothing, with the timeline locked; `just_asked` as for is_stuck().
  bool can_go_on(bool just_asked);

  // What runs here looks at memory and never rests: it may wait, and is not waited for any more.
  void let_be();

  const int device;
  const unsigned flags;
  const int priority;
  std::unique_ptr<Capture> capture;  // guarded by Runtime::mutex

 private:
  void run();

  std::condition_variable wake_;
  std::deque<OperationPtr> pending_;  // not carried out yet
  OperationPtr last_;
  HardwareQueue* queue_ = nullptr;
  bool closing_ = false;
  std::thread thread_;
  double about_ = 0;  // of the worker thread only
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

// Waits until no kernel can go on before the host does something: all are over, or look at memory that nobody changes.
// The host's clock moves only then, so that it shows the same to a kernel however fast that is.
void settle();

// The host spends this time in a call.
double spend(double seconds);

// Waits for an operation, and raises the host's clock to its end.
void wait_for(const OperationPtr& operation);

// The same, but not where that hangs on something that cannot go on.
void wait_unless_stuck(const OperationPtr& operation);

// Whether an operation is over as soon as nothing else can go on; the host's clock is raised to its end then. It is not
// when that takes long.
bool is_over(const OperationPtr& operation);

// Puts work into a stream under the rules of the null stream, or into the graph that is being captured. Costs the host
// one call. `operation` stays null for captured work.
hipError_t enqueue(const std::shared_ptr<Stream>& stream, Job job, OperationPtr* operation = nullptr);

// The same with several, one after another, for the price of one call; `operation` is the last.
hipError_t enqueue(const std::shared_ptr<Stream>& stream, const std::vector<Job>& nodes, OperationPtr* operation);

hipError_t synchronize(const std::shared_ptr<Stream>& stream);
hipError_t synchronize_device(int device);
void wait_for_all_devices();

// A copy by the host's threads, already made: it begins now, beside what the GPUs do. It is over when it is waited for.
OperationPtr begin_host_copy(std::function<Price(const OperationStart&, Caches)> price);
void end_host_copy(const OperationPtr& copy);

// A grid begins, on the thread of its stream, which is carrying out an operation.
void note_grid(const std::shared_ptr<Grid>& grid);

}  // namespace emulator

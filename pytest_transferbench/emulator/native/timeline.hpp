// Virtual time: when operations begin and end.
//
// An operation is carried out first, as soon as what it waits for has been, and timed later: what it moved is known by
// then, and so is all that was under way beside it. Time is worked out when the host waits or asks, for all streams
// together and no further than it wants to know: whatever it enqueues later cannot begin before that. Real time never
// enters, so two runs of a program give the same figures.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "hip_abi.hpp"
#include "model.hpp"
#include "sharing.hpp"

namespace emulator {

struct Grid;
struct Operation;
struct HardwareQueue;
using OperationPtr = std::shared_ptr<Operation>;

// Seconds on the host's virtual clock: calls that enqueue or wait move it, nothing else does.
double host_clock();
double advance_host_clock(double seconds);
void raise_host_clock(double to);

struct OperationStart {
  double at = 0;
  bool back_to_back = false;  // the operation before moved data and ended at this very moment
};

// Transparent: as if it had not been there.
enum class Data { None, Moved, Transparent };

// What an operation takes while nothing else is under way, as moments in virtual time.
struct Price {
  double data_begin = 0, data_end = 0;  // when its data flow
  double at_least = 0;                  // it is not over sooner, however fast they do
  Data data = Data::None;
  Flow flow;  // without uses nothing disturbs it, and it disturbs nothing
};

// Whether the reads of an operation are looked up in the caches, which then remember them.
enum class Caches { Untouched, LookedUp };

struct Range {
  uintptr_t base = 0;
  size_t size = 0;
  bool meets(const Range& other) const {
    return size && other.size && base < other.base + other.size && other.base < base + size;
  }
};

// What carrying an operation out has led to.
struct Outcome {
  hipError_t error = hipSuccess;
  std::function<Price(const OperationStart&, Caches)> price;  // none: it takes no time
  std::function<void(double start, double end)> over;         // writes what only time tells
  Range written_by_over;
};

// What is enqueued.
struct Job {
  // Carries it out; none where there is nothing to do. `about` is when it would begin if nothing had disturbed those
  // before it.
  std::function<Outcome(double about)> execute;
  Data data = Data::None;  // of a job without a price
  bool by_engine = false, over_xgmi = false;  // a DMA engine of `engine_of` is busy with it
  int engine_of = 0;
  bool calls_host = false;  // runs the program's own code: nobody waits for it to go on
  Range reads, writes;      // of what the runtime itself copies
};

struct Operation {
  Job job;
  int device = 0;
  double enqueued = 0;
  uint64_t number = 0;              // in the order of the calls
  std::vector<OperationPtr> after;  // beside the one before it in its stream
  OperationPtr before;              // in its queue
  HardwareQueue* queue = nullptr;

  // Carrying it out.
  bool running = false, executed = false;
  std::shared_ptr<Grid> grid;  // of a running kernel
  OperationPtr waits_for;      // until that is over, memory is not what it will be
  Outcome outcome;
  double about_end = 0;
  std::condition_variable changed;  // it has been carried out, or is over

  // Timing it.
  enum class Phase { Waiting, Unknown, SettingUp, Flowing, Ending, Over } phase = Phase::Waiting;
  OperationStart start;
  bool gap = false;
  Price price;
  double delay = 0;  // by what else was under way
  double speed = 1;
  double end = 0;

  bool over() const { return phase == Phase::Over; }
};

// A hardware queue: what is in it runs one after another, whichever stream put it there.
struct HardwareQueue {
  std::deque<OperationPtr> pending;
  unsigned streams = 0;
  double clock = 0;         // the end of the last operation that is over
  bool moved_data = false;  // the last operation that counts moved data
};

class Timeline {
 public:
  std::mutex mutex;                 // guards operations, queues and streams
  std::condition_variable changed;  // something has been carried out, or cannot go on
  uint64_t executed = 0;            // how many operations

  // Puts an operation into a queue.
  OperationPtr add(HardwareQueue& queue, Job job, int device, std::vector<OperationPtr> after, double enqueued);

  // Hardware queues, each for one device or, for one operation, for the host.
  HardwareQueue& new_queue();
  void drop(HardwareQueue& queue);

  // The operation that has to be over first, or itself, for `wanted` to be; null when that hangs on one that is not
  // carried out and waits for no time.
  OperationPtr next_target(const OperationPtr& wanted);

  // Lets time pass until `target` is over, or something can be carried out that waited for time.
  void advance(const OperationPtr& target);

  // An operation has been carried out: it may write more when it is over.
  void note_late_writes(const OperationPtr& operation);

  // What `operation` must wait for so that it finds memory as it will be.
  OperationPtr late_writer(const Operation& operation) const;

 private:
  struct Engines {
    int busy = 0;
    double freed = 0;  // when the last of them ceased to be busy while all were
  };
  struct Next {
    double at;
    OperationPtr changes;
    HardwareQueue* starts = nullptr;
  };

  bool step();
  Next next_event();
  double ready(const Operation& operation);
  void pass(double to);
  void begin(HardwareQueue& queue, double at);
  void price(Operation& operation);
  void change(const OperationPtr& operation, double at);
  void finish(const OperationPtr& operation);
  void share();
  Engines* engines_of(const Operation& operation);
  static int engines(const Operation& operation);
  static double next_change(const Operation& operation, double now);

  std::list<HardwareQueue> queues_;
  std::vector<OperationPtr> under_way_;
  std::list<OperationPtr> late_writers_;
  std::map<std::pair<int, bool>, Engines> engines_;
  double now_ = 0;
  uint64_t made_ = 0;
  bool flows_changed_ = false, freed_ = false;
};

Timeline& timeline();

}  // namespace emulator

#include "stream.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "grid.hpp"

namespace emulator {

using namespace std::chrono_literals;

namespace {

// All streams that there are. Guarded by Timeline::mutex.
std::set<Stream*>& streams() {
  static auto* instance = new std::set<Stream*>;
  return *instance;
}

thread_local Operation* carried_out = nullptr;

using Clock = std::chrono::steady_clock;
constexpr auto RESTLESS_AFTER = 1s;
constexpr auto PATIENCE = 100ms;  // of a call that only asks

}  // namespace

Stream::Stream(int device_, unsigned flags_, int priority_) : device(device_), flags(flags_), priority(priority_) {
  std::lock_guard lock(timeline().mutex);
  streams().insert(this);
}

Stream::~Stream() {
  close();
  std::lock_guard lock(timeline().mutex);
  streams().erase(this);
  if (queue_) --queue_->streams;
}

void Stream::take_queue() {
  std::lock_guard lock(timeline().mutex);
  if (queue_) return;
  std::vector<HardwareQueue*>& queues = runtime().devices[device]->queues;
  queue_ = *std::min_element(queues.begin(), queues.end(), [](const HardwareQueue* one, const HardwareQueue* other) {
    return one->streams < other->streams;
  });
  ++queue_->streams;
}

OperationPtr Stream::submit(Job job, std::vector<OperationPtr> after, double enqueued) {
  take_queue();
  std::lock_guard lock(timeline().mutex);
  last_ = timeline().add(*queue_, std::move(job), device, std::move(after), enqueued);
  pending_.push_back(last_);
  if (!thread_.joinable()) thread_ = std::thread(&Stream::run, this);  // most streams of a program stay empty
  wake_.notify_one();
  return last_;
}

OperationPtr Stream::last() {
  std::lock_guard lock(timeline().mutex);
  return last_;
}

OperationPtr Stream::in_the_way() {
  constexpr size_t most = 1024;
  std::lock_guard lock(timeline().mutex);
  return queue_ && queue_->pending.size() >= most ? queue_->pending[queue_->pending.size() - most] : nullptr;
}

void Stream::close() {
  {
    std::lock_guard lock(timeline().mutex);
    closing_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Stream::run() {
  Timeline& time = timeline();
  std::unique_lock lock(time.mutex);
  for (;;) {
    wake_.wait(lock, [&] { return closing_ || !pending_.empty(); });
    if (pending_.empty()) return;
    const OperationPtr operation = pending_.front();
    double about = std::max(about_, operation->enqueued);
    const std::vector<OperationPtr> after = operation->after;  // what is over is taken from the operation's own
    for (const OperationPtr& other : after) {
      other->changed.wait(lock, [&] { return other->executed; });
      about = std::max(about, other->about_end);
    }
    while (const OperationPtr writer = time.late_writer(*operation)) {
      operation->waits_for = writer;
      time.changed.notify_all();
      writer->changed.wait(lock, [&] { return writer->over(); });
      operation->waits_for.reset();
    }
    operation->running = true;
    Device& on = *runtime().devices[device];
    Outcome outcome;
    double about_end = about;
    if (operation->job.execute && on.sticky == hipSuccess) {  // nothing runs on a device that has faulted
      lock.unlock();
      carried_out = operation.get();
      outcome = operation->job.execute(about);
      carried_out = nullptr;
      if (outcome.price) {
        const Price price = outcome.price({about, false}, Caches::Untouched);
        about_end = std::max(price.data_end, price.at_least);
      }
      if (outcome.error != hipSuccess) on.sticky = outcome.error;
      lock.lock();
    }
    about_ = operation->about_end = about_end;
    operation->outcome = std::move(outcome);
    operation->running = false;
    operation->executed = true;
    operation->grid.reset();
    time.note_late_writes(operation);
    pending_.pop_front();
    ++time.executed;
    operation->changed.notify_all();
    time.changed.notify_all();
  }
}

bool Stream::can_go_on(bool just_asked) {
  if (pending_.empty()) return false;
  const Operation& next = *pending_.front();
  if (next.running) return !next.job.calls_host && !(next.grid && is_stuck(*next.grid, just_asked));
  if (next.waits_for) return next.waits_for->over();
  return std::all_of(next.after.begin(), next.after.end(), [](const OperationPtr& other) { return other->executed; });
}

void Stream::let_be() {
  if (!pending_.empty() && pending_.front()->grid) emulator::let_be(*pending_.front()->grid);
}

void note_grid(const std::shared_ptr<Grid>& grid) {
  std::lock_guard lock(timeline().mutex);
  carried_out->grid = grid;
}

namespace {

bool all_settled(bool just_asked) {
  return std::none_of(streams().begin(), streams().end(), [&](Stream* one) { return one->can_go_on(just_asked); });
}

// Returns false when `until` has come first.
bool settle(std::unique_lock<std::mutex>& lock, Clock::time_point until = Clock::time_point::max()) {
  if (all_settled(false)) return true;
  const Asking asking;
  const auto begun = Clock::now();
  while (!all_settled(true)) {
    timeline().changed.wait_for(lock, 1ms);
    if (Clock::now() >= until) return false;
    if (Clock::now() - begun < RESTLESS_AFTER) continue;
    for (Stream* one : streams()) one->let_be();
  }
  return true;
}

// Lets time pass until `wanted` is over; false when that hangs on something that cannot go on, or has not until then.
bool let_pass(std::unique_lock<std::mutex>& lock, const OperationPtr& wanted,
              Clock::time_point until = Clock::time_point::max()) {
  for (;;) {
    if (!settle(lock, until)) return false;
    if (wanted->over()) return true;
    const OperationPtr target = timeline().next_target(wanted);
    if (!target) return false;
    timeline().advance(target);
  }
}

}  // namespace

void settle() {
  std::unique_lock lock(timeline().mutex);
  settle(lock);
}

double spend(double seconds) {
  settle();
  return advance_host_clock(seconds);
}

void wait_for(const OperationPtr& operation) {
  if (!operation) return;
  Timeline& time = timeline();
  std::unique_lock lock(time.mutex);
  while (!let_pass(lock, operation)) {
    const uint64_t before = time.executed;
    time.changed.wait(lock, [&] { return time.executed != before; });
  }
  raise_host_clock(operation->end);
}

void wait_unless_stuck(const OperationPtr& operation) {
  if (!operation) return;
  std::unique_lock lock(timeline().mutex);
  if (let_pass(lock, operation)) raise_host_clock(operation->end);
}

bool is_over(const OperationPtr& operation) {
  if (!operation) return true;
  std::unique_lock lock(timeline().mutex);
  if (!let_pass(lock, operation, Clock::now() + PATIENCE)) return false;
  raise_host_clock(operation->end);
  return true;
}

OperationPtr begin_host_copy(std::function<Price(const OperationStart&, Caches)> price) {
  Timeline& time = timeline();
  std::unique_lock lock(time.mutex);
  OperationPtr made = time.add(time.new_queue(), Job{}, HOST, {}, host_clock());
  made->outcome.price = std::move(price);
  made->executed = true;
  return made;
}

void end_host_copy(const OperationPtr& copy) {
  wait_for(copy);
  std::unique_lock lock(timeline().mutex);
  timeline().drop(*copy->queue);
}

std::shared_ptr<Stream> resolve(hipStream_t handle) {
  Runtime& r = runtime();
  std::lock_guard lock(r.mutex);
  constexpr uintptr_t legacy = 1, per_thread = 2;
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value <= legacy) return r.devices[current_device]->null_stream;
  if (value == per_thread) {
    static thread_local std::vector<std::shared_ptr<Stream>> own;
    own.resize(r.devices.size());
    std::shared_ptr<Stream>& stream = own[current_device];
    if (!stream) {
      stream = std::make_shared<Stream>(current_device, 0, 0);
      r.devices[current_device]->streams.push_back(stream);
    }
    return stream;
  }
  for (const auto& device : r.devices) {
    for (const auto& stream : device->streams) {
      if (stream.get() == handle) return stream;
    }
  }
  return nullptr;
}

int device_of(hipStream_t handle) {
  const auto stream = runtime().devices.empty() ? nullptr : resolve(handle);
  return stream ? stream->device : current_device;
}

namespace {

// What a new operation of `stream` waits for under the null stream's rules: the null stream waits for every blocking
// stream of its device, and they wait for it.
std::vector<OperationPtr> null_stream_dependencies(const Stream& stream) {
  Device& device = *runtime().devices[stream.device];
  std::vector<OperationPtr> after;
  if (&stream == device.null_stream.get()) {
    for (const auto& other : device.streams) {
      if (other->flags & hipStreamNonBlocking) continue;
      if (OperationPtr last = other->last()) after.push_back(last);
    }
  } else if (!(stream.flags & hipStreamNonBlocking)) {
    if (OperationPtr last = device.null_stream->last()) after.push_back(last);
  }
  return after;
}

}  // namespace

hipError_t enqueue(const std::shared_ptr<Stream>& stream, Job job, OperationPtr* operation) {
  return enqueue(stream, std::vector<Job>{std::move(job)}, operation);
}

hipError_t enqueue(const std::shared_ptr<Stream>& stream, const std::vector<Job>& nodes, OperationPtr* operation) {
  if (!stream) return hipErrorInvalidHandle;
  std::lock_guard lock(runtime().mutex);
  if (const hipError_t error = lost(stream->device)) return error;
  if (stream->capture) {
    if (stream->capture->invalidated) return hipErrorStreamCaptureInvalidated;
    std::vector<Job>& captured = stream->capture->nodes;
    captured.insert(captured.end(), nodes.begin(), nodes.end());
    return hipSuccess;
  }
  wait_unless_stuck(stream->in_the_way());
  const double enqueued = spend(model().enqueue);
  std::vector<OperationPtr> after = null_stream_dependencies(*stream);
  for (const Job& node : nodes) {
    OperationPtr made = stream->submit(node, std::move(after), enqueued);
    after.clear();
    if (operation) *operation = std::move(made);
  }
  return hipSuccess;
}

hipError_t synchronize(const std::shared_ptr<Stream>& stream) {
  if (!stream) return hipErrorInvalidHandle;
  {
    std::lock_guard lock(runtime().mutex);
    if (stream->capture) {
      stream->capture->invalidated = true;
      return hipErrorStreamCaptureUnsupported;
    }
  }
  wait_for(stream->last());
  spend(model().synchronize);
  return lost(stream->device);
}

namespace {

std::vector<std::shared_ptr<Stream>> all_streams(int device) {
  std::lock_guard lock(runtime().mutex);
  Device& d = *runtime().devices[device];
  std::vector<std::shared_ptr<Stream>> streams = d.streams;
  streams.push_back(d.null_stream);
  return streams;
}

void wait_for_device(int device) {
  for (const auto& stream : all_streams(device)) wait_for(stream->last());
}

}  // namespace

hipError_t synchronize_device(int device) {
  wait_for_device(device);
  spend(model().synchronize);
  return lost(device);
}

void wait_for_all_devices() {
  for (size_t device = 0; device < runtime().devices.size(); ++device) wait_for_device(static_cast<int>(device));
}

}  // namespace emulator

using namespace emulator;

namespace {

hipError_t create_stream(hipStream_t* handle, unsigned flags, int priority, const char* call = __builtin_FUNCTION()) {
  return api(
      [&]() -> hipError_t {
        if (!handle || flags > hipStreamNonBlocking) return hipErrorInvalidValue;
        if (const hipError_t error = lost(current_device)) return error;
        std::lock_guard lock(runtime().mutex);
        auto stream = std::make_shared<Stream>(current_device, flags, priority);
        stream->take_queue();
        runtime().devices[current_device]->streams.push_back(stream);
        *handle = stream.get();
        return hipSuccess;
      },
      call);
}

// Runs `body` with the stream a handle means, or refuses the handle.
template <class Body>
hipError_t with_stream(hipStream_t handle, Body&& body, const char* call = __builtin_FUNCTION()) {
  return api_on(
      handle,
      [&]() -> hipError_t {
        const std::shared_ptr<Stream> stream = resolve(handle);
        return stream ? body(stream) : hipErrorInvalidHandle;
      },
      call);
}

}  // namespace

HIP_API hipError_t hipStreamCreate(hipStream_t* stream) { return create_stream(stream, 0, 0); }
HIP_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return create_stream(stream, flags, 0);
}
HIP_API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority) {
  return create_stream(stream, flags, std::clamp(priority, -1, 1));
}
HIP_API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api([&]() -> hipError_t {
    if (least) *least = 1;
    if (greatest) *greatest = -1;
    return hipSuccess;
  });
}
HIP_API hipError_t hipExtStreamCreateWithCUMask(hipStream_t* stream, uint32_t words, const uint32_t* mask) {
  if (!words || !mask) return api([] { return hipErrorInvalidValue; });
  return create_stream(stream, 0, 0);
}

HIP_API hipError_t hipStreamDestroy(hipStream_t handle) {
  return api([&]() -> hipError_t {
    std::shared_ptr<Stream> gone;
    {
      std::lock_guard lock(runtime().mutex);
      for (const auto& device : runtime().devices) {
        auto& streams = device->streams;
        const auto found =
            std::find_if(streams.begin(), streams.end(), [&](const auto& stream) { return stream.get() == handle; });
        if (found == streams.end()) continue;
        gone = *found;
        streams.erase(found);
        break;
      }
    }
    if (!gone) return hipErrorInvalidHandle;
    wait_unless_stuck(gone->last());  // what waits for time would never be carried out
    gone->close();
    return hipSuccess;
  });
}

HIP_API hipError_t hipStreamSynchronize(hipStream_t handle) {
  return with_stream(handle, [](const auto& stream) { return synchronize(stream); });
}
HIP_API hipError_t hipStreamQuery(hipStream_t handle) {
  return with_stream(handle, [](const auto& stream) -> hipError_t {
    if (const hipError_t error = lost(stream->device)) return error;
    return is_over(stream->last()) ? hipSuccess : hipErrorNotReady;
  });
}
HIP_API hipError_t hipStreamGetFlags(hipStream_t handle, unsigned* flags) {
  return with_stream(handle, [&](const auto& stream) -> hipError_t {
    if (!flags) return hipErrorInvalidValue;
    *flags = stream->flags;
    return hipSuccess;
  });
}
HIP_API hipError_t hipStreamGetPriority(hipStream_t handle, int* priority) {
  return with_stream(handle, [&](const auto& stream) -> hipError_t {
    if (!priority) return hipErrorInvalidValue;
    *priority = stream->priority;
    return hipSuccess;
  });
}
HIP_API hipError_t hipStreamGetDevice(hipStream_t handle, int* device) {
  return with_stream(handle, [&](const auto& stream) -> hipError_t {
    if (!device) return hipErrorInvalidValue;
    *device = stream->device;
    return hipSuccess;
  });
}
HIP_API int hipGetStreamDeviceId(hipStream_t handle) {
  const auto stream = runtime().devices.empty() ? nullptr : resolve(handle);
  return stream ? stream->device : -1;
}

namespace {

Job host_call(std::function<void()> call) {
  Job job;
  job.calls_host = true;
  job.execute = [call = std::move(call)](double) -> Outcome {
    call();
    return {};
  };
  return job;
}

// Takes no time, and is as if it had not been there.
Job marker() {
  Job job;
  job.data = Data::Transparent;
  return job;
}

}  // namespace

HIP_API hipError_t hipLaunchHostFunc(hipStream_t handle, void (*function)(void*), void* argument) {
  return with_stream(handle, [&](const auto& stream) -> hipError_t {
    if (!function) return hipErrorInvalidValue;
    return enqueue(stream, host_call([=] { function(argument); }));
  });
}
HIP_API hipError_t hipStreamAddCallback(hipStream_t handle, void (*callback)(hipStream_t, hipError_t, void*),
                                        void* argument, unsigned flags) {
  return with_stream(handle, [&](const auto& stream) -> hipError_t {
    if (!callback || flags) return hipErrorInvalidValue;
    return enqueue(stream, host_call([=] { callback(handle, hipSuccess, argument); }));
  });
}

// ---- events ----

namespace {

struct Event {
  int device;
  unsigned flags;
  OperationPtr record;  // the latest hipEventRecord; its virtual end is the time stamp
};

// Events live in a set, so that a handle which is none is refused instead of followed.
std::set<Event*>& events() {
  static auto* instance = new std::set<Event*>;
  return *instance;
}

// Runs `body` with the event a handle means, holding the lock that guards all events.
template <class Body>
hipError_t with_event(hipEvent_t handle, Body&& body, const char* call = __builtin_FUNCTION()) {
  std::unique_lock lock(runtime().mutex);
  auto* event = static_cast<Event*>(handle);
  const bool known = events().count(event);
  const int device = known ? event->device : current_device;
  return api([&]() -> hipError_t { return known ? body(*event) : hipErrorInvalidHandle; }, call, device);
}

hipError_t create_event(hipEvent_t* handle, unsigned flags, const char* call = __builtin_FUNCTION()) {
  return api(
      [&]() -> hipError_t {
        if (!handle) return hipErrorInvalidValue;
        if (const hipError_t error = lost(current_device)) return error;
        std::lock_guard lock(runtime().mutex);
        auto* event = new Event{current_device, flags, nullptr};
        events().insert(event);
        *handle = event;
        return hipSuccess;
      },
      call);
}

}  // namespace

HIP_API hipError_t hipEventCreateWithFlags(hipEvent_t* handle, unsigned flags) { return create_event(handle, flags); }
HIP_API hipError_t hipEventCreate(hipEvent_t* handle) { return create_event(handle, 0); }

HIP_API hipError_t hipEventDestroy(hipEvent_t handle) {
  return with_event(handle, [](Event& event) -> hipError_t {
    events().erase(&event);
    delete &event;
    return hipSuccess;
  });
}

namespace {

hipError_t record_event(hipEvent_t handle, hipStream_t stream_handle, const char* call = __builtin_FUNCTION()) {
  return with_event(
      handle,
      [&](Event& event) -> hipError_t {
        const auto stream = resolve(stream_handle);
        if (!stream || stream->device != event.device) return hipErrorInvalidHandle;
        OperationPtr record;
        const hipError_t error = enqueue(stream, marker(), &record);
        if (error == hipSuccess && record) event.record = record;
        return error;
      },
      call);
}

}  // namespace

HIP_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) { return record_event(event, stream); }
HIP_API hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned) {
  return record_event(event, stream);
}

HIP_API hipError_t hipEventQuery(hipEvent_t handle) {
  return with_event(handle, [](Event& event) -> hipError_t {
    if (const hipError_t error = lost(event.device)) return error;
    return is_over(event.record) ? hipSuccess : hipErrorNotReady;
  });
}

HIP_API hipError_t hipEventSynchronize(hipEvent_t handle) {
  OperationPtr record;
  int device = 0;
  const hipError_t found = with_event(handle, [&](Event& event) -> hipError_t {
    record = event.record;
    device = event.device;
    return hipSuccess;
  });
  if (found != hipSuccess) return found;
  wait_for(record);  // without the lock: others go on enqueueing
  spend(model().synchronize);
  const hipError_t error = lost(device);
  if (error != hipSuccess) last_error = error;
  return error;
}

HIP_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start_handle, hipEvent_t stop_handle) {
  return with_event(start_handle, [&](Event& start) -> hipError_t {
    if (!milliseconds) return hipErrorInvalidValue;
    auto* found = static_cast<Event*>(stop_handle);
    if (!events().count(found)) return hipErrorInvalidHandle;
    Event& stop = *found;
    if (start.device != stop.device || !start.record || !stop.record) return hipErrorInvalidHandle;
    if ((start.flags | stop.flags) & hipEventDisableTiming) return hipErrorInvalidHandle;
    if (const hipError_t error = lost(start.device)) return error;
    if (!is_over(start.record) || !is_over(stop.record)) return hipErrorNotReady;
    *milliseconds = static_cast<float>((stop.record->end - start.record->end) * 1e3);
    return hipSuccess;
  });
}

HIP_API hipError_t hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t handle, unsigned) {
  return with_event(handle, [&](Event& event) -> hipError_t {
    const auto stream = resolve(stream_handle);
    if (!stream) return hipErrorInvalidHandle;
    if (stream->capture || !event.record) return hipSuccess;  // a linear capture is in order by itself
    if (const hipError_t error = lost(stream->device)) return error;
    const double enqueued = spend(model().enqueue);
    std::vector<OperationPtr> after = null_stream_dependencies(*stream);
    after.push_back(event.record);
    stream->submit(marker(), std::move(after), enqueued);
    return hipSuccess;
  });
}

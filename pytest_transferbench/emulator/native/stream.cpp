#include "stream.hpp"

#include <algorithm>
#include <set>

namespace emulator {
namespace {

std::mutex& clock_mutex() {
  static std::mutex* instance = new std::mutex;
  return *instance;
}
double host_seconds = 0;

}  // namespace

double host_clock() {
  std::lock_guard lock(clock_mutex());
  return host_seconds;
}

double advance_host_clock(double seconds) {
  std::lock_guard lock(clock_mutex());
  return host_seconds += seconds;
}

void raise_host_clock(double to) {
  std::lock_guard lock(clock_mutex());
  host_seconds = std::max(host_seconds, to);
}

void Completion::finish(double end) {
  std::lock_guard lock(mutex_);
  done_ = true;
  end_ = end;
  changed_.notify_all();
}

double Completion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  return end_;
}

bool Completion::ready() {
  std::lock_guard lock(mutex_);
  return done_;
}

Stream::Stream(int device_, unsigned flags_, int priority_) : device(device_), flags(flags_), priority(priority_) {}

Stream::~Stream() { close(); }

CompletionPtr Stream::submit(Work work, std::vector<CompletionPtr> after, double enqueued) {
  auto completion = std::make_shared<Completion>();
  std::lock_guard lock(mutex_);
  queue_.push_back({std::move(work), std::move(after), enqueued, completion});
  last_ = completion;
  if (!thread_.joinable()) thread_ = std::thread(&Stream::run, this);  // most streams of a program stay empty
  changed_.notify_one();
  return completion;
}

CompletionPtr Stream::last() {
  std::lock_guard lock(mutex_);
  return last_;
}

void Stream::close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Stream::run() {
  for (;;) {
    Operation operation;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      operation = std::move(queue_.front());
      queue_.pop_front();
    }
    OperationStart start;
    start.at = std::max(clock_, operation.enqueued);
    for (const CompletionPtr& other : operation.after) start.at = std::max(start.at, other->wait());
    const bool gap = start.at > clock_;
    start.back_to_back = moved_data_ && !gap;
    OperationEnd end{start.at, OperationEnd::Data::None, hipSuccess};
    Device& on = *runtime().devices[device];
    if (on.sticky == hipSuccess) end = operation.work(start);  // nothing runs on a device that has faulted
    if (end.error != hipSuccess) on.sticky = end.error;
    clock_ = end.at;
    if (end.data != OperationEnd::Data::Transparent) moved_data_ = end.data == OperationEnd::Data::Moved;
    else if (gap) moved_data_ = false;
    operation.completion->finish(end.at);
  }
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
std::vector<CompletionPtr> null_stream_dependencies(const Stream& stream) {
  Device& device = *runtime().devices[stream.device];
  std::vector<CompletionPtr> after;
  if (&stream == device.null_stream.get()) {
    for (const auto& other : device.streams) {
      if (other->flags & hipStreamNonBlocking) continue;
      if (CompletionPtr last = other->last()) after.push_back(last);
    }
  } else if (!(stream.flags & hipStreamNonBlocking)) {
    if (CompletionPtr last = device.null_stream->last()) after.push_back(last);
  }
  return after;
}

}  // namespace

hipError_t enqueue(const std::shared_ptr<Stream>& stream, Work work, CompletionPtr* completion) {
  return enqueue(stream, std::vector<Work>{std::move(work)}, completion);
}

hipError_t enqueue(const std::shared_ptr<Stream>& stream, const std::vector<Work>& nodes, CompletionPtr* completion) {
  if (!stream) return hipErrorInvalidHandle;
  std::lock_guard lock(runtime().mutex);
  if (const hipError_t error = lost(stream->device)) return error;
  if (stream->capture) {
    if (stream->capture->invalidated) return hipErrorStreamCaptureInvalidated;
    std::vector<Work>& captured = stream->capture->nodes;
    captured.insert(captured.end(), nodes.begin(), nodes.end());
    return hipSuccess;
  }
  const double enqueued = advance_host_clock(model().enqueue);
  std::vector<CompletionPtr> after = null_stream_dependencies(*stream);
  for (const Work& node : nodes) {
    CompletionPtr made = stream->submit(node, std::move(after), enqueued);
    after.clear();
    if (completion) *completion = std::move(made);
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
  if (const CompletionPtr last = stream->last()) raise_host_clock(last->wait());
  advance_host_clock(model().synchronize);
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
  for (const auto& stream : all_streams(device)) {
    if (const CompletionPtr last = stream->last()) raise_host_clock(last->wait());
  }
}

}  // namespace

hipError_t synchronize_device(int device) {
  wait_for_device(device);
  advance_host_clock(model().synchronize);
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
    const CompletionPtr last = stream->last();
    return last && !last->ready() ? hipErrorNotReady : hipSuccess;
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

HIP_API hipError_t hipLaunchHostFunc(hipStream_t handle, void (*function)(void*), void* argument) {
  return with_stream(handle, [&](const auto& stream) -> hipError_t {
    if (!function) return hipErrorInvalidValue;
    return enqueue(stream, [=](const OperationStart& start) -> OperationEnd {
      function(argument);
      return {start.at, OperationEnd::Data::None, hipSuccess};
    });
  });
}
HIP_API hipError_t hipStreamAddCallback(hipStream_t handle, void (*callback)(hipStream_t, hipError_t, void*),
                                        void* argument, unsigned flags) {
  return with_stream(handle, [&](const auto& stream) -> hipError_t {
    if (!callback || flags) return hipErrorInvalidValue;
    return enqueue(stream, [=](const OperationStart& start) -> OperationEnd {
      callback(handle, hipSuccess, argument);
      return {start.at, OperationEnd::Data::None, hipSuccess};
    });
  });
}

// ---- events ----

namespace {

struct Event {
  int device;
  unsigned flags;
  CompletionPtr record;  // of the latest hipEventRecord; its virtual end is the time stamp
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
        CompletionPtr record;
        const hipError_t error = enqueue(
            stream,
            [](const OperationStart& start) -> OperationEnd {
              return {start.at, OperationEnd::Data::Transparent, hipSuccess};
            },
            &record);
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
    return event.record && !event.record->ready() ? hipErrorNotReady : hipSuccess;
  });
}

HIP_API hipError_t hipEventSynchronize(hipEvent_t handle) {
  CompletionPtr record;
  int device = 0;
  const hipError_t found = with_event(handle, [&](Event& event) -> hipError_t {
    record = event.record;
    device = event.device;
    return hipSuccess;
  });
  if (found != hipSuccess) return found;
  if (record) raise_host_clock(record->wait());  // without the lock: others go on enqueueing
  advance_host_clock(model().synchronize);
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
    if (!start.record->ready() || !stop.record->ready()) return hipErrorNotReady;
    *milliseconds = static_cast<float>((stop.record->wait() - start.record->wait()) * 1e3);
    return hipSuccess;
  });
}

HIP_API hipError_t hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t handle, unsigned) {
  return with_event(handle, [&](Event& event) -> hipError_t {
    const auto stream = resolve(stream_handle);
    if (!stream) return hipErrorInvalidHandle;
    if (stream->capture || !event.record) return hipSuccess;  // a linear capture is in order by itself
    if (const hipError_t error = lost(stream->device)) return error;
    const double enqueued = advance_host_clock(model().enqueue);
    std::vector<CompletionPtr> after = null_stream_dependencies(*stream);
    after.push_back(event.record);
    stream->submit(
        [](const OperationStart& start) -> OperationEnd {
          return {start.at, OperationEnd::Data::Transparent, hipSuccess};
        },
        std::move(after), enqueued);
    return hipSuccess;
  });
}

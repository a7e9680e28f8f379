// Graphs: one stream's work, captured in order and replayed for the price of one call.
#include "runtime.hpp"
#include "stream.hpp"

using namespace emulator;

namespace {

struct Graph {
  std::vector<Job> nodes;
};

enum : int { capture_none = 0, capture_active = 1, capture_invalidated = 2 };

int capture_status(const Stream& stream) {
  if (!stream.capture) return capture_none;
  return stream.capture->invalidated ? capture_invalidated : capture_active;
}

hipError_t capture_info(hipStream_t handle, int* status, unsigned long long* id,
                        const char* call = __builtin_FUNCTION()) {
  return api_on(
      handle,
      [&]() -> hipError_t {
        std::lock_guard lock(runtime().mutex);
        const auto stream = resolve(handle);
        if (!stream) return hipErrorInvalidHandle;
        if (!status) return hipErrorInvalidValue;
        *status = capture_status(*stream);
        if (id) *id = stream->capture ? stream->capture->id : 0;
        return hipSuccess;
      },
      call);
}

hipError_t instantiate(void** executable, void* graph, const char* call = __builtin_FUNCTION()) {
  return api(
      [&]() -> hipError_t {
        if (!executable || !graph) return hipErrorInvalidValue;
        *executable = new Graph(*static_cast<Graph*>(graph));
        return hipSuccess;
      },
      call);
}

hipError_t destroy(void* graph, const char* call = __builtin_FUNCTION()) {
  return api(
      [&]() -> hipError_t {
        if (!graph) return hipErrorInvalidValue;
        delete static_cast<Graph*>(graph);
        return hipSuccess;
      },
      call);
}

}  // namespace

HIP_API hipError_t hipStreamBeginCapture(hipStream_t handle, int) {
  return api_on(handle, [&]() -> hipError_t {
    std::lock_guard lock(runtime().mutex);
    const auto stream = resolve(handle);
    if (!stream) return hipErrorInvalidHandle;
    constexpr uintptr_t last_special_handle = 2;
    if (reinterpret_cast<uintptr_t>(handle) <= last_special_handle) return hipErrorStreamCaptureUnsupported;
    if (stream->capture) return hipErrorIllegalState;
    static unsigned long long captures = 0;
    stream->capture = std::make_unique<Capture>();
    stream->capture->id = ++captures;
    return hipSuccess;
  });
}

HIP_API hipError_t hipStreamEndCapture(hipStream_t handle, void** graph) {
  return api_on(handle, [&]() -> hipError_t {
    std::lock_guard lock(runtime().mutex);
    const auto stream = resolve(handle);
    if (!stream) return hipErrorInvalidHandle;
    if (!graph) return hipErrorInvalidValue;
    if (!stream->capture) return hipErrorIllegalState;
    const std::unique_ptr<Capture> capture = std::move(stream->capture);
    *graph = nullptr;
    if (capture->invalidated) return hipErrorStreamCaptureInvalidated;
    *graph = new Graph{std::move(capture->nodes)};
    return hipSuccess;
  });
}

HIP_API hipError_t hipStreamGetCaptureInfo(hipStream_t handle, int* status, unsigned long long* id) {
  return capture_info(handle, status, id);
}
HIP_API hipError_t hipStreamGetCaptureInfo_v2(hipStream_t handle, int* status, unsigned long long* id, void** graph,
                                              const void** dependencies, size_t* dependency_count) {
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (dependency_count) *dependency_count = 0;
  return capture_info(handle, status, id);
}
HIP_API hipError_t hipStreamIsCapturing(hipStream_t handle, int* status) {
  return capture_info(handle, status, nullptr);
}

HIP_API hipError_t hipGraphInstantiate(void** executable, void* graph, void** error_node, char*, size_t) {
  if (error_node) *error_node = nullptr;
  return instantiate(executable, graph);
}
HIP_API hipError_t hipGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  return instantiate(executable, graph);
}
HIP_API hipError_t hipGraphLaunch(void* executable, hipStream_t handle) {
  return api_on(handle, [&]() -> hipError_t {
    if (!executable) return hipErrorInvalidValue;
    const auto stream = resolve(handle);
    if (stream && stream->capture) return hipErrorStreamCaptureUnsupported;
    return enqueue(stream, static_cast<Graph*>(executable)->nodes, nullptr);
  });
}
HIP_API hipError_t hipGraphDestroy(void* graph) { return destroy(graph); }
HIP_API hipError_t hipGraphExecDestroy(void* executable) { return destroy(executable); }

// Copies and fills that the runtime itself carries out, by a DMA engine or by a shader of its own.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "memory.hpp"
#include "runtime.hpp"
#include "stream.hpp"
#include "timing.hpp"

namespace emulator {
namespace {

struct End {
  bool known = false;  // inside an allocation; otherwise pageable host memory
  int owner = HOST;
};

// Fills `end`, or returns false when the range begins in an allocation and leaves it.
bool resolve_end(const void* pointer, size_t nbytes, End& end) {
  const auto allocation = memory().find(pointer);
  if (!allocation) return true;
  end.known = true;
  end.owner = allocation->owner;
  return allocation->holds(reinterpret_cast<uintptr_t>(pointer), nbytes);
}

// As on ROCm: between GPUs a shader copies what is small, unless the kind forbids compute units; inside one GPU a
// shader always copies; to and from the host the DMA engines do.
bool copies_by_dma(const End& from, const End& to, size_t nbytes, int kind) {
  if (kind == hipMemcpyDeviceToDeviceNoCU) return true;
  if (from.owner == HOST || to.owner == HOST) return true;
  if (from.owner == to.owner) return false;
  static const size_t minimum = [] {
    const char* kibibytes = std::getenv("ROC_P2P_SDMA_SIZE");
    return kibibytes ? std::strtoull(kibibytes, nullptr, 10) << 10 : model().dma.peer_minimum;
  }();
  return nbytes > minimum;
}

// The GPU whose engine or shader does it: an engine of the source where the source is a GPU, whatever the stream.
int executing_device(const End& from, const End& to, int stream_device, bool dma) {
  if (!dma) return stream_device;
  if (from.owner != HOST) return from.owner;
  return to.owner != HOST ? to.owner : stream_device;
}

Range range_of(const void* pointer, size_t nbytes) { return {reinterpret_cast<uintptr_t>(pointer), nbytes}; }

void use_engine(Job& job, int device, int from, int to) {
  const bool between_devices = from != HOST && to != HOST && from != to;
  job.by_engine = true;
  job.engine_of = device;
  job.over_xgmi =
      model().xgmi_copy_engines && between_devices && model().link(from, to).type != LINK_TYPE_PCIE;
}

Outcome shader_outcome(int device, std::shared_ptr<const Traffic> traffic) {
  count_moved(device, *traffic);
  Outcome made;
  made.price = [=](const OperationStart& start, Caches caches) {
    return shader_price(start, device, *traffic, caches);
  };
  return made;
}

// DMA engines read past the caches; a shader of the runtime reads through them, with every compute unit. Between GPUs
// it has the engines' curve where they have one for small copies.
Outcome copy_outcome(int device, int from, int to, const void* source, size_t nbytes, bool dma, double issue) {
  count_copy(device, dma);
  if (dma || (from != to && model().dma.small_max)) {
    count_moved(from, to, nbytes);
    Outcome made;
    made.price = [=](const OperationStart& start, Caches) { return dma_price(start, from, to, nbytes, issue); };
    return made;
  }
  auto traffic = std::make_shared<Traffic>();
  const auto units = static_cast<unsigned>(model().compute_units);
  const uint64_t xccs = ~uint64_t{0} >> (64 - model().xccs);
  traffic->read[static_cast<size_t>(from + 1)] = {nbytes, units, xccs};
  traffic->written[static_cast<size_t>(to + 1)] = {nbytes, units, xccs};
  const auto allocation = memory().find(source);
  if (allocation && reads_are_looked_up()) {
    traffic->footprints.push_back(std::make_unique<Footprint>(*allocation));
    traffic->footprints.back()->mark(reinterpret_cast<uintptr_t>(source) - allocation->base, nbytes);
  }
  return shader_outcome(device, traffic);
}

struct PlannedCopy {
  Job job;  // with nothing to execute: there is nothing to copy
  bool pageable = false;
};

// Checks a copy in a stream of `stream_device`, and says how it is carried out.
hipError_t plan_copy(void* destination, const void* source, size_t nbytes, int kind, int stream_device, double issue,
                     PlannedCopy& planned) {
  if (kind != hipMemcpyDeviceToDeviceNoCU && (kind < hipMemcpyHostToHost || kind > hipMemcpyDefault)) {
    return hipErrorInvalidMemcpyDirection;
  }
  if (!nbytes) return hipSuccess;
  if (!destination || !source) return hipErrorInvalidValue;
  End from, to;
  if (!resolve_end(source, nbytes, from) || !resolve_end(destination, nbytes, to)) return hipErrorInvalidValue;
  const bool between_devices = kind == hipMemcpyDeviceToDevice || kind == hipMemcpyDeviceToDeviceNoCU;
  if (!to.known && (kind == hipMemcpyHostToDevice || between_devices)) return hipErrorInvalidValue;
  if (!from.known && (kind == hipMemcpyDeviceToHost || between_devices)) return hipErrorInvalidValue;
  const bool dma = copies_by_dma(from, to, nbytes, kind);
  const int device = executing_device(from, to, stream_device, dma);
  planned.pageable = !from.known || !to.known;
  planned.job.execute = [=](double) {
    std::memmove(destination, source, nbytes);
    return copy_outcome(device, from.owner, to.owner, source, nbytes, dma, issue);
  };
  planned.job.reads = range_of(source, nbytes);
  planned.job.writes = range_of(destination, nbytes);
  if (dma) use_engine(planned.job, device, from.owner, to.owner);
  return hipSuccess;
}

// Enqueues for the price of one call, and waits where that is wanted.
hipError_t carry_out(const std::shared_ptr<Stream>& stream, const std::vector<Job>& nodes, bool blocking) {
  OperationPtr operation;
  const hipError_t error = enqueue(stream, nodes, &operation);
  if (error != hipSuccess || !operation || !blocking) return error;
  wait_for(operation);
  spend(model().synchronize);
  return lost(stream->device);
}

// Pageable memory goes through a staging buffer of the runtime: the call returns when it is over.
hipError_t copy(void* destination, const void* source, size_t nbytes, int kind, hipStream_t handle, bool blocking) {
  const auto stream = resolve(handle);
  if (!stream) return hipErrorInvalidHandle;
  PlannedCopy planned;
  const double issue = model().dma.issue;
  const hipError_t error = plan_copy(destination, source, nbytes, kind, stream->device, issue, planned);
  if (error != hipSuccess || !planned.job.execute) return error;
  return carry_out(stream, {std::move(planned.job)}, blocking || planned.pageable);
}

hipError_t fill(void* destination, size_t count, hipStream_t handle, bool blocking, int value, size_t width) {
  const size_t nbytes = count * width;
  if (!nbytes) return hipSuccess;
  End to;
  if (!destination || !resolve_end(destination, nbytes, to) || !to.known) return hipErrorInvalidValue;
  const auto stream = resolve(handle);
  if (!stream) return hipErrorInvalidHandle;
  const int device = stream->device;
  Job job;
  job.writes = range_of(destination, nbytes);
  job.execute = [=](double) {
    auto* bytes = static_cast<char*>(destination);
    if (width == 1) {
      std::memset(bytes, value, nbytes);
    } else {
      for (size_t at = 0; at < nbytes; at += width) std::memcpy(bytes + at, &value, width);
    }
    auto traffic = std::make_shared<Traffic>();
    traffic->written[static_cast<size_t>(to.owner + 1)] = {nbytes, static_cast<unsigned>(model().compute_units)};
    return shader_outcome(device, traffic);
  };
  return carry_out(stream, {std::move(job)}, blocking);
}

hipError_t check_devices(int first, int second) {
  return is_device(first) && is_device(second) ? hipSuccess : hipErrorInvalidDevice;
}

}  // namespace
}  // namespace emulator

using namespace emulator;

HIP_API hipError_t hipMemcpy(void* destination, const void* source, size_t nbytes, int kind) {
  return api([&] { return copy(destination, source, nbytes, kind, nullptr, true); });
}
HIP_API hipError_t hipMemcpyWithStream(void* destination, const void* source, size_t nbytes, int kind,
                                       hipStream_t stream) {
  return api_on(stream, [&] { return copy(destination, source, nbytes, kind, stream, true); });
}
HIP_API hipError_t hipMemcpyAsync(void* destination, const void* source, size_t nbytes, int kind,
                                  hipStream_t stream) {
  return api_on(stream, [&] { return copy(destination, source, nbytes, kind, stream, false); });
}
HIP_API hipError_t hipMemcpyDtoD(void* destination, void* source, size_t nbytes) {
  return api([&] { return copy(destination, source, nbytes, hipMemcpyDeviceToDevice, nullptr, true); });
}
HIP_API hipError_t hipMemcpyDtoDAsync(void* destination, void* source, size_t nbytes, hipStream_t stream) {
  return api_on(stream, [&] { return copy(destination, source, nbytes, hipMemcpyDeviceToDevice, stream, false); });
}
HIP_API hipError_t hipMemcpyHtoD(void* destination, const void* source, size_t nbytes) {
  return api([&] { return copy(destination, source, nbytes, hipMemcpyHostToDevice, nullptr, true); });
}
HIP_API hipError_t hipMemcpyHtoDAsync(void* destination, const void* source, size_t nbytes, hipStream_t stream) {
  return api_on(stream, [&] { return copy(destination, source, nbytes, hipMemcpyHostToDevice, stream, false); });
}
HIP_API hipError_t hipMemcpyDtoH(void* destination, void* source, size_t nbytes) {
  return api([&] { return copy(destination, source, nbytes, hipMemcpyDeviceToHost, nullptr, true); });
}
HIP_API hipError_t hipMemcpyDtoHAsync(void* destination, void* source, size_t nbytes, hipStream_t stream) {
  return api_on(stream, [&] { return copy(destination, source, nbytes, hipMemcpyDeviceToHost, stream, false); });
}

// The device numbers are only checked for being there: the stream decides who copies.
HIP_API hipError_t hipMemcpyPeer(void* destination, int destination_device, const void* source, int source_device,
                                 size_t nbytes) {
  return api([&]() -> hipError_t {
    if (const hipError_t error = check_devices(destination_device, source_device)) return error;
    return copy(destination, source, nbytes, hipMemcpyDeviceToDevice, nullptr, true);
  });
}
HIP_API hipError_t hipMemcpyPeerAsync(void* destination, int destination_device, const void* source,
                                      int source_device, size_t nbytes, hipStream_t stream) {
  return api_on(stream, [&]() -> hipError_t {
    if (const hipError_t error = check_devices(destination_device, source_device)) return error;
    return copy(destination, source, nbytes, hipMemcpyDeviceToDevice, stream, false);
  });
}

// Entries run one after another, and their attributes are ignored, as the runtimes of 2026 do. Those before one that is
// refused are copied all the same.
HIP_API hipError_t hipMemcpyBatchAsync(void** destinations, void** sources, size_t* sizes, size_t count, void*,
                                       size_t*, size_t, size_t* fail_index, hipStream_t handle) {
  return api_on(handle, [&]() -> hipError_t {
    if (!destinations || !sources || !sizes || !count) return hipErrorInvalidValue;
    const auto stream = resolve(handle);
    if (!stream) return hipErrorInvalidHandle;
    std::vector<Job> nodes(1);
    nodes[0].execute = [](double) {
      Outcome made;
      made.price = [](const OperationStart& start, Caches) {
        const double over = start.at + model().batch.call;
        return Price{over, over, over, Data::None, {}};
      };
      return made;
    };
    bool blocking = false;
    for (size_t i = 0; i < count; ++i) {
      PlannedCopy planned;
      const double issue = model().batch.issue;
      const hipError_t refused =
          plan_copy(destinations[i], sources[i], sizes[i], hipMemcpyDefault, stream->device, issue, planned);
      if (refused != hipSuccess) {
        if (fail_index) *fail_index = i;
        carry_out(stream, nodes, blocking);
        return refused;
      }
      if (planned.job.execute) nodes.push_back(std::move(planned.job));
      blocking |= planned.pageable;
    }
    return carry_out(stream, nodes, blocking);
  });
}

HIP_API hipError_t hipMemset(void* destination, int value, size_t nbytes) {
  return api([&] { return fill(destination, nbytes, nullptr, true, value, 1); });
}
HIP_API hipError_t hipMemsetAsync(void* destination, int value, size_t nbytes, hipStream_t stream) {
  return api_on(stream, [&] { return fill(destination, nbytes, stream, false, value, 1); });
}
HIP_API hipError_t hipMemsetD8Async(void* destination, unsigned char value, size_t count, hipStream_t stream) {
  return api_on(stream, [&] { return fill(destination, count, stream, false, value, 1); });
}
HIP_API hipError_t hipMemsetD32(void* destination, int value, size_t count) {
  return api([&] { return fill(destination, count, nullptr, true, value, 4); });
}
HIP_API hipError_t hipMemsetD32Async(void* destination, int value, size_t count, hipStream_t stream) {
  return api_on(stream, [&] { return fill(destination, count, stream, false, value, 4); });
}

HIP_API hipError_t hipMemPrefetchAsync(const void* pointer, size_t nbytes, int device, hipStream_t handle) {
  return api_on(handle, [&]() -> hipError_t {
    const auto allocation = memory().find(pointer);
    const auto stream = resolve(handle);
    if (!stream) return hipErrorInvalidHandle;
    if (device != HOST && !is_device(device)) return hipErrorInvalidDevice;
    if (!allocation || allocation->kind != MemoryKind::Managed) return hipErrorInvalidValue;
    if (!allocation->holds(reinterpret_cast<uintptr_t>(pointer), nbytes)) return hipErrorInvalidValue;
    const int from = allocation->owner;
    Job job;
    job.execute = [=](double) {
      const uintptr_t moved = memory().move(const_cast<void*>(pointer), device);
      count_moved(from, device, nbytes);
      Outcome made;
      made.price = [=](const OperationStart& start, Caches caches) {
        if (moved && caches == Caches::LookedUp) forget_reads(moved);  // what was read before was read there
        return dma_price(start, from, device, nbytes, model().dma.issue);
      };
      return made;
    };
    use_engine(job, from != HOST ? from : std::max(device, 0), from, device);
    return enqueue(stream, std::move(job));
  });
}

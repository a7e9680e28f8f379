// What the Python side calls: opening the node, the host's clock and copies, counters, and faults in words.
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "memory.hpp"
#include "runtime.hpp"
#include "stream.hpp"
#include "timing.hpp"

namespace emulator {
namespace {

struct FaultText {
  std::mutex mutex;
  std::string last;
};
FaultText& fault_text() {
  static FaultText* instance = new FaultText;
  return *instance;
}

}  // namespace

void report_fault(const std::string& line) {
  std::fprintf(stderr, "transferbench emulator: %s\n", line.c_str());
  std::lock_guard lock(fault_text().mutex);
  fault_text().last = line;
}

std::string last_fault() {
  std::lock_guard lock(fault_text().mutex);
  return fault_text().last;
}

}  // namespace emulator

using namespace emulator;

namespace {

// Copies `text` into a caller's buffer, cut to what fits, and returns its whole length.
size_t hand_out(const std::string& text, char* buffer, size_t size) {
  if (size) {
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = 0;
  }
  return text.size();
}

}  // namespace

// Opens the node that the model text describes. Returns 0, or the length of what is wrong, in `message`.
HIP_API size_t transferbench_emulator_open(const char* model_text, char* message, size_t size) {
  return hand_out(open_node(model_text), message, size);
}

HIP_API size_t transferbench_emulator_last_fault(char* message, size_t size) {
  return hand_out(last_fault(), message, size);
}

HIP_API double transferbench_emulator_host_clock() { return host_clock(); }

namespace {

// The owner of one end of a host copy; an error for a range that host threads cannot address.
hipError_t resolve_host_end(const void* pointer, size_t nbytes, int& owner) {
  owner = HOST;
  const auto allocation = memory().find(pointer);
  if (!allocation) return hipSuccess;  // pageable memory of the program
  if (!allocation->holds(reinterpret_cast<uintptr_t>(pointer), nbytes)) return hipErrorInvalidValue;
  if (allocation->kind == MemoryKind::Device && !model().large_bar) return hipErrorInvalidDevicePointer;
  owner = allocation->owner;
  return hipSuccess;
}

struct HostEnds {
  std::vector<char*> destinations;
  std::vector<const char*> sources;

  void work(size_t at, size_t length) const {
    const void* result = sources[0] + at;
    if (sources.size() > 1) {
      auto* total = reinterpret_cast<float*>(destinations[0] + at);
      for (size_t i = 0; i < length / sizeof(float); ++i) {
        float sum = reinterpret_cast<const float*>(sources[0] + at)[i];
        for (size_t s = 1; s < sources.size(); ++s) sum += reinterpret_cast<const float*>(sources[s] + at)[i];
        total[i] = sum;
      }
      result = total;
    }
    for (char* destination : destinations) {
      if (destination + at != result) std::memcpy(destination + at, result, length);
    }
  }
};

struct HostCopy {
  OperationPtr operation;
  double seconds_alone;
};

}  // namespace

// A copy of the one source, or the sum of several, by host threads, made at once. On the virtual clock it begins now
// and does not move the clock: others can be under way, too, and GPUs be waited for meanwhile. Returns a handle, or
// null and a negative hipError_t.
HIP_API void* transferbench_emulator_begin_host_copy(void* const* destinations, size_t destination_count,
                                                     const void* const* sources, size_t source_count, size_t nbytes,
                                                     int threads, int* refused) {
  auto refuse = [&](hipError_t error) {
    *refused = -error;
    return nullptr;
  };
  if (threads < 1 || !destination_count || !source_count || runtime().devices.empty()) {
    return refuse(hipErrorInvalidValue);
  }
  HostEnds ends;
  std::vector<int> from(source_count), to(destination_count);
  for (size_t i = 0; i < source_count; ++i) {
    if (const hipError_t error = resolve_host_end(sources[i], nbytes, from[i])) return refuse(error);
    ends.sources.push_back(static_cast<const char*>(sources[i]));
  }
  for (size_t i = 0; i < destination_count; ++i) {
    if (const hipError_t error = resolve_host_end(destinations[i], nbytes, to[i])) return refuse(error);
    ends.destinations.push_back(static_cast<char*>(destinations[i]));
  }
  settle();
  const auto count = static_cast<size_t>(threads);
  const size_t share = (nbytes / count + 4095) / 4096 * 4096;
  std::vector<std::thread> helpers;
  for (size_t at = 0; at < nbytes && share; at += share) {
    helpers.emplace_back([&ends, at, length = std::min(share, nbytes - at)] { ends.work(at, length); });
  }
  for (std::thread& helper : helpers) helper.join();
  for (const int owner : from) count_moved(owner, to[0], nbytes);
  for (size_t i = 1; i < destination_count; ++i) count_moved(HOST, to[i], nbytes);
  const double alone = host_copy_price({}, from, to, nbytes, threads).data_end;
  const OperationPtr copy = begin_host_copy([=](const OperationStart& start, Caches) {
    return host_copy_price(start, from, to, nbytes, threads);
  });
  return new HostCopy{copy, alone};
}

// Waits until a copy is over and raises the host's clock to that. Returns the virtual seconds that it took.
HIP_API double transferbench_emulator_end_host_copy(void* handle) {
  const std::unique_ptr<HostCopy> copy(static_cast<HostCopy*>(handle));
  end_host_copy(copy->operation);
  return copy->seconds_alone + copy->operation->delay;
}

struct EmulatorCounters {
  uint64_t allocations, bytes, resident, pool;
};

HIP_API void transferbench_emulator_counters(EmulatorCounters* counters) {
  const MemoryUse use = memory().use();
  *counters = {use.allocations, use.bytes, use.resident, memory().pool_used()};
}

// Replaces the planned faults and counts all calls anew. Returns 0, or the length of what is wrong, in `message`.
HIP_API size_t transferbench_emulator_plan_faults(const char* faults, char* message, size_t size) {
  return hand_out(plan_faults(faults), message, size);
}

HIP_API size_t transferbench_emulator_fault_uses(char* text, size_t size) {
  return hand_out(fault_uses(), text, size);
}

HIP_API size_t transferbench_emulator_call_counts(char* text, size_t size) {
  return hand_out(call_counts(), text, size);
}

HIP_API uint64_t transferbench_emulator_moved_bytes(int from, int to) { return moved_bytes(from, to); }

HIP_API uint64_t transferbench_emulator_take_xccs(int from, int to) { return take_xccs(from, to); }

HIP_API void transferbench_emulator_copies(int device, uint64_t* by_dma, uint64_t* by_shader) {
  const CopyCounts counts = copy_counts(device);
  *by_dma = counts.dma;
  *by_shader = counts.shader;
}

// For the run-time compiler beside this library.
HIP_API const char* transferbench_emulator_arch() { return model().arch.c_str(); }
HIP_API int transferbench_emulator_wavefront() { return model().wavefront; }
HIP_API const char* transferbench_emulator_compiler() { return model().compiler.c_str(); }
HIP_API const char* transferbench_emulator_kernel_cache() { return model().kernel_cache.c_str(); }
HIP_API const char* transferbench_emulator_include_folder() { return model().include_folder.c_str(); }

// For the generated stubs: a call this runtime does not have says so once and is refused.
HIP_API hipError_t transferbench_emulator_refuse(const char* name) {
  std::fprintf(stderr, "transferbench emulator: %s is not part of the emulated runtime\n", name);
  last_error = hipErrorNotSupported;
  return hipErrorNotSupported;
}

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

// Copies with host threads and moves the host's clock by what the model says that takes. Returns the virtual seconds,
// or a negative hipError_t.
HIP_API double transferbench_emulator_host_copy(void* destination, const void* source, size_t nbytes, int threads) {
  const Model& m = model();
  int owners[2] = {HOST, HOST};
  const void* ends[2] = {source, destination};
  for (int end = 0; end < 2; ++end) {
    const auto allocation = memory().find(ends[end]);
    if (!allocation) continue;  // pageable memory of the program
    if (!allocation->holds(reinterpret_cast<uintptr_t>(ends[end]), nbytes)) return -hipErrorInvalidValue;
    if (allocation->kind == MemoryKind::Device && !m.large_bar) return -hipErrorInvalidDevicePointer;
    owners[end] = allocation->owner;
  }
  if (threads < 1 || runtime().devices.empty()) return -hipErrorInvalidValue;
  const auto count = static_cast<size_t>(threads);
  const size_t share = (nbytes / count + 4095) / 4096 * 4096;
  std::vector<std::thread> helpers;
  for (size_t at = 0; at < nbytes && share; at += share) {
    const size_t length = std::min(share, nbytes - at);
    helpers.emplace_back([=] {
      std::memcpy(static_cast<char*>(destination) + at, static_cast<const char*>(source) + at, length);
    });
  }
  if (!share) std::memcpy(destination, source, nbytes);
  for (std::thread& helper : helpers) helper.join();
  // Every thread has its rate; together they go no faster than the link they share, or than all of the CPU.
  const int working = std::min(threads, m.cpu.threads);
  double seconds = 0;
  auto consider = [&](double rate) { seconds = std::max(seconds, static_cast<double>(nbytes) / rate); };
  consider(working * m.cpu.local_rate);
  if (owners[0] != HOST) {
    consider(working * m.cpu.from_device_rate);
    consider(m.link(owners[0], HOST).rate);
  }
  if (owners[1] != HOST) {
    consider(working * m.cpu.to_device_rate);
    consider(m.link(HOST, owners[1]).rate);
  }
  count_moved(owners[0], owners[1], nbytes);
  advance_host_clock(seconds);
  return seconds;
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

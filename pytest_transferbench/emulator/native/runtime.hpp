// State that every HIP call shares: devices, the calling thread's current device and last error.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "hip_abi.hpp"
#include "model.hpp"

namespace emulator {

class Stream;

struct Device {
  int index = 0;
  std::vector<char> peers;  // peers[b]: kernels of this device may touch memory of device b
  std::shared_ptr<Stream> null_stream;
  std::vector<std::shared_ptr<Stream>> streams;  // created by the program, without the null stream
  std::atomic<hipError_t> sticky{hipSuccess};    // a kernel fault; ends the device until hipDeviceReset
};

struct Runtime {
  std::recursive_mutex mutex;  // guards everything here, and the order in which work is enqueued
  std::vector<std::unique_ptr<Device>> devices;
  std::atomic<uint64_t> calls{0};
};

Runtime& runtime();

extern thread_local int current_device;
extern thread_local hipError_t last_error;

inline bool is_device(int index) { return index >= 0 && index < static_cast<int>(runtime().devices.size()); }

// Runs the body of a HIP call: counts it, refuses it when there is no device, keeps its error for hipGetLastError.
template <class Body>
hipError_t api(Body&& body) {
  runtime().calls.fetch_add(1, std::memory_order_relaxed);
  const hipError_t error = runtime().devices.empty() ? hipErrorNoDevice : body();
  if (error != hipSuccess) last_error = error;
  return error;
}

// Builds the devices of the model. Returns an empty string or what is wrong in one line.
std::string open_node(const std::string& model_text);

// The last kernel fault in words, empty when there was none.
std::string last_fault();
void report_fault(const std::string& line);

}  // namespace emulator

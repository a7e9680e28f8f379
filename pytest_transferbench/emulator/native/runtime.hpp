// State that every HIP call shares: devices, the calling thread's current device and last error.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hip_abi.hpp"
#include "model.hpp"

namespace emulator {

class Stream;
struct HardwareQueue;

struct Device {
  int index = 0;
  std::vector<char> peers;  // peers[b]: kernels of this device may touch memory of device b
  std::vector<HardwareQueue*> queues;  // of the hardware: streams beyond their number share them
  std::shared_ptr<Stream> null_stream;
  std::vector<std::shared_ptr<Stream>> streams;  // created by the program, without the null stream
  std::atomic<hipError_t> sticky{hipSuccess};    // what ended the device; until hipDeviceReset all its calls return it
};

struct Runtime {
  std::recursive_mutex mutex;  // guards everything here, and the order in which work is enqueued
  std::vector<std::unique_ptr<Device>> devices;
};

Runtime& runtime();

extern thread_local int current_device;
extern thread_local hipError_t last_error;

inline bool is_device(int index) { return index >= 0 && index < static_cast<int>(runtime().devices.size()); }

// What has ended a device, hipSuccess for one that works. Calls that touch a device ask this first.
inline hipError_t lost(int device) { return runtime().devices[device]->sticky; }

// Counts a use of `call` for `device`, and returns the code it fails with where a fault is planned for this use.
hipError_t planned_fault(std::string_view call, int device);

// Replaces all planned faults, "call nth code sticky device" a line with -1 for any device, and counts anew.
// Returns an empty string or what is wrong in one line.
std::string plan_faults(const std::string& text);

// How often the call of each planned fault was used on its device, in their order, one number a line.
std::string fault_uses();

// Every HIP call used so far with its number of uses, "call uses" a line.
std::string call_counts();

// Runs the body of a HIP call of `device`: counts it, refuses it when there is no device or a fault is planned for it,
// keeps its error for hipGetLastError. `call` is the function this is written in: wrappers hand theirs on.
template <class Body>
hipError_t api(Body&& body, const char* call = __builtin_FUNCTION(), int device = current_device) {
  hipError_t error = hipErrorNoDevice;
  if (!runtime().devices.empty()) {
    error = planned_fault(call, device);
    if (error == hipSuccess) error = body();
  }
  if (error != hipSuccess) last_error = error;
  return error;
}

// Runs the body of a HIP call that names its device.
template <class Body>
hipError_t api_for(int device, Body&& body, const char* call = __builtin_FUNCTION()) {
  return api(body, call, is_device(device) ? device : current_device);
}

// Builds the devices of the model. Returns an empty string or what is wrong in one line.
std::string open_node(const std::string& model_text);

// The last kernel fault in words, empty when there was none.
std::string last_fault();
void report_fault(const std::string& line);

}  // namespace emulator

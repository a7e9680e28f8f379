// Devices: what a program can ask about them, which one is current, and who may touch whose memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "memory.hpp"
#include "runtime.hpp"
#include "stream.hpp"

namespace emulator {

thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;

Runtime& runtime() {
  static Runtime* instance = new Runtime;  // never destroyed: Python's teardown order is not ours
  return *instance;
}

namespace {

// As the ROCm runtime reads it, which has 4 by default.
int hardware_queues() {
  constexpr int by_default = 4, most = 1024;
  const char* text = std::getenv("GPU_MAX_HW_QUEUES");
  const int asked = text ? std::atoi(text) : 0;
  return asked > 0 ? std::min(asked, most) : by_default;
}

}  // namespace

std::string open_node(const std::string& model_text) {
  Runtime& r = runtime();
  std::lock_guard lock(r.mutex);
  if (!r.devices.empty()) return "a node is already open in this process";
  const std::string wrong = model().read(model_text);
  if (!wrong.empty()) return wrong;
  for (int index = 0; index < model().devices; ++index) {
    auto device = std::make_unique<Device>();
    device->index = index;
    device->peers.assign(model().devices, 0);
    for (int queue = 0; queue < hardware_queues(); ++queue) device->queues.push_back(&timeline().new_queue());
    device->null_stream = std::make_shared<Stream>(index, 0, 0);
    r.devices.push_back(std::move(device));
  }
  return "";
}

namespace {

struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
};

PciAddress pci_address(int index) {
  PciAddress address;
  std::sscanf(model().pci[index].c_str(), "%x:%x:%x.%x", &address.domain, &address.bus, &address.device,
              &address.function);
  return address;
}

hipUUID uuid(int index) {
  // As on real nodes: the sixteen hexadecimal digits of the KFD unique_id.
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(model().unique_ids[index]));
  hipUUID made;
  std::memcpy(made.bytes, digits, sizeof made.bytes);
  return made;
}

hipDeviceProp_tR0600 properties(int index) {
  const Model& m = model();
  const PciAddress address = pci_address(index);
  hipDeviceProp_tR0600 p{};
  std::snprintf(p.name, sizeof p.name, "%s", m.device_name.c_str());
  std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "%s", m.arch.c_str());
  p.uuid = uuid(index);
  p.totalGlobalMem = m.memory;
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = p.maxSharedMemoryPerMultiProcessor = 64 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 64 << 10;
  p.warpSize = m.wavefront;
  p.memPitch = 0x7fffffff;
  p.maxThreadsPerBlock = 1024;
  for (int axis = 0; axis < 3; ++axis) p.maxThreadsDim[axis] = 1024;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65536;
  p.clockRate = p.clockInstructionRate = m.clock_khz;
  p.totalConstMem = 0x7fffffff;
  p.major = m.arch[3] - '0';  // gfx942 is 9.4, gfx1250 is 12.5
  p.minor = m.arch[4] - '0';
  if (m.arch.find(':') == 7 || m.arch.size() == 7) {
    p.major = p.major * 10 + p.minor;
    p.minor = m.arch[5] - '0';
  }
  p.multiProcessorCount = m.compute_units;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = p.managedMemory = 1;
  p.pciBusID = static_cast<int>(address.bus);
  p.pciDeviceID = static_cast<int>(address.device);
  p.pciDomainID = static_cast<int>(address.domain);
  p.asyncEngineCount = m.copy_engines;
  p.memoryClockRate = m.memory_clock_khz;
  p.memoryBusWidth = m.memory_bus_bits;
  p.l2CacheSize = static_cast<int>(m.l2_cache);
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 2;
  p.streamPrioritiesSupported = p.hostRegisterSupported = p.cooperativeLaunch = 1;
  p.isLargeBar = m.large_bar;
  return p;
}

}  // namespace
}  // namespace emulator

using namespace emulator;

// ---- errors and versions ----

namespace {

struct ErrorText {
  hipError_t code;
  const char *name, *text;
};
constexpr ErrorText error_texts[] = {
    {hipSuccess, "hipSuccess", "no error"},
    {hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {hipErrorInvalidSymbol, "hipErrorInvalidSymbol", "invalid device symbol"},
    {hipErrorInvalidDevicePointer, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {hipErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {hipErrorInvalidDeviceFunction, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {hipErrorNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {hipErrorInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {hipErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {hipErrorECCNotCorrectable, "hipErrorECCNotCorrectable", "uncorrectable ECC error encountered"},
    {hipErrorUnsupportedLimit, "hipErrorUnsupportedLimit", "limit is not supported on this architecture"},
    {hipErrorFileNotFound, "hipErrorFileNotFound", "file not found"},
    {hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {hipErrorIllegalState, "hipErrorIllegalState", "the operation cannot be performed in the present state"},
    {hipErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {hipErrorIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {hipErrorPeerAccessAlreadyEnabled, "hipErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {hipErrorPeerAccessNotEnabled, "hipErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {hipErrorHostMemoryAlreadyRegistered, "hipErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {hipErrorHostMemoryNotRegistered, "hipErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {hipErrorLaunchTimeOut, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {hipErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {hipErrorStreamCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {hipErrorUnknown, "hipErrorUnknown", "unknown error"},
};

const ErrorText& describe(hipError_t code) {
  for (const ErrorText& entry : error_texts) {
    if (entry.code == code) return entry;
  }
  return *(std::end(error_texts) - 1);
}

constexpr int hip_version = 70051831;  // below 8: CuPy refuses a runtime of the next major version

}  // namespace

HIP_API const char* hipGetErrorName(hipError_t code) { return describe(code).name; }
HIP_API const char* hipGetErrorString(hipError_t code) { return describe(code).text; }
// These two tell what another call left and never fail themselves: their result is a plain number.
HIP_API int hipPeekAtLastError() { return last_error; }
HIP_API int hipGetLastError() {
  const hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}
HIP_API hipError_t hipInit(unsigned flags) { return api([&] { return flags ? hipErrorInvalidValue : hipSuccess; }); }

namespace {

hipError_t get_version(int* version, const char* call = __builtin_FUNCTION()) {
  if (version) *version = hip_version;  // also where there is no device
  return api([&] { return version ? hipSuccess : hipErrorInvalidValue; }, call);
}

}  // namespace

HIP_API hipError_t hipDriverGetVersion(int* version) { return get_version(version); }
HIP_API hipError_t hipRuntimeGetVersion(int* version) { return get_version(version); }

// ---- choosing a device ----

HIP_API hipError_t hipGetDeviceCount(int* count) {
  if (count) *count = static_cast<int>(runtime().devices.size());
  return api([&] { return count ? hipSuccess : hipErrorInvalidValue; });
}
HIP_API hipError_t hipGetDevice(int* device) {
  return api([&]() -> hipError_t {
    if (!device) return hipErrorInvalidValue;
    *device = current_device;
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceGet(int* device, int ordinal) {
  return api([&]() -> hipError_t {
    if (!device) return hipErrorInvalidValue;
    if (!is_device(ordinal)) return hipErrorInvalidDevice;
    *device = ordinal;
    return hipSuccess;
  });
}
HIP_API hipError_t hipSetDevice(int device) {
  return api_for(device, [&]() -> hipError_t {
    if (!is_device(device)) return hipErrorInvalidDevice;
    current_device = device;
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceSynchronize() {
  return api([] { return synchronize_device(current_device); });
}
HIP_API hipError_t hipDeviceReset() {
  return api([]() -> hipError_t {
    synchronize_device(current_device);
    if (lost(current_device)) memory().release_all_of(current_device);  // hipFree could not
    runtime().devices[current_device]->sticky = hipSuccess;
    return hipSuccess;
  });
}

// ---- what a device is ----

HIP_API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* result, int device) {
  return api_for(device, [&]() -> hipError_t {
    if (!result) return hipErrorInvalidValue;
    if (!is_device(device)) return hipErrorInvalidDevice;
    *result = properties(device);
    return hipSuccess;
  });
}

HIP_API hipError_t hipDeviceGetAttribute(int* value, int attribute, int device) {
  return api_for(device, [&]() -> hipError_t {
    if (!value) return hipErrorInvalidValue;
    if (!is_device(device)) return hipErrorInvalidDevice;
    const hipDeviceProp_tR0600 p = properties(device);
    switch (attribute) {  // hipDeviceAttribute_t of HIP 6 and later
      case 0: *value = p.ECCEnabled; break;
      case 2: *value = p.asyncEngineCount; break;
      case 3: *value = p.canMapHostMemory; break;
      case 5: *value = p.clockRate; break;
      case 6: *value = p.computeMode; break;
      case 8: *value = p.concurrentKernels; break;
      case 10: *value = p.cooperativeLaunch; break;
      case 16: *value = p.integrated; break;
      case 19: *value = p.l2CacheSize; break;
      case 23: *value = p.major; break;
      case 24: *value = p.managedMemory; break;
      case 25: *value = p.maxBlocksPerMultiProcessor; break;
      case 26: case 27: case 28: *value = p.maxThreadsDim[attribute - 26]; break;
      case 29: case 30: case 31: *value = p.maxGridSize[attribute - 29]; break;
      case 56: *value = p.maxThreadsPerBlock; break;
      case 57: *value = p.maxThreadsPerMultiProcessor; break;
      case 59: *value = p.memoryBusWidth; break;
      case 60: *value = p.memoryClockRate; break;
      case 61: *value = p.minor; break;
      case 63: *value = p.multiProcessorCount; break;
      case 67: *value = p.pciBusID; break;
      case 68: *value = p.pciDeviceID; break;
      case 69: *value = p.pciDomainID; break;
      case 71: *value = p.regsPerBlock; break;
      case 72: *value = p.regsPerMultiprocessor; break;
      case 74: *value = static_cast<int>(p.sharedMemPerBlock); break;
      case 76: case 10002: *value = static_cast<int>(p.sharedMemPerMultiprocessor); break;
      case 77: case 78: *value = p.streamPrioritiesSupported; break;
      case 85: *value = p.unifiedAddressing; break;
      case 87: *value = p.warpSize; break;
      case 90: *value = p.hostRegisterSupported; break;
      case 92: *value = model().numa_nodes[device]; break;
      case 10011: *value = p.isLargeBar; break;
      case 10012: *value = p.asicRevision; break;
      case 10015: *value = p.multiProcessorCount; break;
      case 10016: *value = 1; break;  // fine-grained memory
      case 10017: *value = model().wall_clock_khz; break;
      case 10018: *value = model().xccs; break;
      case 10020: *value = model().pci_device_id; break;
      default: *value = 0;
    }
    return hipSuccess;
  });
}

HIP_API hipError_t hipDeviceGetName(char* name, int length, int device) {
  return api_for(device, [&]() -> hipError_t {
    if (!name || length <= 0) return hipErrorInvalidValue;
    if (!is_device(device)) return hipErrorInvalidDevice;
    std::snprintf(name, static_cast<size_t>(length), "%s", model().device_name.c_str());
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceTotalMem(size_t* nbytes, int device) {
  return api_for(device, [&]() -> hipError_t {
    if (!nbytes) return hipErrorInvalidValue;
    if (!is_device(device)) return hipErrorInvalidDevice;
    *nbytes = model().memory;
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceComputeCapability(int* major, int* minor, int device) {
  return api_for(device, [&]() -> hipError_t {
    if (!major || !minor) return hipErrorInvalidValue;
    if (!is_device(device)) return hipErrorInvalidDevice;
    const hipDeviceProp_tR0600 p = properties(device);
    *major = p.major;
    *minor = p.minor;
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceGetPCIBusId(char* address, int length, int device) {
  return api_for(device, [&]() -> hipError_t {
    constexpr int shortest = 13;  // "0000:0c:00.0" and its end
    if (!address || length < shortest) return hipErrorInvalidValue;
    if (!is_device(device)) return hipErrorInvalidDevice;
    std::snprintf(address, static_cast<size_t>(length), "%s", model().pci[device].c_str());
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceGetByPCIBusId(int* device, const char* address) {
  return api([&]() -> hipError_t {
    if (!device || !address) return hipErrorInvalidValue;
    PciAddress wanted;
    if (std::sscanf(address, "%x:%x:%x", &wanted.domain, &wanted.bus, &wanted.device) != 3) {
      return hipErrorInvalidValue;
    }
    for (int index = 0; index < model().devices; ++index) {
      const PciAddress have = pci_address(index);
      if (have.domain == wanted.domain && have.bus == wanted.bus && have.device == wanted.device) {
        *device = index;
        return hipSuccess;
      }
    }
    return hipErrorInvalidDevice;
  });
}
HIP_API hipError_t hipDeviceGetUuid(hipUUID* result, int device) {
  return api_for(device, [&]() -> hipError_t {
    if (!result) return hipErrorInvalidValue;
    if (!is_device(device)) return hipErrorInvalidDevice;
    *result = uuid(device);
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceGetLimit(size_t* value, int) {
  return api([&]() -> hipError_t {
    if (value) *value = 0;
    return value ? hipErrorUnsupportedLimit : hipErrorInvalidValue;
  });
}

// ---- peers and links ----

HIP_API hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return api_for(device, [&]() -> hipError_t {
    if (!can) return hipErrorInvalidValue;
    if (!is_device(device) || !is_device(peer)) return hipErrorInvalidDevice;
    *can = device != peer;
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api([&]() -> hipError_t {
    if (flags) return hipErrorInvalidValue;
    if (!is_device(peer) || peer == current_device) return hipErrorInvalidDevice;
    if (const hipError_t error = lost(current_device)) return error;
    std::lock_guard lock(runtime().mutex);
    char& enabled = runtime().devices[current_device]->peers[peer];
    if (enabled) return hipErrorPeerAccessAlreadyEnabled;
    enabled = 1;
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceDisablePeerAccess(int peer) {
  return api([&]() -> hipError_t {
    if (!is_device(peer) || peer == current_device) return hipErrorInvalidDevice;
    std::lock_guard lock(runtime().mutex);
    char& enabled = runtime().devices[current_device]->peers[peer];
    if (!enabled) return hipErrorPeerAccessNotEnabled;
    enabled = 0;
    return hipSuccess;
  });
}
HIP_API hipError_t hipDeviceGetP2PAttribute(int* value, int attribute, int source, int destination) {
  return api([&]() -> hipError_t {
    if (!value || attribute < 0 || attribute > 3) return hipErrorInvalidValue;
    if (!is_device(source) || !is_device(destination) || source == destination) return hipErrorInvalidDevice;
    constexpr int performance_rank = 0, array_access = 3;
    const Link& link = model().link(source, destination);
    *value = attribute == performance_rank ? link.type : attribute != array_access;
    return hipSuccess;
  });
}
HIP_API hipError_t hipExtGetLinkTypeAndHopCount(int first, int second, uint32_t* type, uint32_t* hops) {
  return api([&]() -> hipError_t {
    if (!type || !hops || first == second || !is_device(first) || !is_device(second)) return hipErrorInvalidValue;
    const Link& link = model().link(first, second);
    *type = static_cast<uint32_t>(link.type);
    *hops = static_cast<uint32_t>(link.hops);
    return hipSuccess;
  });
}

// ROCr as hsa.h and hsa_ext_amd.h declare it, on host memory, as far as a copy by one engine needs it. Whatever it is
// not asked in the right way it refuses, as ROCr would or more strictly.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>

using hsa_status_t = uint32_t;
using hsa_signal_value_t = int64_t;
struct hsa_agent_t { uint64_t handle; };
struct hsa_signal_t { uint64_t handle; };

struct hsa_amd_pointer_info_t {
  uint32_t size;
  uint32_t type;  // hsa_amd_pointer_type_t: 0 unknown, 1 allocated by ROCr
  void* agentBaseAddress;
  void* hostBaseAddress;
  size_t sizeInBytes;
  void* userData;
  hsa_agent_t agentOwner;
  uint32_t global_flags;
  bool registered;
};

namespace {

constexpr hsa_status_t SUCCESS = 0, INVALID_ARGUMENT = 0x1001, INVALID_AGENT = 0x1004, INVALID_SIGNAL = 0x1006,
                       NOT_INITIALIZED = 0x100b;
constexpr uint64_t SIGNAL = 77;

struct Allocation {
  size_t size;
  uint64_t owner;
};

std::map<uintptr_t, Allocation> allocations;
hsa_signal_value_t signal_value = 0;

uint64_t owner_of(const void* pointer, size_t nbytes) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (const auto& [base, allocation] : allocations) {
    if (address >= base && address + nbytes <= base + allocation.size) return allocation.owner;
  }
  return 0;
}

}  // namespace

extern "C" {

// What a test sets and looks at.
int fake_users = 0, fake_signals = 0;
uint32_t fake_engines = 0;         // the mask of those that serve any two agents
uint32_t fake_refusal = 0;         // the status of the next copy
int64_t fake_outcome = 0;          // the signal's value when the next copy is over; 1: it never is
uint32_t fake_left_out = 0;        // bytes at the end of each copy
uint64_t fake_copies[32] = {};     // by engine

void fake_allocation(void* base, size_t size, uint64_t owner) {
  allocations[reinterpret_cast<uintptr_t>(base)] = {size, owner};
}

hsa_status_t hsa_init() {
  ++fake_users;
  return SUCCESS;
}

hsa_status_t hsa_shut_down() {
  if (!fake_users) return NOT_INITIALIZED;
  --fake_users;
  return SUCCESS;
}

hsa_status_t hsa_status_string(hsa_status_t status, const char** words) {
  switch (status) {
    case INVALID_ARGUMENT: *words = "HSA_STATUS_ERROR_INVALID_ARGUMENT: One of the arguments is invalid."; break;
    case INVALID_AGENT: *words = "HSA_STATUS_ERROR_INVALID_AGENT: The agent is invalid."; break;
    default: return INVALID_ARGUMENT;
  }
  return SUCCESS;
}

hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t consumers, const hsa_agent_t*, hsa_signal_t* signal) {
  if (!fake_users) return NOT_INITIALIZED;
  if (consumers) return INVALID_ARGUMENT;
  ++fake_signals;
  signal_value = value;
  signal->handle = SIGNAL;
  return SUCCESS;
}

hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
  if (signal.handle != SIGNAL) return INVALID_SIGNAL;
  --fake_signals;
  return SUCCESS;
}

void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
  if (signal.handle == SIGNAL) signal_value = value;
}

hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, uint32_t condition, hsa_signal_value_t than, uint64_t,
                                             uint32_t state) {
  constexpr uint32_t less_than = 2, active = 1;
  if (signal.handle != SIGNAL || condition != less_than || than != 1 || state != active) return 99;
  return signal_value;
}

hsa_status_t hsa_amd_pointer_info(const void* pointer, hsa_amd_pointer_info_t* info, void* (*)(size_t), uint32_t*,
                                  hsa_agent_t**) {
  if (info->size < offsetof(hsa_amd_pointer_info_t, global_flags)) return INVALID_ARGUMENT;
  hsa_amd_pointer_info_t found = {};
  found.agentOwner.handle = owner_of(pointer, 1);
  found.type = found.agentOwner.handle ? 1 : 0;
  found.size = info->size;
  std::memcpy(info, &found, info->size);
  return SUCCESS;
}

hsa_status_t hsa_amd_memory_copy_engine_status(hsa_agent_t destination, hsa_agent_t source, uint32_t* engines) {
  if (!destination.handle || destination.handle == source.handle) return INVALID_AGENT;
  *engines = fake_engines;
  return SUCCESS;
}

hsa_status_t hsa_amd_memory_async_copy_on_engine(void* destination, hsa_agent_t to, const void* source, hsa_agent_t of,
                                                 size_t nbytes, uint32_t waited_for, const hsa_signal_t*,
                                                 hsa_signal_t signal, uint32_t engine, bool force_on_engine) {
  if (fake_refusal) {
    const hsa_status_t refusal = fake_refusal;
    fake_refusal = 0;
    return refusal;
  }
  if (to.handle != owner_of(destination, nbytes) || of.handle != owner_of(source, nbytes)) return INVALID_AGENT;
  if (signal.handle != SIGNAL || signal_value != 1) return INVALID_SIGNAL;
  if (waited_for || !force_on_engine || __builtin_popcount(engine) != 1) return INVALID_ARGUMENT;
  ++fake_copies[__builtin_ctz(engine)];
  if (fake_outcome == 1) return SUCCESS;
  std::memcpy(destination, source, nbytes - fake_left_out);
  signal_value = fake_outcome;
  return SUCCESS;
}

}  // extern "C"

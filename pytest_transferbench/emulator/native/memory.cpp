#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <shared_mutex>
#include <vector>

#include "caches.hpp"
#include "runtime.hpp"
#include "stream.hpp"

namespace emulator {
namespace {

constexpr size_t PAGE = 4096, HUGE_PAGE = 2 << 20, GUARD = 64 << 10;

struct Table {
  mutable std::shared_mutex mutex;
  std::map<uintptr_t, Allocation> allocations;
  size_t pool_used = 0;
  uint64_t made = 0;
};

Table& table() {
  static Table* instance = new Table;
  return *instance;
}

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Unmaps one allocation of the runtime's own under the table's lock; returns what follows it.
auto give_back(Table& t, std::map<uintptr_t, Allocation>::iterator at) {
  const Allocation gone = at->second;
  t.pool_used -= round_up(gone.size, PAGE);
  forget_reads(gone.base);
  munmap(reinterpret_cast<void*>(gone.mapping), gone.mapping_size);
  return t.allocations.erase(at);
}

}  // namespace

Memory& memory() {
  static Memory* instance = new Memory;
  return *instance;
}

hipError_t Memory::allocate(void** pointer, size_t nbytes, int owner, int device, MemoryKind kind, unsigned flags,
                            int numa_node) {
  if (!pointer) return hipErrorInvalidValue;
  *pointer = nullptr;
  if (!nbytes) return hipSuccess;
  if (const hipError_t error = lost(device)) return error;
  const size_t length = round_up(nbytes, PAGE);
  Table& t = table();
  std::unique_lock lock(t.mutex);
  if (nbytes > model().pool || t.pool_used + length > model().pool) return hipErrorOutOfMemory;
  // One reservation with a gap at both ends; the bytes in the middle become accessible and are committed on touch.
  const size_t alignment = length >= HUGE_PAGE ? HUGE_PAGE : PAGE;
  const size_t mapping_size = length + 2 * GUARD + (alignment - PAGE);
  void* mapping = mmap(nullptr, mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return hipErrorOutOfMemory;
  const uintptr_t base = round_up(reinterpret_cast<uintptr_t>(mapping) + GUARD, alignment);
  void* bytes = reinterpret_cast<void*>(base);
  if (mprotect(bytes, length, PROT_READ | PROT_WRITE)) {
    munmap(mapping, mapping_size);
    return hipErrorOutOfMemory;
  }
  if (length >= HUGE_PAGE) madvise(bytes, length, MADV_HUGEPAGE);
  Allocation made;
  made.base = base;
  made.size = nbytes;
  made.owner = owner;
  made.device = device;
  made.kind = kind;
  made.flags = flags;
  made.numa_node = numa_node;
  made.mapping = reinterpret_cast<uintptr_t>(mapping);
  made.mapping_size = mapping_size;
  made.number = ++t.made;
  t.allocations[base] = made;
  t.pool_used += length;
  *pointer = bytes;
  return hipSuccess;
}

hipError_t Memory::release(void* pointer, MemoryKind kind) {
  if (!pointer) return hipSuccess;
  const bool host = kind == MemoryKind::Host;
  const hipError_t refused = host ? hipErrorInvalidValue : hipErrorInvalidDevicePointer;
  Table& t = table();
  {
    std::shared_lock lock(t.mutex);
    const auto found = t.allocations.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == t.allocations.end() || !found->second.owned) return refused;
    if ((found->second.kind == MemoryKind::Host) != host) return refused;
    if (const hipError_t error = host ? hipSuccess : lost(found->second.device)) return error;
  }
  wait_for_all_devices();  // outside the lock: kernels look allocations up while they finish
  std::unique_lock lock(t.mutex);
  const auto found = t.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == t.allocations.end()) return refused;
  give_back(t, found);
  return hipSuccess;
}

void Memory::release_all_of(int device) {
  Table& t = table();
  std::unique_lock lock(t.mutex);
  for (auto at = t.allocations.begin(); at != t.allocations.end();) {
    const Allocation& allocation = at->second;
    const bool gone = allocation.owned && allocation.kind != MemoryKind::Host && allocation.device == device;
    at = gone ? give_back(t, at) : std::next(at);
  }
}

hipError_t Memory::adopt(const Allocation& allocation) {
  Table& t = table();
  std::unique_lock lock(t.mutex);
  const auto after = t.allocations.lower_bound(allocation.base);
  if (after != t.allocations.end() && after->first < allocation.base + allocation.size) {
    return hipErrorHostMemoryAlreadyRegistered;
  }
  if (after != t.allocations.begin() && std::prev(after)->second.holds(allocation.base, 1)) {
    return hipErrorHostMemoryAlreadyRegistered;
  }
  Allocation adopted = allocation;
  adopted.owned = false;
  adopted.number = ++t.made;
  t.allocations[adopted.base] = adopted;
  return hipSuccess;
}

hipError_t Memory::drop(void* pointer) {
  Table& t = table();
  std::unique_lock lock(t.mutex);
  const auto found = t.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == t.allocations.end() || found->second.owned) return hipErrorHostMemoryNotRegistered;
  forget_reads(found->first);
  t.allocations.erase(found);
  return hipSuccess;
}

uintptr_t Memory::move(void* pointer, int owner) {
  Table& t = table();
  std::unique_lock lock(t.mutex);
  const auto after = t.allocations.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  if (after == t.allocations.begin()) return 0;
  Allocation& allocation = std::prev(after)->second;
  if (allocation.kind != MemoryKind::Managed || allocation.owner == owner) return 0;
  allocation.owner = owner;
  return allocation.base;
}

std::optional<Allocation> Memory::below(const void* pointer) const {
  Table& t = table();
  std::shared_lock lock(t.mutex);
  const auto after = t.allocations.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  if (after == t.allocations.begin()) return std::nullopt;
  return std::prev(after)->second;
}

std::optional<Allocation> Memory::find(const void* pointer) const {
  std::optional<Allocation> allocation = below(pointer);
  if (allocation && !allocation->holds(reinterpret_cast<uintptr_t>(pointer), 1)) return std::nullopt;
  return allocation;
}

size_t Memory::pool_used() const {
  Table& t = table();
  std::shared_lock lock(t.mutex);
  return t.pool_used;
}

MemoryUse Memory::use() const {
  Table& t = table();
  std::shared_lock lock(t.mutex);
  MemoryUse use{};
  std::vector<unsigned char> pages;
  for (const auto& [base, allocation] : t.allocations) {
    if (!allocation.owned) continue;
    ++use.allocations;
    use.bytes += allocation.size;
    pages.resize(round_up(allocation.size, PAGE) / PAGE);
    if (mincore(reinterpret_cast<void*>(base), allocation.size, pages.data()) == 0) {
      for (unsigned char page : pages) use.resident += (page & 1) * PAGE;
    }
  }
  return use;
}

}  // namespace emulator

using namespace emulator;

namespace {

// This thread's memory policy on the emulated host, whose NUMA nodes the kernel of the real one knows nothing of.
thread_local int preferred_numa_node = NO_NUMA_NODE;

// As on ROCm: memory is of the NUMA node closest to the device, unless its flags say that the thread's policy counts.
hipError_t allocate_host(void** pointer, size_t nbytes, unsigned flags, const char* call = __builtin_FUNCTION()) {
  constexpr unsigned uncached = 0x10000000, numa_user = 0x20000000, coherent = 0x40000000, noncoherent = 0x80000000;
  return api(
      [&]() -> hipError_t {
        if (((flags & coherent) != 0) + ((flags & noncoherent) != 0) + ((flags & uncached) != 0) > 1) {
          return hipErrorInvalidValue;
        }
        const bool follows = (flags & numa_user) && preferred_numa_node != NO_NUMA_NODE;
        const int numa_node = follows ? preferred_numa_node : model().numa_nodes[static_cast<size_t>(current_device)];
        return memory().allocate(pointer, nbytes, HOST, current_device, MemoryKind::Host, flags, numa_node);
      },
      call);
}

hipError_t free_host(void* pointer, const char* call = __builtin_FUNCTION()) {
  return api([&] { return memory().release(pointer, MemoryKind::Host); }, call);
}

}  // namespace

HIP_API hipError_t hipMalloc(void** pointer, size_t nbytes) {
  return api([&] { return memory().allocate(pointer, nbytes, current_device, current_device, MemoryKind::Device, 0); });
}

HIP_API hipError_t hipExtMallocWithFlags(void** pointer, size_t nbytes, unsigned flags) {
  return api([&]() -> hipError_t {
    constexpr unsigned signal = 2, contiguous = 4;  // beside 0 default, 1 fine-grained, 3 uncached
    if (flags > contiguous || (flags == signal && nbytes != 8)) return hipErrorInvalidValue;
    return memory().allocate(pointer, nbytes, current_device, current_device, MemoryKind::Device, flags);
  });
}

HIP_API hipError_t hipMallocManaged(void** pointer, size_t nbytes, unsigned flags) {
  return api([&]() -> hipError_t {
    if (flags != 1 && flags != 2) return hipErrorInvalidValue;  // attach global, attach host
    return memory().allocate(pointer, nbytes, current_device, current_device, MemoryKind::Managed, flags);
  });
}

HIP_API hipError_t hipHostMalloc(void** pointer, size_t nbytes, unsigned flags) {
  return allocate_host(pointer, nbytes, flags);
}

HIP_API hipError_t hipHostAlloc(void** pointer, size_t nbytes, unsigned flags) {
  return allocate_host(pointer, nbytes, flags);
}

HIP_API hipError_t hipFree(void* pointer) {
  return api([&] { return memory().release(pointer, MemoryKind::Device); });
}

HIP_API hipError_t hipHostFree(void* pointer) { return free_host(pointer); }
HIP_API hipError_t hipFreeHost(void* pointer) { return free_host(pointer); }

HIP_API hipError_t hipHostRegister(void* pointer, size_t nbytes, unsigned flags) {
  return api([&]() -> hipError_t {
    if (!pointer || !nbytes) return hipErrorInvalidValue;
    Allocation registered;
    registered.base = reinterpret_cast<uintptr_t>(pointer);
    registered.size = nbytes;
    registered.device = current_device;
    registered.kind = MemoryKind::Host;
    registered.flags = flags;
    return memory().adopt(registered);
  });
}

HIP_API hipError_t hipHostUnregister(void* pointer) {
  return api([&]() -> hipError_t {
    wait_for_all_devices();
    return memory().drop(pointer);
  });
}

HIP_API hipError_t hipHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned flags) {
  return api([&]() -> hipError_t {
    if (!device_pointer || flags) return hipErrorInvalidValue;
    const auto allocation = memory().find(host_pointer);
    if (!allocation || allocation->kind != MemoryKind::Host) return hipErrorInvalidValue;
    *device_pointer = host_pointer;
    return hipSuccess;
  });
}

HIP_API hipError_t hipHostGetFlags(unsigned* flags, void* pointer) {
  return api([&]() -> hipError_t {
    const auto allocation = memory().find(pointer);
    if (!flags || !allocation || allocation->kind != MemoryKind::Host) return hipErrorInvalidValue;
    *flags = allocation->flags;
    return hipSuccess;
  });
}

HIP_API hipError_t hipMemGetInfo(size_t* available, size_t* total) {
  return api([&]() -> hipError_t {
    if (!available || !total) return hipErrorInvalidValue;
    if (const hipError_t error = lost(current_device)) return error;
    *total = model().memory;
    *available = model().pool - memory().pool_used();
    return hipSuccess;
  });
}

HIP_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  return api([&]() -> hipError_t {
    if (!attributes || !pointer) return hipErrorInvalidValue;
    *attributes = {};
    const auto allocation = memory().find(pointer);
    if (!allocation) return hipErrorInvalidValue;
    void* address = const_cast<void*>(pointer);
    attributes->type = static_cast<int>(allocation->kind);
    attributes->device = allocation->device;
    attributes->devicePointer = address;
    attributes->hostPointer = allocation->kind == MemoryKind::Device ? nullptr : address;
    attributes->isManaged = allocation->kind == MemoryKind::Managed;
    attributes->allocationFlags = allocation->flags;
    return hipSuccess;
  });
}

HIP_API hipError_t hipMemGetAddressRange(void** base, size_t* size, void* pointer) {
  return api([&]() -> hipError_t {
    const auto allocation = memory().find(pointer);
    if (!allocation) return hipErrorNotFound;
    if (base) *base = reinterpret_cast<void*>(allocation->base);
    if (size) *size = allocation->size;
    return hipSuccess;
  });
}

HIP_API hipError_t hipMemAdvise(const void* pointer, size_t nbytes, int, int) {
  return api([&]() -> hipError_t {
    const auto allocation = memory().find(pointer);
    const bool fits = allocation && allocation->holds(reinterpret_cast<uintptr_t>(pointer), nbytes);
    return fits && allocation->kind == MemoryKind::Managed ? hipSuccess : hipErrorInvalidValue;
  });
}

HIP_API void transferbench_emulator_prefer_numa_node(int numa_node) { preferred_numa_node = numa_node; }

// The NUMA node that memory of this runtime lies on; NO_NUMA_NODE for what is on a device.
HIP_API int transferbench_emulator_numa_node_of(const void* pointer) {
  const auto allocation = memory().find(pointer);
  if (!allocation || allocation->owner != HOST) return NO_NUMA_NODE;
  return allocation->kind == MemoryKind::Host ? allocation->numa_node : model().numa_nodes[0];
}

// Allocations: which bytes belong to whom. Every allocation stands alone between unmapped gaps, its exact size is
// kept, and nothing is resident before it is touched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "hip_abi.hpp"
#include "model.hpp"

namespace emulator {

enum class MemoryKind { Host = hipMemoryTypeHost, Device = hipMemoryTypeDevice, Managed = hipMemoryTypeManaged };

constexpr int NO_NUMA_NODE = -1;

struct Allocation {
  uintptr_t base = 0;
  size_t size = 0;
  int owner = HOST;  // the device that homes the bytes
  int device = 0;    // the device that was current when they were asked for
  MemoryKind kind = MemoryKind::Device;
  unsigned flags = 0;
  int numa_node = NO_NUMA_NODE;  // of pinned host memory
  uint64_t number = 0;  // that of no other allocation; larger than that of any made before
  bool owned = true;  // false: registered host memory and the data of loaded modules
  uintptr_t mapping = 0;
  size_t mapping_size = 0;

  bool holds(uintptr_t at, size_t nbytes) const { return at >= base && nbytes <= size && at - base <= size - nbytes; }
};

struct MemoryUse {
  uint64_t allocations, bytes, resident;
};

class Memory {
 public:
  hipError_t allocate(void** pointer, size_t nbytes, int owner, int device, MemoryKind kind, unsigned flags,
                      int numa_node = NO_NUMA_NODE);
  hipError_t release(void* pointer, MemoryKind kind);
  hipError_t adopt(const Allocation& allocation);  // memory that something else made
  void release_all_of(int device);                 // what a lost device still holds
  hipError_t drop(void* pointer);                  // forgets adopted memory
  uintptr_t move(void* pointer, int owner);        // managed memory was prefetched; its base if it was elsewhere

  // The allocation that holds the byte at `pointer`, whatever the size of the access.
  std::optional<Allocation> find(const void* pointer) const;

  // The closest allocation that begins at or below `pointer`, for messages about accesses outside all of them.
  std::optional<Allocation> below(const void* pointer) const;

  size_t pool_used() const;
  MemoryUse use() const;
};

Memory& memory();

}  // namespace emulator

// The access hooks. Kernels are compiled with -fsanitize=thread but without its library: the functions the compiler
// calls before every load and store are these. One cached range a direction makes the common access a subtraction, a
// comparison and an addition; whatever misses it is looked up, checked and counted in the slow path.
#include <cstdio>
#include <cstring>
#include <string>

#include "block.hpp"
#include "memory.hpp"
#include "runtime.hpp"
#include "stream.hpp"

namespace emulator {
namespace {

std::string describe_owner(int owner) { return owner == HOST ? "host memory" : "device " + std::to_string(owner); }

std::string hexadecimal(uintptr_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%lx", static_cast<unsigned long>(value));
  return text;
}

}  // namespace

bool Worker::is_private(uintptr_t address) const {
  const auto stack = reinterpret_cast<uintptr_t>(thread_state.fibre->stack);
  if (address - stack < StackPool::STACK) return true;
  const Launch& launch = thread_state.block->grid->launch;
  const Module& module = *launch.module;
  if (address >= module.low && address < module.high) return true;
  if (address - shared_ < module.tls_size) return true;
  for (const auto& argument : launch.arguments) {
    if (address - reinterpret_cast<uintptr_t>(argument.data()) < argument.size()) return true;
  }
  return false;
}

AccessRange* Worker::locate(Direction direction, uintptr_t address, size_t nbytes) {
  constexpr size_t widest_access = 16;  // the hooks' fast path needs ranges at least this long
  if (is_private(address)) return nullptr;
  AccessRange* ranges = known_[direction];
  unsigned slot = 0;
  while (slot < known_count_[direction] && address - ranges[slot].base >= ranges[slot].length) ++slot;
  AccessRange& hot = thread_state.hot[direction];
  if (slot == known_count_[direction]) {
    const auto allocation = memory().find(reinterpret_cast<const void*>(address));
    const int device = thread_state.block->grid->launch.device;
    const bool reachable = allocation && (allocation->kind != MemoryKind::Device || allocation->owner == device ||
                                          runtime().devices[device]->peers[allocation->owner]);
    if (!reachable) illegal(direction, address, nbytes);
    if (slot == KNOWN) {
      slot = known_next_[direction]++ % KNOWN;
      settle(*thread_state.block);
      if (hot_slot_[direction] == static_cast<int>(slot)) {
        hot_slot_[direction] = -1;
        hot = nothing_cached;
      }
    } else {
      ++known_count_[direction];
    }
    const bool marked = direction == READ && reads_are_looked_up();
    uint8_t* marks = marked ? thread_state.block->grid->marks_of(*allocation) : &not_looked_up_;
    ranges[slot] = {allocation->base, allocation->size, 0, allocation->owner, marks, marked ? LINE_SHIFT : NOT_MARKED};
  }
  AccessRange& range = ranges[slot];
  if (nbytes > range.length || address - range.base > range.length - nbytes) illegal(direction, address, nbytes);
  if (range.length < widest_access) return &range;
  if (hot_slot_[direction] >= 0) ranges[hot_slot_[direction]].bytes += hot.bytes;
  if (direction == WRITE) stored_ += hot.bytes;
  hot = range;
  hot.bytes = 0;
  hot_slot_[direction] = static_cast<int>(slot);
  return &hot;
}

void Worker::illegal(Direction direction, uintptr_t address, size_t nbytes) {
  Grid& grid = *thread_state.block->grid;
  const int device = grid.launch.device;
  const auto near = memory().below(reinterpret_cast<const void*>(address));
  std::string why = "no allocation is there";
  if (near && near->holds(address, nbytes)) {
    why = "it belongs to device " + std::to_string(near->owner) + ", and peer access from device " +
          std::to_string(device) + " is not enabled";
  } else if (near && address - near->base < near->size + (64 << 10)) {
    const uintptr_t past = address + nbytes - (near->base + near->size);
    why = "it ends " + std::to_string(past) + " bytes past an allocation of " + std::to_string(near->size) +
          " bytes on " + describe_owner(near->owner);
  }
  hipError_t none = hipSuccess;
  if (grid.error.compare_exchange_strong(none, hipErrorIllegalAddress)) {
    report_fault("kernel " + std::string(grid.launch.kernel->name) + " on device " + std::to_string(device) + ": " +
                 (direction == READ ? "load" : "store") + " of " + std::to_string(nbytes) + " bytes at " +
                 hexadecimal(address) + " is illegal: " + why);
  }
  abandon();
}

namespace {

void count(Direction direction, AccessRange& range, uintptr_t address, size_t nbytes) {
  thread_state.worker->count(direction, range, nbytes);
  if (direction == WRITE) return;
  const size_t offset = address - range.base, last = (offset + nbytes - 1) >> range.shift;
  for (size_t line = offset >> range.shift; line <= last; ++line) range.marks[line] = 1;
}

__attribute__((noinline)) void slow_access(Direction direction, const void* pointer, size_t nbytes) {
  if (!thread_state.fibre) return;  // a module's own start-up code
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  AccessRange* range = thread_state.worker->locate(direction, address, nbytes);
  if (range && nbytes) count(direction, *range, address, nbytes);
}

// A block's threads run one after another, each through all its rows: the line beside this one is what the threads
// after it will need, long before any processor would guess.
inline void prefetch_beside(const void* pointer, Direction direction) {
  __builtin_prefetch(static_cast<const char*>(pointer) + 64, direction == WRITE);
}

// Accesses the compiler knows to be aligned: allocations begin at page boundaries, so one comparison does.
template <Direction direction, size_t nbytes>
inline void access(const void* pointer) {
  AccessRange& hot = thread_state.hot[direction];
  const uintptr_t offset = reinterpret_cast<uintptr_t>(pointer) - hot.base;
  if (__builtin_expect(offset <= hot.length - nbytes, 1)) {
    hot.bytes += nbytes;
    if (direction == READ) hot.marks[offset >> hot.shift] = 1;
    prefetch_beside(pointer, direction);
  } else {
    slow_access(direction, pointer, nbytes);
  }
}

inline void looks_again(Block& block) {
  std::atomic<bool>& polls = block.grid->polls;
  if (!polls.load(std::memory_order_relaxed)) polls.store(true, std::memory_order_relaxed);
}

// A polling load of `range`, null for memory private to the block; returns what it sees. A thread that has looked at
// all its words and found no news waits for some while the others run. The first load of an address is counted like
// any other; later ones are not, because how often a thread polls is chance.
inline uint64_t poll_in(AccessRange* range, const void* pointer, size_t nbytes, bool counted) {
  Fibre& self = *thread_state.fibre;
  Block& block = *thread_state.block;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const bool from_host = range && range->owner == HOST;
  uint64_t value = peek(pointer, nbytes);
  self.polled = true;
  Fibre::Seen* seen = self.remembered(address);
  const bool waits = seen && seen->value == value && seen->news == self.news;
  if (seen) looks_again(block);
  if (!seen) {
    // What is private to the block lies elsewhere while another block of the worker runs: it cannot be watched.
    seen = self.remember(address, value, range ? static_cast<unsigned>(nbytes) : 0);
    if (counted && range && !from_host) count(READ, *range, address, nbytes);
    ++self.news;
    prefetch_beside(pointer, READ);
  }
  // Polling many words in turn looks like a copy: from time to time the others run then, too.
  if (waits) {
    block.wait_for_news();
    ++self.news;  // even if there is none: it looks at all its words before it waits again
    value = peek(pointer, nbytes);
  } else if (++self.polls % Fibre::POLLS_BEFORE_YIELD == 0) {
    block.yield();
    value = peek(pointer, nbytes);
  }
  self.news += value != seen->value;
  seen->value = value;
  seen->news = self.news;
  if (from_host) {
    // Waiting for the host takes until the host's clock of that moment, and moves nothing worth a link's time.
    block.polled_host = true;
    block.host_seen = host_clock();
  }
  return value;
}

__attribute__((noinline)) uint64_t slow_poll(const void* pointer, size_t nbytes, bool counted) {
  if (!thread_state.fibre) return peek(pointer, nbytes);
  AccessRange* range = thread_state.worker->locate(READ, reinterpret_cast<uintptr_t>(pointer), nbytes);
  return poll_in(range, pointer, nbytes, counted);
}

// A volatile or atomic load.
template <size_t nbytes>
inline uint64_t poll(const void* pointer) {
  AccessRange& hot = thread_state.hot[READ];
  if (__builtin_expect(reinterpret_cast<uintptr_t>(pointer) - hot.base > hot.length - nbytes, 0)) {
    return slow_poll(pointer, nbytes, true);
  }
  return poll_in(&hot, pointer, nbytes, true);
}

// An atomic change that left the word as it was: `while (atomicExch(lock, 1))` and `atomicAdd(counter, 0)` wait so.
void changed_nothing(const void* pointer, size_t nbytes) {
  Fibre* self = thread_state.fibre;
  if (!self) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const uint64_t value = peek(pointer, nbytes);
  self->polled = true;
  Fibre::Seen* seen = self->remembered(address);
  if (!seen || seen->value != value) {
    if (!seen) seen = self->remember(address, value, 0);
    seen->value = value;
    return;
  }
  thread_state.worker->not_progress(nbytes);
  looks_again(*thread_state.block);
  thread_state.block->yield();  // watches nothing: it may have been work, such as a maximum over many values
}

}  // namespace
}  // namespace emulator

using namespace emulator;

#define ACCESS_HOOKS(N)                                                                                   \
  HIP_API void __tsan_read##N(void* p) { access<READ, N>(p); }                                            \
  HIP_API void __tsan_write##N(void* p) { access<WRITE, N>(p); }                                          \
  HIP_API void __tsan_volatile_read##N(void* p) { poll<N>(p); }                                           \
  HIP_API void __tsan_volatile_write##N(void* p) { access<WRITE, N>(p); }                                 \
  HIP_API void __tsan_unaligned_volatile_read##N(void* p) { slow_poll(p, N, true); }                      \
  HIP_API void __tsan_unaligned_volatile_write##N(void* p) { slow_access(WRITE, p, N); }                  \
  HIP_API void __tsan_unaligned_read##N(void* p) { slow_access(READ, p, N); }                             \
  HIP_API void __tsan_unaligned_write##N(void* p) { slow_access(WRITE, p, N); }
ACCESS_HOOKS(1)
ACCESS_HOOKS(2)
ACCESS_HOOKS(4)
ACCESS_HOOKS(8)
ACCESS_HOOKS(16)

HIP_API void __tsan_read_range(void* p, size_t nbytes) { slow_access(READ, p, nbytes); }
HIP_API void __tsan_write_range(void* p, size_t nbytes) { slow_access(WRITE, p, nbytes); }
HIP_API void __tsan_vptr_read(void** p) { access<READ, 8>(p); }
HIP_API void __tsan_vptr_update(void** p, void*) { access<WRITE, 8>(p); }
HIP_API void __tsan_init() {}
HIP_API void __tsan_func_entry(void*) {}
HIP_API void __tsan_func_exit() {}
HIP_API void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HIP_API void __tsan_atomic_signal_fence(int) {}

// Atomics are carried out here, always at the strongest order but for stores: a weaker one is several times faster.
template <class T>
T changed(T* p, T before, T after) {
  if (before == after) changed_nothing(p, sizeof(T));
  return before;
}

template <class T>
bool compare_exchange(T* p, T* expected, T value) {
  if (thread_state.fibre) thread_state.worker->locate(WRITE, reinterpret_cast<uintptr_t>(p), sizeof(T));
  if (__atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    access<WRITE, sizeof(T)>(p);
    changed(p, *expected, value);
    return true;
  }
  slow_poll(p, sizeof(T), false);  // how often it fails is chance
  return false;
}

#define ATOMIC_CHANGE(BITS, T, NAME, AFTER)                                \
  HIP_API T __tsan_atomic##BITS##_##NAME(T* p, T value, int) {             \
    access<WRITE, sizeof(T)>(p);                                           \
    const T before = __atomic_##NAME(p, value, __ATOMIC_SEQ_CST);          \
    return changed<T>(p, before, static_cast<T>(AFTER));                   \
  }
#define ATOMIC_HOOKS(BITS, T)                                                                          \
  HIP_API T __tsan_atomic##BITS##_load(T* p, int) {                                                    \
    return static_cast<T>(poll<sizeof(T)>(p));                                                         \
  }                                                                                                    \
  HIP_API void __tsan_atomic##BITS##_store(T* p, T value, int order) {                                 \
    access<WRITE, sizeof(T)>(p);                                                                       \
    if (order == __ATOMIC_SEQ_CST) __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                       \
    else __atomic_store_n(p, value, __ATOMIC_RELEASE);                                                 \
  }                                                                                                    \
  HIP_API T __tsan_atomic##BITS##_exchange(T* p, T value, int) {                                       \
    access<WRITE, sizeof(T)>(p);                                                                       \
    return changed<T>(p, __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST), value);                      \
  }                                                                                                    \
  ATOMIC_CHANGE(BITS, T, fetch_add, before + value)                                                    \
  ATOMIC_CHANGE(BITS, T, fetch_sub, before - value)                                                    \
  ATOMIC_CHANGE(BITS, T, fetch_and, before & value)                                                    \
  ATOMIC_CHANGE(BITS, T, fetch_or, before | value)                                                     \
  ATOMIC_CHANGE(BITS, T, fetch_xor, before ^ value)                                                    \
  ATOMIC_CHANGE(BITS, T, fetch_nand, ~(before & value))                                                \
  HIP_API int __tsan_atomic##BITS##_compare_exchange_strong(T* p, T* expected, T value, int, int) {    \
    return compare_exchange(p, expected, value);                                                       \
  }                                                                                                    \
  HIP_API int __tsan_atomic##BITS##_compare_exchange_weak(T* p, T* expected, T value, int, int) {      \
    return compare_exchange(p, expected, value);                                                       \
  }                                                                                                    \
  HIP_API T __tsan_atomic##BITS##_compare_exchange_val(T* p, T expected, T value, int, int) {          \
    compare_exchange(p, &expected, value);                                                             \
    return expected;                                                                                   \
  }
ATOMIC_HOOKS(8, uint8_t)
ATOMIC_HOOKS(16, uint16_t)
ATOMIC_HOOKS(32, uint32_t)
ATOMIC_HOOKS(64, uint64_t)

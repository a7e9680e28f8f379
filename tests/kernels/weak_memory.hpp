// What kernels need of a device, for a machine on the CPU that orders memory no better than it must.
// The machine is in weak_memory.cpp; portability.h and a kernel source come after this header.
#pragma once
#define TRANSFERBENCH_EMULATOR 1
#define __HIP__ 1
#define __global__
#define __device__
#define __launch_bounds__(threads)
// All lanes run in one OS thread: what a block shares lies in a section that the machine swaps with the blocks.
#define __shared__ static __attribute__((section("block_shared")))

#define __HIP_MEMORY_SCOPE_SYSTEM 5
#define __hip_atomic_load(word, order, scope) weak::load(word)
#define __hip_atomic_store(word, value, order, scope) weak::store(word, value, (order) == __ATOMIC_RELEASE)

namespace weak {

typedef unsigned long long u64;

struct Index {
  unsigned x;
};

enum Model { STRONG, AMD, NVIDIA };

struct Settings {
  Model model;
  unsigned lanes_a_wave;
  u64 seed;
  u64 limit;             // ticks after which a run that does not end by itself is given up
  const u64* lost_word;  // of the stores to this word
  u64 lost_store;        // the one that never arrives; counted from 1, 0 for none
};

struct Launch {
  unsigned blocks, threads;
  void (*kernel)(void* arguments);
  void* arguments;
};

// Runs the launches at the same time. The ticks it took; 0 if they did not end.
u64 run(const Settings& settings, const Launch* launches, unsigned count);

u64 load(const u64* word);
void store(u64* word, u64 value, bool releases);

}  // namespace weak

extern weak::Index threadIdx, blockIdx, gridDim;
void __syncthreads();
void __threadfence_system();
bool __any(bool predicate);
weak::u64 atomicAdd(weak::u64* word, weak::u64 value);
weak::u64 atomicMin(weak::u64* word, weak::u64 value);
weak::u64 atomicMax(weak::u64* word, weak::u64 value);
weak::u64 atomicOr(weak::u64* word, weak::u64 value);

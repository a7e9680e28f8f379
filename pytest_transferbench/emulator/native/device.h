// HIP's device vocabulary on the host. Included before every source that the emulated hiprtc compiles.
//
// Kernels are compiled with -fsanitize=thread, so every load and store calls a hook of the runtime; nothing here may
// touch memory that a kernel does not touch itself. What a thread is and where it stands comes from functions, in
// registers.
#pragma once
#define TRANSFERBENCH_EMULATOR 1
#define __HIP__ 1
#define __HIPCC__ 1
#define __HIPCC_RTC__ 1
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DEVICE_COMPILE__ 1
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <hip/hip_fp16.h>
#include <hip/hip_version.h>

// The compiler driver replaces these two words when it has found the kernels and the block-wide variables.
#define __global__ __transferbench_kernel__
#define __shared__ __transferbench_shared__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

// Waits and sleeps of AMD's assembler mean nothing here; a kernel that writes them keeps assembling.
asm(".macro s_waitcnt arguments:vararg\n.endm\n"
    ".macro s_sleep arguments:vararg\n.endm\n"
    ".macro s_nop arguments:vararg\n.endm\n"
    ".macro buffer_wbl2 arguments:vararg\n.endm\n"
    ".macro buffer_inv arguments:vararg\n.endm\n");

struct dim3 {
  unsigned x, y, z;
};
#define TRANSFERBENCH_PURE __attribute__((const, nothrow))
extern "C" {
TRANSFERBENCH_PURE dim3 transferbench_emulator_thread_index(void);
TRANSFERBENCH_PURE dim3 transferbench_emulator_block_index(void);
TRANSFERBENCH_PURE dim3 transferbench_emulator_block_dim(void);
TRANSFERBENCH_PURE dim3 transferbench_emulator_grid_dim(void);
TRANSFERBENCH_PURE unsigned transferbench_emulator_thread(void);
unsigned transferbench_emulator_barrier(int predicate);
uint64_t transferbench_emulator_ballot(int predicate, int line);
uint64_t transferbench_emulator_lane(uint64_t value, int from, int line);
void transferbench_emulator_pause(void);
unsigned long long transferbench_emulator_ticks(void);
unsigned long long transferbench_emulator_running_ticks(void);
unsigned long long transferbench_emulator_real_ticks(void);
void transferbench_emulator_stamp(unsigned long long* where, int stop);
void transferbench_emulator_lap(unsigned long long* where);
void transferbench_emulator_drain(int writes_back);
void* transferbench_emulator_memcpy(void* destination, const void* source, size_t nbytes);
void* transferbench_emulator_memset(void* destination, int value, size_t nbytes);
}
#define threadIdx (transferbench_emulator_thread_index())
#define blockIdx (transferbench_emulator_block_index())
#define blockDim (transferbench_emulator_block_dim())
#define gridDim (transferbench_emulator_grid_dim())
#define warpSize TRANSFERBENCH_WAVEFRONT  // of the node's architecture, from the compiler driver
#define memcpy transferbench_emulator_memcpy
#define memset transferbench_emulator_memset

typedef unsigned char uchar;

#define TRANSFERBENCH_VECTORS(T, N)                                              \
  struct alignas(sizeof(T)) N##1 {                                               \
    T x;                                                                         \
  };                                                                             \
  struct alignas(2 * sizeof(T)) N##2 {                                           \
    T x, y;                                                                      \
  };                                                                             \
  struct N##3 {                                                                  \
    T x, y, z;                                                                   \
  };                                                                             \
  struct alignas(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) N##4 {                      \
    T x, y, z, w;                                                                \
  };                                                                             \
  static inline N##1 make_##N##1(T x) { return {x}; }                            \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                    \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }            \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TRANSFERBENCH_VECTORS(signed char, char)
TRANSFERBENCH_VECTORS(unsigned char, uchar)
TRANSFERBENCH_VECTORS(short, short)
TRANSFERBENCH_VECTORS(unsigned short, ushort)
TRANSFERBENCH_VECTORS(int, int)
TRANSFERBENCH_VECTORS(unsigned, uint)
TRANSFERBENCH_VECTORS(long, long)
TRANSFERBENCH_VECTORS(unsigned long, ulong)
TRANSFERBENCH_VECTORS(long long, longlong)
TRANSFERBENCH_VECTORS(unsigned long long, ulonglong)
TRANSFERBENCH_VECTORS(float, float)
TRANSFERBENCH_VECTORS(double, double)

// ---- waiting for others ----
#define __syncthreads() ((void)transferbench_emulator_barrier(0))
#define __syncthreads_count(p) ((int)transferbench_emulator_barrier((p) != 0))
#define __syncthreads_or(p) ((int)(transferbench_emulator_barrier((p) != 0) != 0))
#define __syncthreads_and(p) ((int)(transferbench_emulator_barrier((p) == 0) == 0))
#define __builtin_amdgcn_s_barrier() __syncthreads()
#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_block() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_system() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __builtin_amdgcn_fence(order, scope) __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __builtin_amdgcn_s_sleep(n) transferbench_emulator_pause()
#define __builtin_amdgcn_s_waitcnt(n) ((void)0)

// ---- clocks ----
static inline long long wall_clock64() { return (long long)transferbench_emulator_running_ticks(); }
static inline long long clock64() { return wall_clock64() * 21; }
static inline long long clock() { return clock64(); }
#define __builtin_readcyclecounter() ((unsigned long long)clock64())
#define __builtin_readsteadycounter() transferbench_emulator_running_ticks()

// ---- votes and exchanges of a wavefront ----
static inline unsigned __lane_id() { return transferbench_emulator_thread() & (warpSize - 1); }
static inline unsigned long long __ballot(int predicate, int line = __builtin_LINE()) {
  return transferbench_emulator_ballot(predicate != 0, line);
}
static inline int __any(int predicate, int line = __builtin_LINE()) {
  return transferbench_emulator_ballot(predicate != 0, line) != 0;
}
static inline int __all(int predicate, int line = __builtin_LINE()) {
  return transferbench_emulator_ballot(predicate == 0, line) == 0;
}
static inline unsigned long long __activemask(int line = __builtin_LINE()) {
  return transferbench_emulator_ballot(1, line);
}
template <class T>
static inline T transferbench_exchange(T value, int from, int line) {
  static_assert(sizeof(T) <= 8, "values of at most 8 bytes can be exchanged between lanes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = transferbench_emulator_lane(bits, from, line);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
static inline T __shfl(T value, int lane, int width = warpSize, int line = __builtin_LINE()) {
  const int self = (int)__lane_id();
  return transferbench_exchange(value, (self & ~(width - 1)) + (lane & (width - 1)), line);
}
template <class T>
static inline T __shfl_up(T value, unsigned delta, int width = warpSize, int line = __builtin_LINE()) {
  const int self = (int)__lane_id(), from = self - (int)delta;
  return transferbench_exchange(value, from < (self & ~(width - 1)) ? self : from, line);
}
template <class T>
static inline T __shfl_down(T value, unsigned delta, int width = warpSize, int line = __builtin_LINE()) {
  const int self = (int)__lane_id(), from = self + (int)delta;
  return transferbench_exchange(value, from > (self | (width - 1)) ? self : from, line);
}
template <class T>
static inline T __shfl_xor(T value, int mask, int width = warpSize, int line = __builtin_LINE()) {
  const int self = (int)__lane_id(), from = self ^ mask;
  return transferbench_exchange(value, from > (self | (width - 1)) ? self : from, line);
}

// ---- atomics ----
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#define __hip_atomic_load(p, order, scope) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define __hip_atomic_store(p, v, order, scope) __atomic_store_n(p, v, order)
#define __hip_atomic_exchange(p, v, order, scope) atomicExch(p, v)
#define __hip_atomic_fetch_add(p, v, order, scope) atomicAdd(p, v)
#define __hip_atomic_fetch_and(p, v, order, scope) atomicAnd(p, v)
#define __hip_atomic_fetch_or(p, v, order, scope) atomicOr(p, v)
#define __hip_atomic_fetch_xor(p, v, order, scope) atomicXor(p, v)
#define __hip_atomic_fetch_max(p, v, order, scope) atomicMax(p, v)
#define __hip_atomic_fetch_min(p, v, order, scope) atomicMin(p, v)
#define __hip_atomic_compare_exchange_strong(p, expected, v, success, failure, scope) \
  __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define __hip_atomic_compare_exchange_weak __hip_atomic_compare_exchange_strong

// HIP lets the value be of another type than the word: `atomicAdd(counter, 1)` with a 64-bit counter.
template <class T>
struct transferbench_same {
  typedef T type;
};
#define TRANSFERBENCH_VALUE(T) typename transferbench_same<T>::type
template <unsigned long size>
struct transferbench_word;
template <>
struct transferbench_word<1> {
  typedef unsigned char type;
};
template <>
struct transferbench_word<2> {
  typedef unsigned short type;
};
template <>
struct transferbench_word<4> {
  typedef unsigned type;
};
template <>
struct transferbench_word<8> {
  typedef unsigned long long type;
};

// Replaces *p by change(*p); returns what was there. Floating-point words travel as integers of their size.
template <class T, class Change>
static inline T transferbench_update(T* p, Change change) {
  typedef typename transferbench_word<sizeof(T)>::type word;
  word* at = (word*)p;
  word before = *at, after;  // an ordinary load: an atomic one would look like polling
  T old;
  do {
    __builtin_memcpy(&old, &before, sizeof old);
    const T made = change(old);
    __builtin_memcpy(&after, &made, sizeof made);
  } while (!__atomic_compare_exchange_n(at, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
template <class T>
static inline T atomicAdd(T* p, TRANSFERBENCH_VALUE(T) v) {
  return transferbench_update(p, [v](T old) { return (T)(old + v); });
}
#define TRANSFERBENCH_INTEGER_ADD(T) \
  static inline T atomicAdd(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
TRANSFERBENCH_INTEGER_ADD(int)
TRANSFERBENCH_INTEGER_ADD(unsigned)
TRANSFERBENCH_INTEGER_ADD(long)
TRANSFERBENCH_INTEGER_ADD(unsigned long)
TRANSFERBENCH_INTEGER_ADD(unsigned long long)
template <class T>
static inline T atomicSub(T* p, TRANSFERBENCH_VALUE(T) v) {
  return transferbench_update(p, [v](T old) { return (T)(old - v); });
}
template <class T>
static inline T atomicMin(T* p, TRANSFERBENCH_VALUE(T) v) {
  return transferbench_update(p, [v](T old) { return old < v ? old : v; });
}
template <class T>
static inline T atomicMax(T* p, TRANSFERBENCH_VALUE(T) v) {
  return transferbench_update(p, [v](T old) { return old > v ? old : v; });
}
template <class T>
static inline T atomicAnd(T* p, TRANSFERBENCH_VALUE(T) v) {
  return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
static inline T atomicOr(T* p, TRANSFERBENCH_VALUE(T) v) {
  return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
static inline T atomicXor(T* p, TRANSFERBENCH_VALUE(T) v) {
  return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
static inline T atomicExch(T* p, TRANSFERBENCH_VALUE(T) v) {
  return transferbench_update(p, [v](T) { return v; });
}
template <class T>
static inline T atomicCAS(T* p, TRANSFERBENCH_VALUE(T) expected, TRANSFERBENCH_VALUE(T) v) {
  __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
#define atomicAdd_system atomicAdd
#define atomicOr_system atomicOr
#define atomicExch_system atomicExch
#define atomicCAS_system atomicCAS

// ---- single instructions ----
#define __builtin_nontemporal_load(p) (*(p))
#define __builtin_nontemporal_store(v, p) (*(p) = (v))
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __mul24(int a, int b) { return a * b; }
static inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
static inline int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
static inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
static inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
static inline long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }
static inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }
#define TRANSFERBENCH_MIN_MAX(T)                              \
  static inline T min(T a, T b) { return b < a ? b : a; }     \
  static inline T max(T a, T b) { return a < b ? b : a; }
TRANSFERBENCH_MIN_MAX(int)
TRANSFERBENCH_MIN_MAX(unsigned)
TRANSFERBENCH_MIN_MAX(long)
TRANSFERBENCH_MIN_MAX(unsigned long)
TRANSFERBENCH_MIN_MAX(long long)
TRANSFERBENCH_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static inline double rsqrt(double v) { return 1.0 / sqrt(v); }

// ---- the table of kernels ----
// One entry a kernel: its parameters' sizes and alignments, and a typed call, so that a launch needs no signature.
namespace transferbench {
struct entry {
  const char* name;
  void (*function)();
  void (*invoke)(void (*)(), void**);
  const unsigned *sizes, *alignments;
};
template <unsigned...>
struct indices {};
template <unsigned n, unsigned... rest>
struct count : count<n - 1, n - 1, rest...> {};
template <unsigned... all>
struct count<0, all...> {
  typedef indices<all...> type;
};
template <class T>
struct plain {
  typedef T type;
};
template <class T>
struct plain<const T> {
  typedef T type;
};
template <class... A>
struct signature {
  static constexpr unsigned sizes[] = {sizeof(A)..., 0}, alignments[] = {alignof(A)..., 0};
  template <unsigned... i>
  __attribute__((no_sanitize("thread"))) static void call(void (*function)(), void** arguments, indices<i...>) {
    reinterpret_cast<void (*)(A...)>(function)(*static_cast<typename plain<A>::type*>(arguments[i])...);
  }
  __attribute__((no_sanitize("thread"))) static void invoke(void (*function)(), void** arguments) {
    call(function, arguments, typename count<sizeof...(A)>::type());
  }
};
template <class... A>
entry describe(const char* name, void (*function)(A...)) {
  return {name, reinterpret_cast<void (*)()>(function), &signature<A...>::invoke, signature<A...>::sizes,
          signature<A...>::alignments};
}
}  // namespace transferbench

// What clang alone does not know of HIP, so that the kernel sources compile for AMD GPUs where no ROCm is installed.
// Only what they use, and in the terms that ROCm's own headers put it in: the code made of it must be the same.
//
// Functions defined from here to the end of portability.h have no lines of their own: what the compiler makes of them
// then counts as the line that calls them, and tells what it is for.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device, nodebug))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))

// threadIdx.x and its like are properties: reading one calls the builtin behind it.
struct prelude_thread {
  __declspec(property(get = read)) unsigned x;
  static __device__ __forceinline__ unsigned read() { return __builtin_amdgcn_workitem_id_x(); }
};
struct prelude_block {
  __declspec(property(get = read)) unsigned x;
  static __device__ __forceinline__ unsigned read() { return __builtin_amdgcn_workgroup_id_x(); }
};
struct prelude_grid {
  __declspec(property(get = read)) unsigned x;
  static __device__ __forceinline__ unsigned read() {  // the number of blocks is the first of the hidden arguments
    return *(const __attribute__((address_space(4))) unsigned*)__builtin_amdgcn_implicitarg_ptr();
  }
};
#define threadIdx prelude_thread {}
#define blockIdx prelude_block {}
#define gridDim prelude_grid {}

__device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ __forceinline__ void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
__device__ __forceinline__ unsigned long long wall_clock64() { return __builtin_readsteadycounter(); }

#define PRELUDE_ATOMIC(name, builtin)                                                                 \
  __device__ __forceinline__ unsigned long long name(unsigned long long* to, unsigned long long by) { \
    return builtin(to, by, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                               \
  }
PRELUDE_ATOMIC(atomicAdd, __hip_atomic_fetch_add)
PRELUDE_ATOMIC(atomicMin, __hip_atomic_fetch_min)
PRELUDE_ATOMIC(atomicMax, __hip_atomic_fetch_max)
PRELUDE_ATOMIC(atomicOr, __hip_atomic_fetch_or)

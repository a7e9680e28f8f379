// What HIP and CUDA spell differently, and what the emulated node must see. Prepended to every kernel source.
// Nothing is included: the run-time compilers have no standard headers, and integer names differ between them.
typedef unsigned int tb_u32;
typedef unsigned long long tb_u64;
struct alignas(16) tb_v4 { tb_u32 x, y, z, w; };

#define TB_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

#if defined(TRANSFERBENCH_EMULATOR)
#define TB_UNROLLED _Pragma("GCC unroll 32")
#else
#define TB_UNROLLED _Pragma("unroll")
#endif

// Says of an address that is kept in memory that it leads to global memory; of a kernel's arguments every compiler
// knows. Without it AMD's uses flat accesses, which first find out where they go and wait for each other.
#if !defined(TRANSFERBENCH_EMULATOR) && (defined(__HIP__) || defined(__HIPCC__))
#define TB_GLOBAL __attribute__((address_space(1)))
#else
#define TB_GLOBAL
#endif

#if defined(TRANSFERBENCH_EMULATOR)
// On the emulated node stamps are written by the runtime when the grid has ended, on its virtual clock.
extern "C" void transferbench_emulator_stamp(tb_u64* where, int stop);
extern "C" tb_u64 transferbench_emulator_real_ticks(void);
extern "C" void transferbench_emulator_pause(void);
__device__ inline void tb_stamp(tb_u64* where, int stop) { transferbench_emulator_stamp(where, stop); }
__device__ inline tb_u64 tb_deadline_clock() { return transferbench_emulator_real_ticks(); }
__device__ inline void tb_pause() { transferbench_emulator_pause(); }
// The stop stamp is written when the whole grid has ended, so there is nothing to wait for; and a thread that never
// waits costs the emulator a call, one that does a switch of stacks.
__device__ inline void tb_block_is_done() {}

#elif defined(__HIP__) || defined(__HIPCC__)
// 100 MHz on Instinct, the same on all XCCs up to a skew of some ticks; the rate comes from the runtime.
__device__ inline tb_u64 tb_clock() { return wall_clock64(); }
__device__ inline void tb_stamp(tb_u64* where, int) { *where = tb_clock(); }
__device__ inline tb_u64 tb_deadline_clock() { return tb_clock(); }
__device__ inline void tb_pause() { __builtin_amdgcn_s_sleep(8); }
// A wave's stores may still be on their way when it has passed the barrier, and another wave's fence does not wait for
// them: each wave drains its own first. Only gfx9 counts stores in vmcnt; elsewhere a release fence is the drain.
__device__ inline void tb_block_is_done() {
#if defined(__GFX9__)
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#else
  __threadfence();
#endif
  __syncthreads();
}

#else
// Nanoseconds; steps by 32 ns on Hopper. The memory clobber keeps the read behind the fence before it.
__device__ inline tb_u64 tb_clock() {
  tb_u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}
__device__ inline void tb_stamp(tb_u64* where, int) { *where = tb_clock(); }
__device__ inline tb_u64 tb_deadline_clock() { return tb_clock(); }
__device__ inline void tb_pause() { __nanosleep(100); }
__device__ inline void tb_block_is_done() { __syncthreads(); }
#endif

// A load that is never served from a register or a stale line: for words that another device or the host writes.
__device__ inline tb_u64 tb_load_system(const tb_u64* word) {
#if defined(__HIP__) || defined(__HIPCC__)
  return __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  return *(const volatile tb_u64*)word;
#endif
}

// The accelerator die a block runs on; 0 where a device has only one.
__device__ inline tb_u32 tb_xcc() {
#if defined(__gfx942__) || defined(__gfx950__)
  tb_u32 xcc;
  asm volatile("s_getreg_b32 %0, hwreg(HW_REG_XCC_ID)" : "=s"(xcc));
  return xcc & 15;
#else
  return 0;
#endif
}

// Called by all threads at the end of a timed kernel; thread 0 of each block then holds the block's stop stamp.
// The barrier makes every store of the block happen before thread 0's fence; the fence, at system scope, returns
// when they are visible to the peer. Without it the stamp is taken when the stores were issued, and a push looks
// faster than its link (TransferBench issues 70 and 328).
__device__ inline void tb_stop(tb_u64* stamps) {
  tb_block_is_done();
  if (threadIdx.x == 0) {
    __threadfence_system();
    tb_stamp(stamps + 2 * blockIdx.x + 1, 1);
  }
}

__device__ inline void tb_start(tb_u64* stamps) {
  if (threadIdx.x == 0) tb_stamp(stamps + 2 * blockIdx.x, 0);
}

// What word i of a buffer holds is tb_hash(i) ^ key. The hash is "lowbias32" of the public-domain hash prospector:
// all 32 bits depend on the address, and distinct addresses below 2^32 give distinct words. Keys differ by slice and
// by nonce, so a wrong word tells where it came from: word ^ tb_hash(i) is the key it was made with.
__device__ inline tb_u32 tb_hash(tb_u64 index) {
  tb_u32 x = (tb_u32)index ^ (tb_u32)(index >> 32) * 0x9E3779B1u;
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  x ^= x >> 16;
  return x;
}

__device__ inline tb_u32 tb_key(tb_u64 slice, tb_u32 nonce) { return tb_hash((tb_u32)slice + nonce * 0x9E3779B1u); }

// The words of a buffer as vectors: `head` words before the first aligned one, `tail_at` the first word behind them.
struct tb_span {
  tb_u64 head, vectors, tail_at, words;
};

__device__ inline tb_span tb_split(const void* pointer, tb_u64 nbytes) {
  tb_span span;
  span.words = nbytes / 4;
  span.head = ((16 - ((tb_u64)pointer & 15)) & 15) / 4;
  if (span.head > span.words) span.head = span.words;
  span.vectors = (span.words - span.head) / 4;
  span.tail_at = span.head + span.vectors * 4;
  return span;
}

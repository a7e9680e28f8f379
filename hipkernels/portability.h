// What HIP and CUDA spell differently, and what the emulated node must see. Prepended to every kernel source.
// Nothing is included: the run-time compilers have no standard headers, and integer names differ between them.
typedef unsigned int tb_u32;
typedef unsigned long long tb_u64;

// tb_v4: 16 bytes. For clang a vector: it copies structs as bytes, and joins a copy from memory to one into memory
// across the registers between them, so that a copy kernel waits for every load before the next.
//
// TB_KERNEL: takes the threads of a block, and how many blocks a multiprocessor must have room for. Where it is not
// told, NVIDIA's compiler saves registers for as many as possible, and has loads wait for each other to share them.
//
// TB_GLOBAL, TB_IS_GLOBAL: say of an address kept in memory that it leads to global memory; of a kernel's arguments
// every compiler knows. Without them accesses are flat (AMD) or generic (NVIDIA): they first find out where they go,
// and AMD's wait for each other.
//
// TB_SETTLE: uses of what was loaded stay behind it, and so behind all loads before it: these are under way together.
// AMD's compiler otherwise moves a use to its load, and waits there before the next load.
#if defined(TRANSFERBENCH_EMULATOR)
struct alignas(16) tb_v4 { tb_u32 x, y, z, w; };
#define TB_KERNEL(threads, ...) extern "C" __global__ void
#define TB_UNROLLED _Pragma("GCC unroll 32")
#define TB_POLLS_A_LOOK 8  // a look at the clock costs next to nothing there, a poll that sees nothing new very much
#define TB_GLOBAL
#define TB_IS_GLOBAL(pointer) (void)0
#define TB_SETTLE(loaded) (void)0
#elif defined(__HIP__) || defined(__HIPCC__)
typedef tb_u32 tb_v4 __attribute__((ext_vector_type(4)));
#define TB_KERNEL(threads, ...) extern "C" __global__ void __launch_bounds__(threads)
#define TB_UNROLLED _Pragma("unroll")
#define TB_POLLS_A_LOOK 256
#define TB_GLOBAL __attribute__((address_space(1)))
#define TB_IS_GLOBAL(pointer) (void)0
#define TB_SETTLE(loaded) asm volatile("" : "+v"(loaded))
#else
struct alignas(16) tb_v4 { tb_u32 x, y, z, w; };
#define TB_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define TB_UNROLLED _Pragma("unroll")
#define TB_POLLS_A_LOOK 256
#define TB_GLOBAL
#define TB_IS_GLOBAL(pointer) __builtin_assume(__isGlobal(pointer))
#define TB_SETTLE(loaded) (void)0
#endif

#if defined(TRANSFERBENCH_EMULATOR)
// On the emulated node stamps are written by the runtime when the grid has ended, on its virtual clock.
extern "C" void transferbench_emulator_stamp(tb_u64* where, int stop);
extern "C" tb_u64 transferbench_emulator_real_ticks(void);
extern "C" void transferbench_emulator_pause(void);
extern "C" void transferbench_emulator_lap(tb_u64* where);
extern "C" void transferbench_emulator_drain(int writes_back);
extern "C" tb_u32 transferbench_emulator_xcc(void);
__device__ inline void tb_stamp(tb_u64* where, int stop) { transferbench_emulator_stamp(where, stop); }
__device__ inline tb_u64 tb_deadline_clock() { return transferbench_emulator_real_ticks(); }
__device__ inline void tb_pause() { transferbench_emulator_pause(); }
// The stop stamp is written when the whole grid has ended, so there is nothing to wait for; and a thread that never
// waits costs the emulator a call, one that does a switch of stacks.
__device__ inline void tb_block_is_done() {}
__device__ inline void tb_lap(tb_u64* where) { transferbench_emulator_lap(where); }
__device__ inline void tb_drain() { transferbench_emulator_drain(0); }
__device__ inline void tb_fence_system() { transferbench_emulator_drain(1); }

#elif defined(__HIP__) || defined(__HIPCC__)
// 100 MHz on Instinct, the same on all XCCs up to a skew of some ticks; the rate comes from the runtime.
__device__ inline tb_u64 tb_clock() { return wall_clock64(); }
__device__ inline void tb_stamp(tb_u64* where, int) { *where = tb_clock(); }
__device__ inline tb_u64 tb_deadline_clock() { return tb_clock(); }
__device__ inline void tb_pause() { __builtin_amdgcn_s_sleep(8); }
// Waits until the memory has acknowledged every store of this wave. Which counter holds them depends on the family:
// where another one has it, s_waitcnt vmcnt(0) waits for nothing. Assembly is for the wait alone: stores written in it
// would not be counted by the compiler, which then leaves out the waits of its own fences.
__device__ inline void tb_drain() {
#if defined(__GFX9__)
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#elif defined(__GFX10__) || defined(__GFX11__)
  asm volatile("s_waitcnt_vscnt null, 0x0" ::: "memory");
#else
  asm volatile("s_wait_storecnt 0x0" ::: "memory");
#endif
}
// A wave's stores may still be on their way when it has passed the barrier, and another wave's fence does not wait for
// them: each wave drains its own first.
__device__ inline void tb_block_is_done() {
  tb_drain();
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

#if !defined(TRANSFERBENCH_EMULATOR)
// The stamp of one lap of a kernel that goes many. Thread 0 of every block calls it, with null where it stamps nothing:
// it also tells an emulated node where in a block's work the lap ends.
__device__ inline void tb_lap(tb_u64* where) {
  if (where) *where = tb_clock();
}
__device__ inline void tb_fence_system() { __threadfence_system(); }
#endif

// Words that another device or the host writes or reads. Every access is 8 bytes, whole, at system scope: never served
// from a register or a stale line. Non-temporal accesses are no substitute: on gfx942 and later they miss no cache.
//
// tb_store_flag makes a flag visible after the data that the wave has stored before it. AMD: the caller has drained the
// wave's stores, so any store comes after them. NVIDIA has no such wait: the store itself releases, and takes along
// what the lanes of the warp stored before tb_wave_sync.
struct tb_pair {
  tb_u64 first, second;
};

#if defined(__HIP__) || defined(__HIPCC__)
__device__ inline tb_u64 tb_load_system(const tb_u64* word) {
  return __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
__device__ inline void tb_store_system(tb_u64* word, tb_u64 value) {
  __hip_atomic_store(word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
#if defined(TRANSFERBENCH_EMULATOR)
__device__ inline void tb_store_flag(tb_u64* word, tb_u64 flag) {
  __hip_atomic_store(word, flag, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
__device__ inline bool tb_any(bool predicate) { return __any(predicate); }
__device__ inline void tb_wave_sync() { (void)__any(0); }
#else
__device__ inline void tb_store_flag(tb_u64* word, tb_u64 flag) { tb_store_system(word, flag); }
#if defined(__GFX9__)
__device__ inline bool tb_any(bool predicate) { return __builtin_amdgcn_ballot_w64(predicate) != 0; }
#else
__device__ inline bool tb_any(bool predicate) { return __builtin_amdgcn_ballot_w32(predicate) != 0; }
#endif
// The lanes of a wave go together. The compiler must have joined their branches here: it may otherwise lay the drain and
// the flag that follow into each branch, and a flag then goes out before another branch's data.
__device__ inline void tb_wave_sync() { __builtin_amdgcn_wave_barrier(); }
#endif
// Two neighbouring words, each whole. No compiler here but AMD's own knows one access of 16 bytes at system scope.
__device__ inline tb_pair tb_load_pair(const tb_u64* words) {
  return {tb_load_system(words), tb_load_system(words + 1)};
}
__device__ inline void tb_store_pair(tb_u64* words, tb_u64 first, tb_u64 second) {
  tb_store_system(words, first);
  tb_store_system(words + 1, second);
}
#if !defined(TB_WORDS_A_LANE)
#define TB_WORDS_A_LANE 1
#endif

#else
__device__ inline tb_u64 tb_load_system(const tb_u64* word) {
  tb_u64 value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(word)) : "memory");
  return value;
}
__device__ inline void tb_store_system(tb_u64* word, tb_u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "l"(value) : "memory");
}
__device__ inline void tb_store_flag(tb_u64* word, tb_u64 flag) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "l"(flag) : "memory");
}
// One instruction of 16 bytes; what matters here is that it halves their number, and that each word is whole.
__device__ inline tb_pair tb_load_pair(const tb_u64* words) {
  tb_pair pair;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(__cvta_generic_to_global(words))
               : "memory");
  return pair;
}
__device__ inline void tb_store_pair(tb_u64* words, tb_u64 first, tb_u64 second) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(words)), "l"(first),
               "l"(second)
               : "memory");
}
__device__ inline void tb_drain() {}
__device__ inline bool tb_any(bool predicate) { return __any_sync(0xffffffffu, predicate); }
// Lanes may be apart, and it is what makes their stores part of the flag lane's release.
__device__ inline void tb_wave_sync() { __syncwarp(); }
#define TB_WORDS_A_LANE 2
#endif

// The accelerator die a block runs on; 0 where a device has only one.
__device__ inline tb_u32 tb_xcc() {
#if defined(TRANSFERBENCH_EMULATOR)
  return transferbench_emulator_xcc();
#elif defined(__gfx942__) || defined(__gfx950__)
  tb_u32 xcc;
  asm volatile("s_getreg_b32 %0, hwreg(HW_REG_XCC_ID)" : "=s"(xcc));
  return xcc & 15;
#else
  return 0;
#endif
}

// Who a block is among those that do the work, and whether it is one of them: all are, but where a launch is for one
// die of the device. Blocks are dealt out to the TB_XCCS dies in turn, so of as many neighbours one is on die TB_XCC; it
// looks, and the others leave. Were they dealt out otherwise, a share would be left undone, and the data would show it.
#if defined(TB_XCC)
__device__ inline bool tb_on_duty() { return tb_xcc() == TB_XCC; }
__device__ inline tb_u32 tb_member() { return blockIdx.x / TB_XCCS; }
__device__ inline tb_u32 tb_members() { return gridDim.x / TB_XCCS; }
#else
__device__ inline bool tb_on_duty() { return true; }
__device__ inline tb_u32 tb_member() { return blockIdx.x; }
__device__ inline tb_u32 tb_members() { return gridDim.x; }
#endif

// Called by all threads at the end of a timed kernel; thread 0 of each block then holds the block's stop stamp.
// The barrier makes every store of the block happen before thread 0's fence; the fence, at system scope, returns
// when they are visible to the peer. Without it the stamp is taken when the stores were issued, and a push looks
// faster than its link (TransferBench issues 70 and 328).
__device__ inline void tb_stop(tb_u64* stamps) {
  tb_block_is_done();
  if (threadIdx.x == 0) {
    __threadfence_system();
    tb_stamp(stamps + 2 * tb_member() + 1, 1);
  }
}

__device__ inline void tb_start(tb_u64* stamps) {
  if (threadIdx.x == 0) tb_stamp(stamps + 2 * tb_member(), 0);
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

// Sources that are added up hold numbers instead: whole ones below 2^21, as float32. The sum of eight stays below 2^24,
// and so is exact in whatever order it is formed.
__device__ inline tb_u32 tb_word(tb_u64 index, tb_u32 key, bool number) {
  const tb_u32 bits = tb_hash(index) ^ key;
  return number ? __builtin_bit_cast(tb_u32, (float)(bits & 0x1FFFFF)) : bits;
}

__device__ inline tb_u32 tb_sum(tb_u32 a, tb_u32 b) {
  return __builtin_bit_cast(tb_u32, __builtin_bit_cast(float, a) + __builtin_bit_cast(float, b));
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

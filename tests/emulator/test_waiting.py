"""Threads that wait for each other: in a block, in a wavefront, between blocks, between devices, for the host."""

from __future__ import annotations

import ctypes
import struct
import threading
import time

import pytest

from tests.emulator.hip import SUCCESS, Hip

IN_A_BLOCK = r"""
extern "C" __global__ void reverse(int* p) {
  __shared__ int held[1024];
  held[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void reverse_dynamic(int* p) {
  extern __shared__ __align__(16) int held[];
  held[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void counts(int* out) {
  const int mine = threadIdx.x % 3 == 0;
  const int count = __syncthreads_count(mine), any = __syncthreads_or(threadIdx.x == 77);
  const int none = __syncthreads_or(0), all = __syncthreads_and(1), not_all = __syncthreads_and(mine);
  if (threadIdx.x == blockDim.x - 1) { out[0] = count; out[1] = any; out[2] = none; out[3] = all; out[4] = not_all; }
}
extern "C" __global__ void some_leave_early(int* out) {
  if (threadIdx.x % 2) return;
  __syncthreads();
  atomicAdd(out, 1);
}
extern "C" __global__ void three_dimensions(int* out) {
  const unsigned at = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[at] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z;
}
"""

IN_A_WAVE = r"""
extern "C" __global__ void votes(unsigned long long* out) {
  const unsigned long long odd = __ballot(threadIdx.x & 1);
  const int any = __any(threadIdx.x == 64 + 5), all = __all(threadIdx.x < 100);
  if (threadIdx.x % 64 == 0) {
    unsigned long long* mine = out + 3 * (threadIdx.x / 64);
    mine[0] = odd; mine[1] = any; mine[2] = all;
  }
}
extern "C" __global__ void sums(int* out) {
  int value = threadIdx.x;
  for (int step = 32; step > 0; step /= 2) value += __shfl_down(value, step);
  int total = threadIdx.x;
  for (int step = 1; step < 64; step *= 2) total += __shfl_xor(total, step);
  const int first = __shfl((int)threadIdx.x, 3), before = __shfl_up((int)threadIdx.x, 1);
  if (threadIdx.x % 64 == 0) out[threadIdx.x / 64] = value;
  out[16 + threadIdx.x] = total;
  out[512 + threadIdx.x] = first;
  out[1024 + threadIdx.x] = before;
}
extern "C" __global__ void diverged(unsigned long long* out) {
  unsigned long long seen;
  if (threadIdx.x < 20) {
    seen = __ballot(1);
  } else {
    seen = __ballot(1);
  }
  const unsigned long long together = __ballot(1);
  out[2 * threadIdx.x] = seen;
  out[2 * threadIdx.x + 1] = together;
}
extern "C" __global__ void loops_of_different_length(int* out) {
  int rounds = 0;
  for (unsigned i = 0; i <= threadIdx.x % 7; ++i) {
    __ballot(1);
    ++rounds;
  }
  const unsigned long long together = __ballot(1);
  out[threadIdx.x] = together == ~0ull ? rounds : -1;
}
extern "C" __global__ void double_exchange(double* p) { p[threadIdx.x] = __shfl_xor(p[threadIdx.x], 1); }
"""

BETWEEN_BLOCKS = r"""
extern "C" __global__ void meet(unsigned* counter, unsigned* out) {
  __shared__ unsigned mark;
  if (threadIdx.x == 0) {
    mark = blockIdx.x + 1;
    atomicAdd(counter, 1u);
    while (__hip_atomic_load(counter, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < gridDim.x) {}
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = mark;
}
extern "C" __global__ void compare_and_swap_lock(unsigned* lock, unsigned* total) {
  while (atomicCAS(lock, 0u, 1u)) __builtin_amdgcn_s_sleep(1);
  *total = *total + 1;
  __threadfence();
  atomicExch(lock, 0u);
}
"""

# What people write instead of an atomic load, and locks that write while they wait.
WAITING_BY_WRITING = r"""
extern "C" __global__ void add_nothing(unsigned* counter, unsigned* out) {
  atomicAdd(counter, 1u);
  while (atomicAdd(counter, 0u) < gridDim.x * blockDim.x) {}
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}
extern "C" __global__ void exchange_lock(unsigned* lock, unsigned* total) {
  while (atomicExch(lock, 1u)) {}
  *total = *total + 1;
  __threadfence();
  atomicExch(lock, 0u);
}
extern "C" __global__ void or_nothing(unsigned* flag) {
  if (blockIdx.x == gridDim.x - 1) atomicOr(flag, 1u);
  while (!atomicOr(flag, 0u)) {}
}
"""

# Threads that wait for more than one thing, or that look at a word which nobody changes while they work.
WAITING_FOR_MORE = r"""
typedef unsigned long long u64;
__device__ u64 look(const u64* word) {
  return __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
__device__ void tell(u64* word, u64 value) {
  __hip_atomic_store(word, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
// Block 0 tells the others the round in `which` of their words, another one every time; they wait for any.
extern "C" __global__ void any_of(u64* words, u64* heard, unsigned count, unsigned rounds) {
  u64* const mine = words + (u64)count * (blockIdx.x * blockDim.x + threadIdx.x);
  for (u64 round = 1; round <= rounds; ++round) {
    if (blockIdx.x == 0) {
      for (unsigned other = 1; other < gridDim.x; ++other)
        tell(words + (u64)count * (other * blockDim.x + threadIdx.x) + round % count, round);
      while (look(heard + threadIdx.x) < round * (gridDim.x - 1)) {}
    } else {
      bool told = false;
      while (!told)
        for (unsigned word = 0; word < count; ++word) told |= look(mine + word) == round;
      atomicAdd(heard + threadIdx.x, 1ull);
    }
  }
}
// Works until it is told to stop, which it looks for in every step; the last block tells.
extern "C" __global__ void work_until_told(u64* stop, u64* steps, u64 enough) {
  if (blockIdx.x < gridDim.x - 1) {
    while (!look(stop)) tell(steps + blockIdx.x, steps[blockIdx.x] + 1);
  } else {
    for (unsigned other = 0; other + 1 < gridDim.x; ++other)
      while (look(steps + other) < enough) {}
    tell(stop, 1);
  }
}
// Writes a word of its own and reads it again while it waits: always something new, never what it waits for.
extern "C" __global__ void busy_while_waiting(u64* flag, u64* own) {
  if (blockIdx.x == gridDim.x - 1) {
    tell(flag, 1);
    return;
  }
  while (!look(flag)) {
    tell(own + blockIdx.x, look(own + blockIdx.x) + 1);
  }
}
"""

# A protocol in which every 8-byte word carries its own flag, and the sender waits for the receiver's answer.
FLAGGED = r"""
typedef unsigned long long u64;
extern "C" __global__ void send(volatile u64* there, const unsigned* data, volatile u64* ack, unsigned rounds) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
  for (unsigned round = 1; round <= rounds; ++round) {
    there[me] = (u64)round << 32 | (data[me] + round);
    while (ack[me] < round) {}
  }
}
extern "C" __global__ void receive(volatile u64* here, unsigned* out, volatile u64* ack, unsigned rounds) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  for (unsigned round = 1; round <= rounds; ++round) {
    u64 word;
    do word = here[me]; while (__any(word >> 32 != round));
    sum += (unsigned)word;
    ack[me] = round;
  }
  out[me] = sum;
}
"""


def words(hip: Hip, pointer: int, count: int, kind: str = "i") -> list[int]:
    return list(struct.unpack(f"{count}{kind}", hip.read(pointer, count * struct.calcsize(kind))))


@pytest.mark.parametrize("block", [1, 64, 100, 1024])
@pytest.mark.parametrize("kernel", ["reverse", "reverse_dynamic"])
def test_shared_memory_and_a_barrier(hip: Hip, kernel: str, block: int) -> None:
    data = hip.malloc(4 * block)
    hip.write(data, struct.pack(f"{block}i", *range(block)))
    assert hip.run(hip.kernel(IN_A_BLOCK, kernel), 1, block, data) == SUCCESS
    assert words(hip, data, block) == list(reversed(range(block)))
    hip.ok("hipFree", data)


def test_barriers_that_count(hip: Hip) -> None:
    out = hip.malloc(20)
    assert hip.run(hip.kernel(IN_A_BLOCK, "counts"), 1, 200, out) == SUCCESS
    assert words(hip, out, 5) == [67, 1, 0, 1, 0]
    hip.ok("hipFree", out)


def test_threads_that_have_ended_are_not_waited_for(hip: Hip) -> None:
    out = hip.malloc(4)
    hip.write(out, bytes(4))
    assert hip.run(hip.kernel(IN_A_BLOCK, "some_leave_early"), 3, 100, out) == SUCCESS
    assert words(hip, out, 1) == [150]
    hip.ok("hipFree", out)


def test_blocks_have_three_dimensions(hip: Hip) -> None:
    out = hip.malloc(4 * 24)
    kernel = hip.kernel(IN_A_BLOCK, "three_dimensions")
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument := ctypes.c_uint64(out)))
    dims = map(ctypes.c_uint, (1, 1, 1, 4, 3, 2, 0))
    hip.ok("hipModuleLaunchKernel", kernel, *dims, None, pointers, None)
    assert argument.value == out
    assert words(hip, out, 24) == [x + 10 * y + 100 * z for z in range(2) for y in range(3) for x in range(4)]
    hip.ok("hipFree", out)


def test_votes_stay_in_their_wavefront(hip: Hip) -> None:
    out = hip.malloc(8 * 6)
    assert hip.run(hip.kernel(IN_A_WAVE, "votes"), 1, 100, out) == SUCCESS
    odd = 0xAAAA_AAAA_AAAA_AAAA
    assert words(hip, out, 6, "Q") == [odd, 0, 1, odd & (1 << 36) - 1, 1, 1]
    hip.ok("hipFree", out)


def test_values_travel_between_lanes(hip: Hip) -> None:
    out = hip.malloc(4 * 2048)
    assert hip.run(hip.kernel(IN_A_WAVE, "sums"), 1, 128, out) == SUCCESS
    found = words(hip, out, 2048)
    low, high = sum(range(64)), sum(range(64, 128))
    assert found[:2] == [low, high]
    assert found[16 : 16 + 128] == [low] * 64 + [high] * 64
    assert found[512 : 512 + 128] == [3] * 64 + [67] * 64
    assert found[1024 : 1024 + 128] == [0, *range(63), 64, *range(64, 127)]
    hip.ok("hipFree", out)


def test_lanes_that_diverged_vote_apart_and_meet_again(hip: Hip) -> None:
    out = hip.malloc(16 * 64)
    assert hip.run(hip.kernel(IN_A_WAVE, "diverged"), 1, 64, out) == SUCCESS
    found = words(hip, out, 128, "Q")
    low = (1 << 20) - 1
    assert found[0::2] == [low] * 20 + [~low & (1 << 64) - 1] * 44
    assert set(found[1::2]) == {(1 << 64) - 1}
    hip.ok("hipFree", out)


def test_lanes_with_shorter_loops_wait_behind_them(hip: Hip) -> None:
    out = hip.malloc(4 * 64)
    assert hip.run(hip.kernel(IN_A_WAVE, "loops_of_different_length"), 1, 64, out) == SUCCESS
    assert words(hip, out, 64) == [lane % 7 + 1 for lane in range(64)]
    hip.ok("hipFree", out)


def test_doubles_travel_whole(hip: Hip) -> None:
    data = hip.malloc(8 * 64)
    values = [1.5 * lane for lane in range(64)]
    hip.write(data, struct.pack("64d", *values))
    assert hip.run(hip.kernel(IN_A_WAVE, "double_exchange"), 1, 64, data) == SUCCESS
    assert struct.unpack("64d", hip.read(data, 512)) == tuple(values[lane ^ 1] for lane in range(64))
    hip.ok("hipFree", data)


def test_threads_of_a_block_may_wait_in_different_places(hip: Hip) -> None:
    source = r"""
    extern "C" __global__ void apart(int* out) {
      if (threadIdx.x < 64) __syncthreads();
      else if (threadIdx.x < 100) { __ballot(1); __syncthreads(); }
      else if (__shfl((int)threadIdx.x, 1) < 0) return;
      atomicAdd(out, 1);
    }
    """
    out = hip.malloc(4)
    hip.write(out, bytes(4))
    assert hip.run(hip.kernel(source, "apart"), 1, 128, out) == SUCCESS
    assert words(hip, out, 1) == [128]
    hip.ok("hipFree", out)


@pytest.mark.parametrize(("blocks", "threads"), [(8, 256), (304, 64)])
def test_blocks_of_a_grid_meet(hip: Hip, blocks: int, threads: int) -> None:
    """All are resident at once, and each keeps a __shared__ variable of its own while it waits."""
    counter, out = hip.malloc(4), hip.malloc(4 * blocks * threads)
    hip.write(counter, bytes(4))
    assert hip.run(hip.kernel(BETWEEN_BLOCKS, "meet"), blocks, threads, counter, out) == SUCCESS
    assert words(hip, out, blocks * threads) == [1 + at // threads for at in range(blocks * threads)]
    hip.ok("hipFree", counter)
    hip.ok("hipFree", out)


def test_a_lock_is_handed_round(hip: Hip) -> None:
    lock, total = hip.malloc(4), hip.malloc(4)
    hip.write(lock, bytes(4))
    hip.write(total, bytes(4))
    assert hip.run(hip.kernel(BETWEEN_BLOCKS, "compare_and_swap_lock"), 40, 1, lock, total) == SUCCESS
    assert words(hip, total, 1) == [40]
    hip.ok("hipFree", lock)
    hip.ok("hipFree", total)


@pytest.mark.parametrize(("kernel", "arrived"), [("add_nothing", 96), ("exchange_lock", 0), ("or_nothing", 1)])
def test_waiting_by_writing_lets_the_others_run(hip: Hip, kernel: str, arrived: int) -> None:
    word, out = hip.malloc(4), hip.malloc(4 * 96)
    hip.write(word, bytes(4))
    hip.write(out, bytes(4 * 96))
    arguments = (word,) if kernel == "or_nothing" else (word, out)
    assert hip.run(hip.kernel(WAITING_BY_WRITING, kernel), 48, 2, *arguments) == SUCCESS
    assert words(hip, word, 1) == [arrived]
    if kernel == "exchange_lock":
        assert words(hip, out, 1) == [96]
    hip.ok("hipFree", word)
    hip.ok("hipFree", out)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 12])
def test_a_thread_may_wait_for_any_of_several_words(hip: Hip, count: int) -> None:
    blocks, threads, rounds = 4, 32, 60
    words, heard = hip.malloc(8 * count * blocks * threads), hip.malloc(8 * threads)
    hip.write(words, bytes(8 * count * blocks * threads))
    hip.write(heard, bytes(8 * threads))
    kernel = hip.kernel(WAITING_FOR_MORE, "any_of")
    arguments = (words, heard, ctypes.c_uint(count), ctypes.c_uint(rounds))
    begin = time.process_time()
    assert hip.run(kernel, blocks, threads, *arguments) == SUCCESS
    assert time.process_time() - begin < 1
    assert struct.unpack(f"{threads}Q", hip.read(heard, 8 * threads)) == ((blocks - 1) * rounds,) * threads
    hip.ok("hipFree", words)
    hip.ok("hipFree", heard)


def test_looking_at_an_unchanged_word_does_not_stop_the_work(hip: Hip) -> None:
    blocks, enough = 9, 20_000
    stop, steps = hip.malloc(8), hip.malloc(8 * blocks)
    hip.write(stop, bytes(8))
    hip.write(steps, bytes(8 * blocks))
    begin = time.process_time()
    kernel = hip.kernel(WAITING_FOR_MORE, "work_until_told")
    assert hip.run(kernel, blocks, 1, stop, steps, enough) == SUCCESS
    assert time.process_time() - begin < 2
    assert min(words(hip, steps, blocks - 1, "Q")) >= enough
    hip.ok("hipFree", stop)
    hip.ok("hipFree", steps)


def test_a_thread_that_is_busy_while_it_waits_lets_others_run(hip: Hip) -> None:
    blocks = 40
    flag, own = hip.malloc(8), hip.malloc(8 * blocks)
    hip.write(flag, bytes(8))
    hip.write(own, bytes(8 * blocks))
    assert hip.run(hip.kernel(WAITING_FOR_MORE, "busy_while_waiting"), blocks, 1, flag, own) == SUCCESS
    assert words(hip, flag, 1, "Q") == [1]
    hip.ok("hipFree", flag)
    hip.ok("hipFree", own)


@pytest.mark.parametrize(
    ("blocks", "threads", "rounds"),
    [(1, 64, 20), (8, 256, 5), (128, 256, 4)],
)
def test_a_sender_and_a_receiver_on_two_devices(hip: Hip, blocks: int, threads: int, rounds: int) -> None:
    count = blocks * threads
    hip.enable_peer(0, 1)
    hip.enable_peer(1, 0)
    data, ack = hip.malloc(4 * count, device=0), hip.malloc(8 * count, device=0)
    box, out = hip.malloc(8 * count, device=1), hip.malloc(4 * count, device=1)
    hip.write(data, struct.pack(f"{count}I", *range(count)))
    for pointer in (ack, box):
        hip.write(pointer, bytes(8 * count))
    send, receive = hip.kernel(FLAGGED, "send", device=0), hip.kernel(FLAGGED, "receive", device=1)
    turns = ctypes.c_uint(rounds)
    with hip.stream(0) as sending, hip.stream(1) as receiving:
        assert hip.launch(receive, blocks, threads, box, out, ack, turns, stream=receiving) == SUCCESS
        assert hip.launch(send, blocks, threads, box, data, ack, turns, stream=sending) == SUCCESS
        for stream in (sending, receiving):
            hip.ok("hipStreamSynchronize", stream)
    expected = [rounds * value + rounds * (rounds + 1) // 2 for value in range(count)]
    assert words(hip, out, count, "I") == expected
    for pointer in (data, ack, box, out):
        hip.ok("hipFree", pointer)


def test_a_waiting_kernel_leaves_the_processors_alone(hip: Hip, flag: ctypes.c_uint64) -> None:
    """While a gate is shut the process sleeps most of the time, and other streams do their work."""
    source = r"""
    extern "C" __global__ void gate(const volatile unsigned long long* flag) { while (!*flag) {} }
    extern "C" __global__ void work(unsigned* p) { atomicAdd(p, 1u); }
    """
    total = hip.malloc(4)
    hip.write(total, bytes(4))
    work = hip.kernel(source, "work")
    with hip.stream() as waiting, hip.stream() as working:
        assert hip.launch(hip.kernel(source, "gate"), 1, 1, ctypes.addressof(flag), stream=waiting) == SUCCESS
        assert hip.run(work, 10, 64, total, stream=working) == SUCCESS
        assert words(hip, total, 1) == [640]
        begin = time.process_time()
        threading.Event().wait(0.2)
        used = time.process_time() - begin
        flag.value = 1
        hip.ok("hipStreamSynchronize", waiting)
    assert used < 0.1
    hip.ok("hipFree", total)

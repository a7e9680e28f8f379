"""Laps on the virtual clock: what a kernel that goes to and fro takes, from what all of its blocks do in each lap."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from itertools import pairwise

import pytest

from tests.emulator.gate import Gate, event_times
from tests.emulator.hip import ILLEGAL_ADDRESS, SUCCESS, Hip
from tests.emulator.ll import cleared

SOURCE = r"""
typedef unsigned long long u64;

// Each thread of each block: `words` stores, `drains` times a store and a drain, `fences` fences with no store before.
struct lap { unsigned words, drains, fences; };
extern "C" __global__ void go(volatile u64* far, u64* stamps, const lap* plan, unsigned laps) {
  volatile u64* mine = far + blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0 && blockIdx.x == 0) transferbench_emulator_stamp(stamps, 0);
  for (unsigned i = 0; i < laps; ++i) {
    const lap now = plan[i];
    for (unsigned word = 0; word < now.words; ++word) *mine = word;
    for (unsigned drain = 0; drain < now.drains; ++drain) {
      *mine = drain;
      transferbench_emulator_drain(0);
    }
    for (unsigned fence = 0; fence < now.fences; ++fence) transferbench_emulator_drain(1);
    __syncthreads();
    if (threadIdx.x == 0) transferbench_emulator_lap(blockIdx.x == 0 ? stamps + 1 + i : nullptr);
    __syncthreads();
  }
}

// In lap i block b stores i * (b + 1) words a thread, and goes on when all blocks have, so that blocks of one processor
// take turns in the middle of their laps. Thread t makes t drains in block 1.
extern "C" __global__ void take_turns(volatile u64* far, u64* stamps, unsigned* counter, unsigned laps) {
  if (threadIdx.x == 0 && blockIdx.x == 0) transferbench_emulator_stamp(stamps, 0);
  for (unsigned i = 0; i < laps; ++i) {
    for (unsigned word = 0; word < i * (blockIdx.x + 1); ++word) {
      far[blockIdx.x * blockDim.x + threadIdx.x] = word;
      if (word % 3 == 0) __ballot(1);
    }
    if (blockIdx.x == 1) {
      for (unsigned drain = 0; drain < threadIdx.x; ++drain) {
        far[threadIdx.x] = drain;
        __any(drain == 1);
        transferbench_emulator_drain(0);
        __any(drain == 2);
        transferbench_emulator_drain(1);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      transferbench_emulator_lap(blockIdx.x == 0 ? stamps + 1 + i : nullptr);
      atomicAdd(counter, 1u);
      while (__hip_atomic_load(counter, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < (i + 1) * gridDim.x) {}
    }
    __syncthreads();
  }
}

extern "C" __global__ void go_on_after_the_lap(volatile u64* far, u64* stamps, unsigned words) {
  transferbench_emulator_stamp(stamps, 0);
  *far = 1;
  transferbench_emulator_lap(stamps + 1);
  for (unsigned word = 0; word < words; ++word) *far = word;
}

// Blocks with fewer laps than others.
extern "C" __global__ void leave_early(volatile u64* far, u64* stamps, unsigned laps) {
  if (blockIdx.x == 0) transferbench_emulator_stamp(stamps, 0);
  for (unsigned i = 0; i < (blockIdx.x == 0 ? laps : 1); ++i) {
    for (unsigned word = 0; word < 6000; ++word) far[blockIdx.x] = word;
    transferbench_emulator_lap(blockIdx.x == 0 ? stamps + 1 + i : nullptr);
  }
}

// All threads but the first run one after another, none waiting for any.
extern "C" __global__ void drain_in_a_row(volatile u64* far, u64* stamps, unsigned* done, unsigned drains) {
  if (threadIdx.x == 0) {
    transferbench_emulator_stamp(stamps, 0);
    while (__hip_atomic_load(done, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < blockDim.x - 1) {}
    transferbench_emulator_lap(stamps + 1);
  } else {
    for (unsigned drain = 0; drain < drains; ++drain) {
      far[threadIdx.x] = drain;
      transferbench_emulator_drain(1);
    }
    atomicAdd(done, 1u);
  }
}

extern "C" __global__ void stamp_a_lap(u64* stamp) { transferbench_emulator_lap(stamp); }

extern "C" __global__ void drain_without_laps(volatile u64* far) {
  for (unsigned drain = 0; drain < 100; ++drain) {
    *far = drain;
    transferbench_emulator_drain(1);
  }
}
"""

TICK = 1e-8


@dataclass(frozen=True)
class Lap:
    words: int = 0
    drains: int = 0
    fences: int = 0

    def ticks(self, hip: Hip, threads: int, link_class: str = "xgmi") -> float:
        """What the model says this lap takes if each of ``threads`` goes it."""
        link, write_back = hip.model.links[link_class], hip.model.gfx.write_back_us
        way = 2 * link.one_way_us
        # A fence that no drain went before drains, once.
        drains = max(self.drains, 1) if self.fences and self.words else self.drains
        behind = max(drains - 1, 0) * way + max(self.fences - 1, 0) * write_back
        stores = self.words + self.drains
        microseconds = max(8 * threads * stores / link.usable_gbps / 1e3, behind)
        microseconds += bool(drains) * way + bool(self.fences) * write_back
        return (microseconds + bool(stores) * way) * 100


def stamped(hip: Hip, pointer: int, laps: int) -> list[int]:
    stamps = struct.unpack(f"{laps + 1}Q", hip.read(pointer, 8 * (laps + 1)))
    return [end - begin for begin, end in pairwise(stamps)]


@pytest.mark.parametrize(
    "lap",
    [
        Lap(words=1),
        Lap(words=200),
        Lap(drains=1),
        Lap(drains=40),
        Lap(words=200, drains=40),
        Lap(words=3000, drains=2),
        Lap(words=1, fences=1),
        Lap(words=1, fences=7),
        Lap(drains=3, fences=2),
        Lap(words=3000, drains=30, fences=30),
    ],
    ids=str,
)
def test_a_lap_is_data_or_drains_and_then_the_way_there_and_back(hip: Hip, gate: Gate, lap: Lap) -> None:
    """All laps alike, and the launch and they are all that the kernel takes."""
    blocks, threads, laps = 3, 16, 4
    hip.enable_peer(0, 1)
    kernel = hip.kernel(SOURCE, "go")
    plan = struct.pack("3I", lap.words, lap.drains, lap.fences) * laps
    with (
        cleared(hip, 8 * blocks * threads, 1) as far,
        cleared(hip, 8 * (laps + 1), 0) as stamps,
        cleared(hip, len(plan), 0, plan) as plans,
        hip.stream() as stream,
    ):
        launch = lambda: hip.launch(kernel, blocks, threads, far, stamps, plans, ctypes.c_uint(laps), stream=stream)  # noqa: E731  # a value here
        (seconds,) = event_times(hip, gate, stream, [launch])
        found = stamped(hip, stamps, laps)
    expected = lap.ticks(hip, blocks * threads)
    assert found == pytest.approx([expected] * laps, abs=1.1)
    assert seconds == pytest.approx(hip.model.gfx.launch_us * 1e-6 + laps * expected * TICK, rel=1e-4)


def test_laps_may_differ(hip: Hip) -> None:
    threads = 64
    laps = [Lap(words=500), Lap(drains=9), Lap(), Lap(words=1, fences=1), Lap(words=2)]
    hip.enable_peer(0, 1)
    plan = b"".join(struct.pack("3I", lap.words, lap.drains, lap.fences) for lap in laps)
    with (
        cleared(hip, 8 * threads, 1) as far,
        cleared(hip, 8 * (len(laps) + 1), 0) as stamps,
        cleared(hip, len(plan), 0, plan) as plans,
    ):
        assert hip.run(hip.kernel(SOURCE, "go"), 1, threads, far, stamps, plans, ctypes.c_uint(len(laps))) == SUCCESS
        found = stamped(hip, stamps, len(laps))
    assert found == pytest.approx([lap.ticks(hip, threads) for lap in laps], abs=1.1)


@pytest.mark.parametrize("link_class", ["local", "xgmi"])
def test_a_lap_goes_over_the_link_it_stores_to(hip: Hip, link_class: str) -> None:
    owner = {"local": 0, "xgmi": 5}[link_class]
    if owner:
        hip.enable_peer(0, owner)
    lap = Lap(drains=3)
    plan = struct.pack("3I", lap.words, lap.drains, lap.fences)
    with (
        cleared(hip, 8, owner) as far,
        cleared(hip, 16, 0) as stamps,
        cleared(hip, len(plan), 0, plan) as plans,
    ):
        assert hip.run(hip.kernel(SOURCE, "go"), 1, 1, far, stamps, plans, ctypes.c_uint(1)) == SUCCESS
        (found,) = stamped(hip, stamps, 1)
    assert found == pytest.approx(lap.ticks(hip, 1, link_class), abs=1.1)


def test_blocks_that_take_turns_are_told_apart(hip: Hip) -> None:
    """Whatever runs when on which processor: each lap has the bytes of all blocks, and the drains of one thread."""
    blocks, threads, laps = 12, 64, 6
    hip.enable_peer(0, 1)
    kernel = hip.kernel(SOURCE, "take_turns")
    runs = []
    for _ in range(4):
        with (
            cleared(hip, 8 * blocks * threads, 1) as far,
            cleared(hip, 8 * (laps + 1), 0) as stamps,
            cleared(hip, 4, 0) as counter,
        ):
            assert hip.run(kernel, blocks, threads, far, stamps, counter, ctypes.c_uint(laps)) == SUCCESS
            runs.append(stamped(hip, stamps, laps))
    assert runs == [runs[0]] * len(runs)
    link, write_back = hip.model.links["xgmi"], hip.model.gfx.write_back_us
    drains, way = threads - 1, 2 * link.one_way_us
    behind = (drains - 1) * (way + write_back)
    of_drains = threads * (threads - 1) // 2
    for number, found in enumerate(runs[0]):
        words = threads * number * blocks * (blocks + 1) // 2 + of_drains
        expected = max(8 * words / link.usable_gbps / 1e3, behind) + way + write_back + way
        assert found == pytest.approx(expected * 100, abs=1.1), number


def test_drains_of_threads_that_run_one_after_another_are_not_added_up(hip: Hip) -> None:
    threads, drains = 50, 7
    hip.enable_peer(0, 1)
    with cleared(hip, 8 * threads, 1) as far, cleared(hip, 16, 0) as stamps, cleared(hip, 4, 0) as done:
        kernel = hip.kernel(SOURCE, "drain_in_a_row")
        assert hip.run(kernel, 1, threads, far, stamps, done, ctypes.c_uint(drains)) == SUCCESS
        (found,) = stamped(hip, stamps, 1)
    assert found == pytest.approx(Lap(drains=drains, fences=drains).ticks(hip, 1), abs=1.1)


def test_what_comes_after_the_last_lap_counts_too(hip: Hip, gate: Gate) -> None:
    words = 100_000
    hip.enable_peer(0, 1)
    kernel = hip.kernel(SOURCE, "go_on_after_the_lap")
    with cleared(hip, 8, 1) as far, cleared(hip, 16, 0) as stamps, hip.stream() as stream:
        launch = lambda: hip.launch(kernel, 1, 1, far, stamps, ctypes.c_uint(words), stream=stream)  # noqa: E731  # a value here
        (seconds,) = event_times(hip, gate, stream, [launch])
        (found,) = stamped(hip, stamps, 1)
    assert found == pytest.approx(Lap(words=1).ticks(hip, 1), abs=1.1)
    rest = 8 * words / (hip.model.links["xgmi"].usable_gbps * 1e9)
    assert seconds == pytest.approx(hip.model.gfx.launch_us * 1e-6 + found * TICK + rest, abs=1.1 * TICK)


def test_blocks_may_leave_before_others(hip: Hip) -> None:
    blocks, laps, words = 5, 3, 6000
    hip.enable_peer(0, 1)
    with cleared(hip, 8 * blocks, 1) as far, cleared(hip, 8 * (laps + 1), 0) as stamps:
        assert hip.run(hip.kernel(SOURCE, "leave_early"), blocks, 1, far, stamps, ctypes.c_uint(laps)) == SUCCESS
        found = stamped(hip, stamps, laps)
    assert found == pytest.approx([Lap(words=words).ticks(hip, one) for one in (blocks, 1, 1)], abs=1.1)


def test_the_bytes_of_laps_are_counted_once(hip: Hip) -> None:
    hip.enable_peer(0, 1)
    laps, lap = 3, Lap(words=50)
    plan = struct.pack("3I", lap.words, lap.drains, lap.fences) * laps
    with (
        cleared(hip, 8 * 64, 1) as far,
        cleared(hip, 8 * (laps + 1), 0) as stamps,
        cleared(hip, len(plan), 0, plan) as plans,
    ):
        before = hip.activation.moved_bytes(0, 1)
        assert hip.run(hip.kernel(SOURCE, "go"), 2, 32, far, stamps, plans, ctypes.c_uint(laps)) == SUCCESS
        assert hip.activation.moved_bytes(0, 1) - before == 8 * 64 * lap.words * laps


def test_drains_cost_nothing_where_no_lap_ends(hip: Hip, gate: Gate) -> None:
    hip.enable_peer(0, 1)
    kernel = hip.kernel(SOURCE, "drain_without_laps")
    with cleared(hip, 8, 1) as far, hip.stream() as stream:
        (seconds,) = event_times(hip, gate, stream, [lambda: hip.launch(kernel, 1, 1, far, stream=stream)])
    link = hip.model.links["xgmi"]
    set_up = (hip.model.gfx.launch_us + link.first_us) * 1e-6
    assert seconds == pytest.approx(set_up + 800 / (link.usable_gbps * 1e9), rel=1e-4)


def test_a_stamp_outside_all_memory_is_a_fault(hip: Hip) -> None:
    kernel = hip.kernel(SOURCE, "stamp_a_lap")
    stamps = hip.malloc(16)  # gone with everything else on the device when it is reset
    assert hip.run(kernel, 1, 1, stamps) == SUCCESS
    assert hip.run(kernel, 1, 1, stamps + 16) == ILLEGAL_ADDRESS

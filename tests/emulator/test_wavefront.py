"""A wavefront is as wide as the model's architecture makes it."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Callable

from tests.emulator.hip import SUCCESS, Hip

Child = Callable[..., subprocess.CompletedProcess[str]]

SOURCE = r"""
typedef unsigned long long u64;
extern "C" __global__ void look(u64* out) {
  __shared__ unsigned waves[1024 / warpSize];
  if (threadIdx.x < 1024 / warpSize) waves[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&waves[threadIdx.x / warpSize], 1u);
  u64* mine = out + 10 * threadIdx.x;
  mine[0] = warpSize;
  mine[1] = __lane_id();
  mine[2] = __ballot(threadIdx.x % 3 == 0);
  mine[3] = __any(threadIdx.x == 40);
  mine[4] = __all(threadIdx.x < 90);
  mine[5] = __shfl(threadIdx.x, 5);
  mine[6] = __shfl_up(threadIdx.x, 1);
  mine[7] = __shfl_down(threadIdx.x, 1);
  mine[8] = __shfl_xor(threadIdx.x, warpSize - 1);
  __syncthreads();
  mine[9] = waves[threadIdx.x / warpSize];
}

// Lanes of one wavefront, those of another, and what is left of the last find each extreme and every bit.
extern "C" __global__ void gather(u64* words) {
  const u64 mine = 1ull << 40 | threadIdx.x;
  atomicMin(words, mine);
  atomicMax(words + 1, mine);
  atomicOr(words + 2, 1ull << threadIdx.x % 64);
  if (__any(threadIdx.x % warpSize == 0) && __lane_id() == 0) atomicAdd(words + 3, 1ull);
}
"""

ATTRIBUTE_WARP_SIZE = 87
THREADS = 100


def check(hip: Hip, width: int) -> None:
    """See all that tells a kernel and its host how wide a wavefront is; 100 threads end in one that is not whole."""
    attribute, device = ctypes.c_int(ATTRIBUTE_WARP_SIZE), ctypes.c_int(0)
    assert hip.value(ctypes.c_int, "hipDeviceGetAttribute", attribute, device) == width
    out = hip.malloc(8 * 10 * THREADS)
    assert hip.run(hip.kernel(SOURCE, "look"), 1, THREADS, out) == SUCCESS
    found = list(struct.iter_unpack("10Q", hip.read(out, 8 * 10 * THREADS)))
    for thread, row in enumerate(found):
        first = thread // width * width
        wave = range(first, min(first + width, THREADS))
        ballot = sum(1 << (other - first) for other in wave if other % 3 == 0)
        beside = [other if other in wave else thread for other in (thread - 1, thread + 1, thread ^ (width - 1))]
        votes = (ballot, 40 in wave, wave[-1] < 90, first + 5 if first + 5 in wave else thread)
        assert row == (width, thread - first, *votes, *beside, len(wave)), thread
    hip.ok("hipFree", out)


def check_atomics(hip: Hip, width: int) -> None:
    words = hip.malloc(32)
    hip.write(words, struct.pack("4Q", (1 << 64) - 1, 0, 0, 0))
    assert hip.run(hip.kernel(SOURCE, "gather"), 1, THREADS, words) == SUCCESS
    waves = -(-THREADS // width)
    expected = (1 << 40, 1 << 40 | (THREADS - 1), (1 << 64) - 1, waves)
    assert struct.unpack("4Q", hip.read(words, 32)) == expected
    hip.ok("hipFree", words)


def test_gfx9_has_wavefronts_of_64(hip: Hip) -> None:
    check(hip, 64)
    check_atomics(hip, 64)


def test_gfx1250_has_wavefronts_of_32(run_child: Child) -> None:
    done = run_child(
        """
from pytest_transferbench.emulator import activate
from tests.emulator.hip import Hip
from tests.emulator.test_wavefront import check, check_atomics

activation = activate("gfx1250-spx")
hip = Hip(activation)
check(hip, 32)
check_atomics(hip, 32)
gpu = activation.kfd_root / "2" / "properties"
assert "wave_front_size 32" in gpu.read_text().splitlines()

import cupy
assert cupy.cuda.runtime.getDeviceProperties(0)["warpSize"] == 32
"""
    )
    assert done.returncode == 0, done.stderr

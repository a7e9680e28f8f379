"""A small emulated node in a process of its own, which plays what it is told, line by line.

A line is a JSON list of steps, the answer to it the list of what its launches took, in seconds. Everything that is
allocated is freed when the line is over, so that the next one finds caches in which nothing is left.

    python -m tests.emulator.small_node MODEL.toml
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_transferbench.emulator import activate
from tests.emulator.gate import Gate, event_times
from tests.emulator.hip import HOST, Hip

MOST_LEGS = 12
THREADS = 64
LEG = 16
"""Bytes that one access moves; offsets and lengths are multiples of it."""

SOURCE = r"""
struct alignas(16) quad { unsigned x, y, z, w; };
struct leg { const quad* from; quad* to; unsigned long long quads; unsigned first_block, team; };
struct plan { leg legs[12]; unsigned legs_used, passes; };

// One leg after the other; each is shared by `team` blocks. With a counter every block waits after its leg for all.
extern "C" __global__ void go(plan now, quad* never, unsigned* counter) {
  quad sum = {};
  for (unsigned pass = 0; pass < now.passes; ++pass) {
    for (unsigned number = 0; number < now.legs_used; ++number) {
      const leg& mine = now.legs[number];
      const unsigned member = blockIdx.x - mine.first_block;
      if (member < mine.team) {
        for (size_t i = member * blockDim.x + threadIdx.x; i < mine.quads; i += mine.team * blockDim.x) {
          quad held = {1, 2, 3, 4};
          if (mine.from) held = mine.from[i];
          if (mine.to) mine.to[i] = held;
          sum.x |= held.x;
        }
      }
      if (!counter) continue;
      __syncthreads();
      if (threadIdx.x == 0) {
        atomicAdd(counter, 1u);
        const unsigned all = (pass * now.legs_used + number + 1) * gridDim.x;
        while (__hip_atomic_load(counter, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < all) {}
      }
      __syncthreads();
    }
  }
  if (sum.x == 0xffffffff) *never = sum;  // no byte here is ever so: what is read counts, and nothing is written
}
"""


class _Leg(ctypes.Structure):
    _fields_ = (
        ("source", ctypes.c_uint64),
        ("target", ctypes.c_uint64),
        ("quads", ctypes.c_uint64),
        ("first_block", ctypes.c_uint32),
        ("team", ctypes.c_uint32),
    )


class _Plan(ctypes.Structure):
    _fields_ = (("legs", _Leg * MOST_LEGS), ("legs_used", ctypes.c_uint32), ("passes", ctypes.c_uint32))


@dataclass(frozen=True)
class Leg:
    """Bytes from a buffer, into one, or both, by ``team`` blocks from ``first_block`` on; all blocks where 0."""

    nbytes: int
    source: str = ""
    target: str = ""
    first_block: int = 0
    team: int = 0


def run(device: int, *legs: Leg, blocks: int = 8, passes: int = 1, in_step: bool = False) -> dict[str, Any]:
    """Launch on ``device``; with ``in_step`` all blocks wait for each other after each leg."""
    asked = [asdict(leg) for leg in legs]
    return {"do": "run", "device": device, "legs": asked, "blocks": blocks, "passes": passes, "in_step": in_step}


def allocate(name: str, owner: int, nbytes: int, *, managed: bool = False, where: str = "") -> dict[str, Any]:
    """Allocate on a device or :data:`HOST`; ``where`` names a buffer, freed by now, whose address it must have."""
    return {"do": "allocate", "name": name, "owner": owner, "nbytes": nbytes, "managed": managed, "where": where}


def free(name: str) -> dict[str, Any]:
    return {"do": "free", "name": name}


def prefetch(name: str, device: int) -> dict[str, Any]:
    """Move managed memory."""
    return {"do": "prefetch", "name": name, "device": device}


class _Player:
    def __init__(self, model: str) -> None:
        self.hip = Hip(activate(model))
        self.gate = Gate(self.hip, ctypes.c_uint64.from_address(self.hip.host_malloc(64)))
        devices = range(self.hip.model.device.count)
        for device in devices:
            for peer in devices:
                if peer != device:
                    self.hip.enable_peer(device, peer)
        self.kernels = {device: self.hip.kernel(SOURCE, "go", device=device) for device in devices}
        self.counters = {device: self.hip.malloc(64, device) for device in devices}

    def play(self, steps: Sequence[dict[str, Any]]) -> list[float]:
        self.now: dict[str, tuple[int, int, int]] = {}  # name: pointer, owner, bytes
        self.ever: dict[str, int] = {}
        self.seconds: list[float] = []
        for step in steps:
            asked = dict(step)
            getattr(self, asked.pop("do"))(**asked)
        for name in list(self.now):
            self.free(name)
        return self.seconds

    def allocate(self, name: str, owner: int, nbytes: int, managed: bool, where: str) -> None:
        hip, spare = self.hip, []
        while True:
            hip.set_device(max(owner, 0))
            if owner == HOST:
                pointer = hip.host_malloc(nbytes)
            elif managed:
                pointer = int(hip.value(ctypes.c_void_p, "hipMallocManaged", nbytes, ctypes.c_uint(1)))
            else:
                pointer = hip.malloc(nbytes, owner)
            if not where or pointer == self.ever[where]:
                break
            spare.append(pointer)
            assert len(spare) < 50, f"no buffer came to lie where {where} was"
        for other in spare:
            hip.ok("hipFree", other)
        self.now[name] = pointer, owner, nbytes
        self.ever[name] = pointer

    def free(self, name: str) -> None:
        pointer, owner, _ = self.now.pop(name)
        self.hip.ok("hipHostFree" if owner == HOST else "hipFree", pointer)

    def prefetch(self, name: str, device: int) -> None:
        pointer, _, nbytes = self.now[name]
        self.hip.set_device(0)
        self.hip.ok("hipMemPrefetchAsync", pointer, nbytes, ctypes.c_int(device), 0)
        self.hip.ok("hipDeviceSynchronize")

    def run(self, device: int, legs: list[dict[str, Any]], blocks: int, passes: int, in_step: bool) -> None:
        plan = _Plan(legs_used=len(legs), passes=passes)
        for place, leg in enumerate(legs):
            ends = [self.now[name][0] if name else 0 for name in (leg["source"], leg["target"])]
            plan.legs[place] = _Leg(*ends, leg["nbytes"] // LEG, leg["first_block"], leg["team"] or blocks)
        counter = self.counters[device] if in_step else 0
        self.hip.write(self.counters[device], bytes(4))
        kernel = self.kernels[device]
        with self.hip.stream(device) as stream:
            launch = lambda: self.hip.launch(kernel, blocks, THREADS, plan, 0, counter, stream=stream)  # noqa: E731  # a value here
            self.seconds += event_times(self.hip, self.gate, stream, [launch], device)


def main() -> None:
    player = _Player(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(player.play(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

"""Work of several streams and of the host that begins at one moment on the virtual clock.

    python -m tests.emulator.lanes MODEL

plays what it is told in a process of its own: a line is a JSON list of lanes, the answer to it what :meth:`Lanes.play`
returns.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise

from pytest_transferbench.emulator import activate
from tests.emulator.gate import GATE, Gate
from tests.emulator.hip import HOST, NO_CU, SUCCESS, Hip

COPY = r"""
struct alignas(16) quad { unsigned x, y, z, w; };
extern "C" __global__ void copy(quad* to, const quad* from, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = from[i];
}
"""
BLOCKS, THREADS = 24, 64


@dataclass(frozen=True)
class Copy:
    """One copy by a shader of the lane's device, or by a DMA engine.

    It waits for the end of the copy that ``after`` names: its lane, which stands further up, and its place there.
    """

    source: int
    target: int
    nbytes: int
    by_dma: bool = False
    after: tuple[int, int] | None = None


@dataclass(frozen=True)
class Lane:
    """Copies one after another: in a stream of ``device``, or on the :data:`HOST`, which makes one, by its threads."""

    device: int
    copies: tuple[Copy, ...]
    threads: int = 4


class Lanes:
    """Lanes on the node of this process."""

    def __init__(self, hip: Hip, gate: Gate) -> None:
        self.hip, self.gate = hip, gate
        self._kernels: dict[tuple[str, int], int] = {}

    def play(self, *lanes: Lane) -> list[list[float]]:
        """Return for each lane when each of its copies was over, in seconds since the lane began."""
        hip = self.hip
        for copy in (copy for lane in lanes for copy in lane.copies):
            if min(copy.source, copy.target) >= 0 and copy.source != copy.target:
                hip.enable_peer(copy.source, copy.target)
                hip.enable_peer(copy.target, copy.source)
        pairs = [
            [(self._buffer(c.source, c.nbytes), self._buffer(c.target, c.nbytes)) for c in x.copies] for x in lanes
        ]
        on_gpus = [number for number, lane in enumerate(lanes) if lane.device != HOST]
        events = {
            number: [hip.event(lanes[number].device) for _ in range(1 + len(pairs[number]))] for number in on_gpus
        }
        self.gate.epoch += 1
        with ExitStack() as stack:
            streams = {number: stack.enter_context(hip.stream(lanes[number].device)) for number in on_gpus}
            for number, stream in streams.items():
                gate = self._kernel(GATE, "gate", lanes[number].device)
                assert hip.launch(gate, 1, 1, self.gate.flag, self.gate.epoch, stream=stream) == SUCCESS
                hip.ok("hipEventRecord", events[number][0], stream)
            for number, stream in streams.items():
                for copy, pair, event in zip(lanes[number].copies, pairs[number], events[number][1:], strict=True):
                    if copy.after:
                        earlier = events[copy.after[0]][copy.after[1] + 1]
                        hip.ok("hipStreamWaitEvent", stream, earlier, ctypes.c_uint(0))
                    self._queue(lanes[number].device, copy, pair, stream)
                    hip.ok("hipEventRecord", event, stream)
            self._let_gates_begin(stack)
            self.gate.word.value = self.gate.epoch
            begun = {
                number: hip.activation.begin_host_copy([pair[1]], [pair[0]], lane.copies[0].nbytes, lane.threads)
                for number, lane in enumerate(lanes)
                if lane.device == HOST
                for pair in pairs[number]
            }
            for stream in streams.values():
                hip.ok("hipStreamSynchronize", stream)
            ends = {number: [hip.activation.end_host_copy(handle)] for number, handle in begun.items()}
        for number, recorded in events.items():
            ends[number] = [hip.elapsed_seconds(recorded[0], event) for event in recorded[1:]]
            for event in recorded:
                hip.ok("hipEventDestroy", event)
        for lane, ways in zip(lanes, pairs, strict=True):
            for copy, pair in zip(lane.copies, ways, strict=True):
                for owner, pointer in zip((copy.source, copy.target), pair, strict=True):
                    hip.ok("hipHostFree" if owner == HOST else "hipFree", pointer)
        return [ends[number] for number in range(len(lanes))]

    def _buffer(self, owner: int, nbytes: int) -> int:
        return self.hip.host_malloc(nbytes) if owner == HOST else self.hip.malloc(nbytes, owner)

    def _kernel(self, source: str, name: str, device: int) -> int:
        if (name, device) not in self._kernels:
            self._kernels[name, device] = self.hip.kernel(source, name, device=device)
        return self._kernels[name, device]

    def _queue(self, device: int, copy: Copy, pair: tuple[int, int], stream: int) -> None:
        source, target = pair
        if copy.by_dma:
            self.hip.ok("hipMemcpyAsync", target, source, copy.nbytes, ctypes.c_int(NO_CU), stream)
            return
        kernel = self._kernel(COPY, "copy", device)
        assert self.hip.launch(kernel, BLOCKS, THREADS, target, source, copy.nbytes // 16, stream=stream) == SUCCESS

    def _let_gates_begin(self, stack: ExitStack) -> None:
        """Let the host's clock pass the launch of every gate, so that all see the flag at one moment."""
        idle = stack.enter_context(self.hip.stream(self.hip.model.device.count - 1))
        event = self.hip.event(self.hip.model.device.count - 1)
        for _ in range(2 + int(self.hip.model.gfx.launch_us / self.hip.model.enqueue_us)):
            self.hip.ok("hipEventRecord", event, idle)
        self.hip.ok("hipEventDestroy", event)


def steps(ends: Sequence[float]) -> list[float]:
    """Return what each copy took that was over at these moments."""
    return [end - begin for begin, end in pairwise([0.0, *ends])]


def to_line(lanes: Sequence[Lane]) -> str:
    return json.dumps([asdict(lane) for lane in lanes])


def _from_line(line: str) -> list[Lane]:
    return [
        Lane(lane["device"], tuple(Copy(**copy) for copy in lane["copies"]), lane["threads"])
        for lane in json.loads(line)
    ]


def main() -> None:
    hip = Hip(activate(sys.argv[1]))
    lanes = Lanes(hip, Gate(hip, ctypes.c_uint64.from_address(hip.host_malloc(64))))
    for line in sys.stdin:
        print(json.dumps(lanes.play(*_from_line(line))), flush=True)


if __name__ == "__main__":
    main()

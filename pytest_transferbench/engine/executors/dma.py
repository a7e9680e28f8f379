"""D: the GPU's copy engine, one copy at a time."""

from __future__ import annotations

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors.base import Operands
from pytest_transferbench.runtime import Stream


class DmaExecutor:
    """Queues plain asynchronous copies; every pass is a copy of its own, from the next slice."""

    letter = "D"
    wakes_behind_gate = True
    wake_passes = 2
    """A single pull on H200 takes one of two times, 9 us apart, that alternate with the copies before it. After two
    wake-up copies right before the start event it took the longer one in 24 of 24 medians, after one in every other."""
    stamps_per_launch = 0
    stamps_at = 0
    sums_at = 0

    def __init__(self, context: DeviceContext, operands: Operands) -> None:
        self.stream: Stream | None = context.stream
        self._runtime = context.runtime
        self._operands = operands

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        operands, stream = self._operands, self.stream
        assert stream is not None
        assert operands.destination is not None
        for step in range(passes):
            source = operands.slice_at((first_slice + step) % operands.plan.slices)
            self._runtime.dma_copy(operands.destination, source, operands.nbytes, stream)

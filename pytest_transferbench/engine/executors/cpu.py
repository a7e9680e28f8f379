"""C: host threads. Done when the call returns, so there is nothing to queue and no gate."""

from __future__ import annotations

from pytest_transferbench.engine.executors.base import Operands
from pytest_transferbench.runtime import Runtime, Stream

DEFAULT_THREADS = 4
"""As many as TransferBench's NUM_CPU_SE."""


class CpuExecutor:
    """Copies with host threads, each an equal share of the bytes."""

    letter = "C"
    wakes_behind_gate = False
    wake_passes = 1
    stream: Stream | None = None
    stamps_per_launch = 0
    stamps_at = 0
    sums_at = 0

    def __init__(self, runtime: Runtime, operands: Operands, threads: int) -> None:
        self._runtime = runtime
        self._operands = operands
        self._threads = threads

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        operands = self._operands
        assert operands.destination is not None
        for step in range(passes):
            source = operands.slice_at((first_slice + step) % operands.plan.slices)
            self._runtime.host_copy(operands.destination, source, operands.nbytes, self._threads)

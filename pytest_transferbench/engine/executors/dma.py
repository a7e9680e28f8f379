"""D: the GPU's copy engine, one copy at a time, to one destination after the other."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors.base import Executor, Geometry, Operands, Place
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.runtime import Stream
from pytest_transferbench.transfer import Transfer, memory_kind
from pytest_transferbench.transfer.case import MAX_COPIES, MIN_COPIES


def geometry(transfer: Transfer, node: Node, together: int) -> Geometry:
    """Return one engine, the one that the Transfer names or any."""
    return Geometry(1, part=transfer.executor.sub_index)


def unsupported(transfer: Transfer, node: Node, sub_iterations: int) -> str | None:
    """Return why no copy engine would do what is asked, or would not do it from where it is asked."""
    if operations(transfer, sub_iterations) * MIN_COPIES > MAX_COPIES:
        most = MAX_COPIES // MIN_COPIES // len(transfer.destinations)
        return f"dma queues every sub-iteration by itself: use at most {most} sub-iterations"
    executor = transfer.executor
    if executor.sub_index is not None:
        for memory in (*transfer.sources, *transfer.destinations):
            if not memory_kind(memory.kind).pinned:
                return f"{executor} copies pinned memory alone, and {memory} is not pinned: use D{executor.index}"
    return runs_elsewhere(transfer, node)


def runs_elsewhere(transfer: Transfer, node: Node) -> str | None:
    """Return why the copy would be made by another GPU than the one asked."""
    if node.runtime == "rocm" and transfer.op == "pull" and transfer.owner_of(transfer.sources[0]) != HOST:
        return "ROCm runs a copy between GPUs on the source's DMA engine whatever stream it is given: use push-dma"
    return None


def operations(transfer: Transfer, sub_iterations: int) -> int:
    """Every pass is a copy of its own to every destination."""
    return sub_iterations * len(transfer.destinations)


def remark(transfer: Transfer, node: Node) -> str:
    """Say that the host's clock is all there is where the engine is chosen."""
    return "" if transfer.executor.sub_index is None else "by the host's clock, which waits for every copy"


def make(place: Place, operands: Sequence[Operands], geometry: Geometry, launches: int) -> Executor:
    """Return what makes the one copy in ``operands``."""
    (only,) = operands
    if geometry.part is not None:
        return DmaEngineExecutor(place.gpu, only, geometry.part)
    return DmaExecutor(place.gpu, only)


class DmaExecutor:
    """Queues plain asynchronous copies; every pass is a copy of its own, from the next slice, to each destination."""

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
        for step in range(passes):
            (source,) = operands.slices_at((first_slice + step) % operands.plan.slices)
            for destination in operands.destinations:
                self._runtime.dma_copy(destination, source, operands.nbytes, stream)


class DmaEngineExecutor:
    """Makes the same copies by one engine of the GPU, and waits for each: no stream knows of them."""

    letter = "D"
    wakes_behind_gate = False
    wake_passes = DmaExecutor.wake_passes
    stream: Stream | None = None
    stamps_per_launch = 0
    stamps_at = 0
    sums_at = 0

    def __init__(self, context: DeviceContext, operands: Operands, engine: int) -> None:
        self._operands = operands
        (source,) = operands.sources
        self._copies = [
            (destination, context.runtime.engine_copy(context.index, engine, destination, source))
            for destination in operands.destinations
        ]

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        operands = self._operands
        for step in range(passes):
            (source,) = operands.slices_at((first_slice + step) % operands.plan.slices)
            for destination, copy in self._copies:
                copy(destination, source, operands.nbytes)

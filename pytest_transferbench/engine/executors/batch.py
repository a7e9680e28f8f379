"""B: the GPU's copy engine, handed many copies in one call."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors import dma
from pytest_transferbench.engine.executors.base import Geometry, Operands, Place
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.runtime import Copy, Stream
from pytest_transferbench.transfer import Transfer, format_size
from pytest_transferbench.transfer.case import MAX_COPIES, MIN_COPIES

CUT_BYTES = 256
"""Pieces begin on multiples of this; only the last one ends elsewhere."""
BLIT_BYTES = 1 << 20
"""Up to here ROCm copies between GPUs with a shader unless told otherwise (ROC_P2P_SDMA_SIZE), which no batch can."""
_NEEDED = {"rocm": "hipMemcpyBatchAsync of ROCm 7.1", "cuda": "cudaMemcpyBatchAsync of CUDA 12.8 and cuda-bindings"}


def geometry(transfer: Transfer, node: Node, together: int) -> Geometry:
    """Return how many batch entries each destination's copy is broken into."""
    return Geometry(transfer.subexecutors or 1)


def unsupported(transfer: Transfer, node: Node, sub_iterations: int) -> str | None:
    """Return why there is no batched copy, or why no copy engine would make it from where it is asked."""
    if not node.batch_copy:
        return f"batch needs {_NEEDED.get(node.runtime, 'a GPU')}; found {node.runtime} {node.runtime_version}"
    if operations(transfer, sub_iterations) * MIN_COPIES > MAX_COPIES:
        return f"batch queues every sub-iteration by itself: use at most {MAX_COPIES // MIN_COPIES} sub-iterations"
    return dma.runs_elsewhere(transfer, node)


def operations(transfer: Transfer, sub_iterations: int) -> int:
    """Every pass is a batch of its own."""
    return sub_iterations


def remark(transfer: Transfer, node: Node) -> str:
    """Say that ROCm may copy small pieces between GPUs by other means than its copy engines."""
    longest = cuts(transfer.nbytes, transfer.subexecutors or 1)[0][1]
    gpus = {transfer.owner_of(end) for end in (*transfer.sources, *transfer.destinations)} - {HOST}
    if node.runtime == "rocm" and longest <= BLIT_BYTES and len(gpus) > 1:
        return f"pieces of {format_size(longest)} may be blit: copied by a shader of the runtime"
    return ""


def make(place: Place, operands: Sequence[Operands], geometry: Geometry, launches: int) -> BatchExecutor:
    """Return what makes the one copy in ``operands``."""
    (only,) = operands
    return BatchExecutor(place.gpu, only, geometry.subexecutors)


class BatchExecutor:
    """Queues one batch a pass: for every destination so many pieces, from the next slice."""

    letter = "B"
    wakes_behind_gate = True
    wake_passes = dma.DmaExecutor.wake_passes
    stamps_per_launch = 0
    stamps_at = 0
    sums_at = 0

    def __init__(self, context: DeviceContext, operands: Operands, pieces: int) -> None:
        self.stream: Stream | None = context.stream
        self._runtime = context.runtime
        self._operands = operands
        self._cuts = cuts(operands.nbytes, pieces)

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        operands, stream = self._operands, self.stream
        assert stream is not None
        for step in range(passes):
            (source,) = operands.slices_at((first_slice + step) % operands.plan.slices)
            batch = [
                Copy(destination + start, source + start, length)
                for destination in operands.destinations
                for start, length in self._cuts
            ]
            self._runtime.batch_copy(batch, stream)


def cuts(nbytes: int, pieces: int) -> list[tuple[int, int]]:
    """Return (start, length) of at most ``pieces`` pieces of about equal length that together are ``nbytes``."""
    units = -(-nbytes // CUT_BYTES)
    each = -(-units // pieces) * CUT_BYTES
    return [(start, min(each, nbytes - start)) for start in range(0, nbytes, each)]

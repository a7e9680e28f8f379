"""C: host threads. Done when the call returns, so there is nothing to queue and no gate."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_transferbench.engine.executors.base import Geometry, Operands, Place
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.runtime import Runtime, Stream
from pytest_transferbench.transfer import Transfer

DEFAULT_THREADS = 4
"""As many as TransferBench's NUM_CPU_SE."""


def geometry(transfer: Transfer, node: Node, together: int) -> Geometry:
    """Return as many threads as were asked for."""
    return Geometry(transfer.subexecutors or DEFAULT_THREADS)


def unsupported(transfer: Transfer, node: Node, sub_iterations: int) -> str | None:
    """Return why host threads cannot address the memory of a GPU at one end."""
    for index in sorted({transfer.owner_of(end) for end in (*transfer.sources, *transfer.destinations)} - {HOST}):
        if node.runtime != "rocm":
            return f"cpu cannot address memory of G{index}: CUDA does not map it for the host; use gfx or dma"
        if not node.device(index).large_bar:
            return f"cpu cannot address memory of G{index}: its large BAR is off (set Above 4G Decoding in the BIOS)"
    return None


def operations(transfer: Transfer, sub_iterations: int) -> int:
    """Nothing is queued: the engine counts a copy as one."""
    return 1


def remark(transfer: Transfer, node: Node) -> str:
    """There is nothing to know."""
    return ""


def make(place: Place, operands: Sequence[Operands], geometry: Geometry, launches: int) -> CpuExecutor:
    """Return what makes the one copy in ``operands``."""
    (only,) = operands
    return CpuExecutor(place.runtime, place.index, only, geometry.subexecutors)


class CpuExecutor:
    """Copies or adds up with host threads of one NUMA node, each an equal share of the bytes."""

    letter = "C"
    wakes_behind_gate = False
    wake_passes = 1
    stream: Stream | None = None
    stamps_per_launch = 0
    stamps_at = 0
    sums_at = 0

    def __init__(self, runtime: Runtime, numa_node: int, operands: Operands, threads: int) -> None:
        self._runtime = runtime
        self._numa_node = numa_node
        self._operands = operands
        self._threads = threads

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        operands = self._operands
        for step in range(passes):
            sources = operands.slices_at((first_slice + step) % operands.plan.slices)
            destinations, nbytes = operands.destinations, operands.nbytes
            self._runtime.host_copy(destinations, sources, nbytes, self._threads, self._numa_node)

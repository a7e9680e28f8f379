"""Who moves the bytes, a file a letter; and what each cannot do on a given node."""

from __future__ import annotations

from pytest_transferbench.engine.executors import cpu, gfx
from pytest_transferbench.engine.executors.base import Executor, Geometry, Operands
from pytest_transferbench.engine.executors.cpu import CpuExecutor
from pytest_transferbench.engine.executors.dma import DmaExecutor
from pytest_transferbench.engine.executors.gfx import GfxExecutor, GfxManyExecutor
from pytest_transferbench.engine.memory_kinds import unsupported_memory, unsupported_threads
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.transfer import AnyTransfer, Message, Transfer, TransferOrTest
from pytest_transferbench.transfer.case import MAX_COPIES, MIN_COPIES

__all__ = [
    "CpuExecutor",
    "DmaExecutor",
    "Executor",
    "Geometry",
    "GfxExecutor",
    "GfxManyExecutor",
    "Operands",
    "devices_of",
    "geometry_of",
    "link_of",
    "passes_per_launch",
    "unsupported",
]


def geometry_of(transfer: TransferOrTest, node: Node) -> Geometry:
    """Return the sub-executors that will run ``transfer``, or each one of a Test, on ``node``."""
    if transfer.executor.kind == "G":
        device = node.device(transfer.executor.index)
        together = len(transfer.transfers)
        return gfx.geometry(device, transfer.nbytes, transfer.subexecutors, transfer.op == "local", together)
    if transfer.executor.kind == "C":
        return Geometry(transfer.subexecutors or cpu.DEFAULT_THREADS)
    return Geometry(1)


def passes_per_launch(transfer: TransferOrTest, sub_iterations: int) -> int:
    """Return how many operations one copy of ``sub_iterations`` passes queues on its stream."""
    return sub_iterations if transfer.executor.kind == "D" else 1


def link_of(transfer: Transfer | Message) -> tuple[int, int]:
    """Return the two ends (devices or ``HOST``) of the link under test; a null end counts as the executor's."""
    return transfer.owner_of(transfer.sources[0]), transfer.owner_of(transfer.destinations[0])


def devices_of(transfer: AnyTransfer) -> set[int]:
    """Return the GPUs that ``transfer`` touches: where its ends are, and where it is carried out."""
    ends = [end for each in transfer.transfers for end in link_of(each)]
    return {end for end in (*ends, transfer.executor.owner) if end != HOST}


def unsupported(transfer: TransferOrTest, node: Node, sub_iterations: int = 1) -> str | None:
    """Return, in one line, why ``node`` cannot run ``transfer``; ``None`` when it can.

    A function of recorded facts alone: nothing is opened or allocated to answer.
    """
    reasons = (_unsupported(each, node, sub_iterations) for each in transfer.transfers)
    return next((reason for reason in reasons if reason is not None), None)


def _unsupported(transfer: Transfer, node: Node, sub_iterations: int) -> str | None:
    source, destination = link_of(transfer)
    executor = transfer.executor
    devices = {device.index for device in node.devices}
    needed = devices_of(transfer)
    if not needed <= devices:
        missing = ", ".join(f"G{index}" for index in sorted(needed - devices))
        return f"{transfer.notation()} needs {missing}; this node has {node.describe_indices()}"
    for memory in (*transfer.sources, *transfer.destinations):
        reason = unsupported_memory(memory, executor, node)
        if reason:
            return reason
    if executor.on == "host" and (reason := unsupported_threads(executor.index, node)):
        return reason
    if executor.kind == "C":
        reason = _host_reach(needed, node)
        if reason:
            return reason
    elif executor.kind == "D":
        if node.runtime == "rocm" and transfer.op == "pull" and source != HOST:
            return "ROCm runs a copy between GPUs on the source's DMA engine whatever stream it is given: use push-dma"
        if sub_iterations * MIN_COPIES > MAX_COPIES:
            return f"dma queues every sub-iteration by itself: use at most {MAX_COPIES // MIN_COPIES} sub-iterations"
    for end in (source, destination):
        if executor.on == "device" and end != HOST and end != executor.owner:
            for one, other in ((executor.owner, end), (end, executor.owner)):
                if not node.link(one, other).peer_access:
                    return f"G{one} has no peer access to G{other}: IOMMU, ACS or the topology forbids it"
    return None


def _host_reach(devices: set[int], node: Node) -> str | None:
    for index in sorted(devices):
        if node.runtime != "rocm":
            return f"cpu cannot address memory of G{index}: CUDA does not map it for the host; use gfx or dma"
        if not node.device(index).large_bar:
            return f"cpu cannot address memory of G{index}: its large BAR is off (set Above 4G Decoding in the BIOS)"
    return None

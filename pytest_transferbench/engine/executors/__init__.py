"""Who moves the bytes, a file a letter; and what each cannot do on a given node."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import cast

from pytest_transferbench.engine.executors import gfx
from pytest_transferbench.engine.executors.base import Executor, ExecutorFile, Geometry, Operands, Place
from pytest_transferbench.engine.memory_kinds import unsupported_memory, unsupported_threads
from pytest_transferbench.engine.parts import unsupported_part
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.transfer import AnyTransfer, Message, Test, Transfer, TransferOrTest, executor_kind

__all__ = [
    "Executor",
    "Geometry",
    "Operands",
    "Place",
    "devices_of",
    "file_of",
    "geometry_of",
    "gfx",
    "link_of",
    "unsupported",
]


def file_of(transfer: TransferOrTest) -> ExecutorFile:
    """Return the file of this folder that runs ``transfer``: it bears the word of the executor's letter."""
    word = executor_kind(transfer.executor.kind).word
    return cast("ExecutorFile", importlib.import_module(f"{__name__}.{word}"))


def geometry_of(transfer: TransferOrTest, node: Node, block_threads: int = 0, unroll: int = 0) -> Geometry:
    """Return the sub-executors that will run ``transfer``, or each one of a Test, on ``node``.

    ``block_threads`` and ``unroll`` shape a kernel where they are not 0.
    """
    together = transfer.transfers
    geometry = file_of(transfer).geometry(together[0], node, len(together))
    if not geometry.block_threads:
        return geometry
    return replace(geometry, block_threads=block_threads or geometry.block_threads, unroll=unroll or geometry.unroll)


def link_of(transfer: Transfer | Message) -> tuple[int, int]:
    """Return the two ends (devices or ``HOST``) of the link under test; a null end counts as the executor's.

    Of several sources or destinations these are the first.
    """
    return transfer.owner_of(transfer.sources[0]), transfer.owner_of(transfer.destinations[0])


def devices_of(transfer: AnyTransfer) -> set[int]:
    """Return the GPUs that ``transfer`` touches: where its ends are, and where it is carried out."""
    return set(transfer.owners - {HOST})


def unsupported(transfer: TransferOrTest, node: Node, sub_iterations: int = 1) -> str | None:
    """Return, in one line, why ``node`` cannot run ``transfer``; ``None`` when it can.

    A function of recorded facts alone: nothing is opened or allocated to answer.
    """
    reasons = (_unsupported(each, node, sub_iterations) for each in transfer.transfers)
    return _not_run_yet(transfer) or next((reason for reason in reasons if reason is not None), None)


def _not_run_yet(transfer: TransferOrTest) -> str | None:
    """Say what a Transfer or a Test may be, and no executor carries out."""
    first = transfer.transfers[0]
    for each in transfer.transfers[1:]:
        for what, mine, common in (
            ("executor", each.executor, first.executor),
            ("op", each.op, first.op),
            ("bytes", each.nbytes, first.nbytes),
            ("subexecutors", each.subexecutors, first.subexecutors),
        ):
            if mine != common:
                return f"{first.notation()} and {each.notation()} differ in {what}: such a Test is not run"
    if isinstance(transfer, Test):
        for each in transfer.transfers:
            ends = (*each.sources, *each.destinations)
            if each.executor.kind != "G" or len(ends) > 2 or any(memory.on == "none" for memory in ends):
                return f"{each.notation()} in a Test: only gfx from one memory to another is run there"
    return None


def _unsupported(transfer: Transfer, node: Node, sub_iterations: int) -> str | None:
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
    if executor.sub_index is not None:
        reason = unsupported_part(executor.kind, executor.index, executor.sub_index, node)
        if reason:
            return reason
    if executor.on == "host" and (reason := unsupported_threads(executor.index, node)):
        return reason
    for end in sorted(transfer.owners):
        if executor.on == "device" and end != HOST and end != executor.owner:
            for one, other in ((executor.owner, end), (end, executor.owner)):
                if not node.link(one, other).peer_access:
                    return f"G{one} has no peer access to G{other}: IOMMU, ACS or the topology forbids it"
    return file_of(transfer).unsupported(transfer, node, sub_iterations)

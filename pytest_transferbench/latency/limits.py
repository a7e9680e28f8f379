"""What messages a node can send, as far as recorded facts tell; and about how long they take."""

from __future__ import annotations

from pytest_transferbench.node import Node
from pytest_transferbench.transfer import NOMINAL_GBPS, MessageCase, format_size

MOST_LINES = 2**31
"""Kernels count lines in 32 bits, and go past the last one by some turns of all their blocks."""
_SECONDS_A_MESSAGE = 5e-6
_EMULATED_WORDS_A_SECOND = 3e6


def ring_kind(case: MessageCase, node: Node) -> str:
    """Return the letter of the memory in which ring and ACK lie: uncached on AMD, plain on NVIDIA, or as asked."""
    return case.ring_kind or ("U" if node.runtime == "rocm" else "G")


def unsupported(case: MessageCase, node: Node) -> str | None:
    """Return, in one line, why ``node`` cannot send the message of ``case``; ``None`` when it can.

    Raises ``ValueError``, in one line, for what was asked for and would never work on this node.
    """
    message = case.transfer
    source, destination = message.source.index, message.destination.index
    there = {device.index for device in node.devices}
    absent = sorted({source, destination} - there)
    if absent:
        names = ", ".join(f"G{index}" for index in absent)
        return f"{message.notation()} needs {names}; this node has {node.describe_indices()}"
    _check_lines(case)
    _check_blocks(case, node)
    _check_ring(case, node)
    if not message.loopback:
        for one, other in ((source, destination), (destination, source)):
            if not node.link(one, other).peer_access:
                return f"G{one} has no peer access to G{other}: IOMMU, ACS or the topology forbids it"
    return None


def _check_lines(case: MessageCase) -> None:
    message = case.transfer
    lines, most = message.protocol.lines(message.nbytes), MOST_LINES * message.protocol.data_bytes
    if lines > MOST_LINES:
        raise ValueError(
            f"{message.notation()} takes {lines} lines: a message has at most {MOST_LINES}, "
            f"{format_size(most)} by {message.protocol.name}"
        )


def _check_blocks(case: MessageCase, node: Node) -> None:
    """Blocks wait for one another: all have to run at the same time, and one is all that a compute unit surely runs.

    A loopback has both sides on one GPU.
    """
    message = case.transfer
    for end in (message.source.index, message.destination.index):
        units = node.device(end).compute_units
        most = units // (2 if message.loopback else 1)
        if case.blocks > most:
            raise ValueError(
                f"{message.notation()} by {case.blocks} blocks: GPU {end} surely runs {most} of them at the same time, "
                f"on {units} compute units; use --transfer-ll-blocks={most} or less"
            )


def _check_ring(case: MessageCase, node: Node) -> None:
    kind = ring_kind(case, node)
    if kind != "G" and node.runtime == "cuda":
        raise ValueError("uncached and fine-grained ring memory are AMD's: use --transfer-ll-memory=coarse on CUDA")
    # The ring's writer is the source, the ACK's the destination: either would keep its stores.
    ends = (case.transfer.source.index, case.transfer.destination.index)
    archs = {node.device(end).arch.partition(":")[0] for end in ends}
    if kind == "G" and "gfx90a" in archs and not case.transfer.loopback:
        raise ValueError(
            "a coarse ring cannot work on gfx90a: stores to a peer's coarse memory stay in the writer's L2, the flag "
            "never comes; use --transfer-ll-memory=uncached or fine"
        )


def estimate_seconds(case: MessageCase, node: Node) -> float:
    """Return about how long ``case`` takes on ``node``, for the header; nothing is opened to tell."""
    message = case.transfer
    wire_bytes = message.protocol.lines(message.nbytes) * message.protocol.line_bytes
    count = case.samples + case.warmups
    if node.emulated:
        return 0.2 + count * wire_bytes / 8 / _EMULATED_WORDS_A_SECOND
    link_class = node.link(message.source.index, message.destination.index).link_class
    return 0.1 + count * (_SECONDS_A_MESSAGE + wire_bytes / (NOMINAL_GBPS[link_class] * 1e9))

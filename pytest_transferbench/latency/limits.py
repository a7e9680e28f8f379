"""What messages a node can send, as far as recorded facts tell; and about how long they take."""

from __future__ import annotations

from pytest_transferbench.node import Node
from pytest_transferbench.transfer import NOMINAL_GBPS, MessageCase

BLOCKS_A_COMPUTE_UNIT = 1
"""Blocks that certainly run at the same time on one compute unit, whatever else is on the GPU."""
_MICROSECONDS_A_MESSAGE = 5e-6
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
    _check_blocks(case, node)
    _check_ring(case, node)
    if not message.loopback:
        for one, other in ((source, destination), (destination, source)):
            if not node.link(one, other).peer_access:
                return f"G{one} has no peer access to G{other}: IOMMU, ACS or the topology forbids it"
    return None


def _check_blocks(case: MessageCase, node: Node) -> None:
    """Blocks wait for one another, so all have to run at the same time; a loopback has both sides on one GPU."""
    message = case.transfer
    for end in (message.source.index, message.destination.index):
        units = node.device(end).compute_units
        most = units * BLOCKS_A_COMPUTE_UNIT // (2 if message.loopback else 1)
        if case.blocks > most:
            raise ValueError(
                f"{message.notation()} by {case.blocks} blocks: GPU {end} surely runs {most} of them at the same time, "
                f"on {units} compute units; use --transfer-ll-blocks={most} or less"
            )


def _check_ring(case: MessageCase, node: Node) -> None:
    kind = ring_kind(case, node)
    if kind != "G" and node.runtime == "cuda":
        raise ValueError("uncached and fine-grained ring memory are AMD's: use --transfer-ll-memory=coarse on CUDA")
    arch = node.device(case.transfer.destination.index).arch.partition(":")[0]
    if kind == "G" and arch == "gfx90a" and not case.transfer.loopback:
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
    return 0.1 + count * (_MICROSECONDS_A_MESSAGE + wire_bytes / (NOMINAL_GBPS[link_class] * 1e9))

"""What a healthy GPU reaches: figures somebody published of its kind, or a share of what its links and memory could."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_transferbench.judge.ceilings import ceiling_for
from pytest_transferbench.node import Device, Node
from pytest_transferbench.transfer import Memory, Transfer, parse_size

PUBLISHED_SHARE = 0.97
"""Of a published figure: TransferBench's own factor."""
CEILING_SHARE = 0.5
"""Of a raw rate: the worst that is published of healthy devices is 57 % (local copies of an MI355X)."""
CEILING_FROM_BYTES = 64 << 20
"""Smaller transfers are too short to fill a link."""


@dataclass(frozen=True)
class Reference:
    """A published figure in GB/s of one kind of Transfer on one kind of GPU.

    ``arch`` and ``compute_units`` must be the GPU's own, and ``name`` part of its name. ``transfer`` has the letters of
    source, executor and destination, ``C->D->G``. Transfers of at least ``from_bytes`` bytes can be held against it.
    """

    arch: str
    compute_units: int
    name: str
    op: str
    transfer: str
    gbps: float
    from_bytes: int
    source: str
    read: str

    def is_about(self, transfer: Transfer, device: Device) -> bool:
        """Tell whether ``transfer``, carried out by ``device``, can be held against this figure."""
        letters = [*_letters(transfer.sources), transfer.executor.kind, *_letters(transfer.destinations)]
        return (
            (device.arch, device.compute_units) == (self.arch, self.compute_units)
            and self.name in device.name
            and (transfer.op, "->".join(letters)) == (self.op, self.transfer)
            and transfer.nbytes >= self.from_bytes
        )


@dataclass(frozen=True)
class Floor:
    """The least that a healthy device reaches, in GB/s, and in words where that comes from."""

    gbps: float
    source: str


def _letters(memories: Iterable[Memory]) -> list[str]:
    return [memory.kind for memory in memories]


def read_references(text: str) -> tuple[Reference, ...]:
    """Return the figures of a TOML ``text`` of tables ``[[reference]]``; raises ``ValueError`` for one that is none."""
    references = []
    for number, row in enumerate(tomllib.loads(text).get("reference", []), 1):
        given = {**row, "read": str(row.get("read")), "name": row.get("name", "")}
        given["from_bytes"] = parse_size(str(given.pop("from", "0")))
        try:
            reference = Reference(**given)
        except TypeError as error:
            raise ValueError(f"reference {number}: {error}") from None
        if not reference.gbps > 0 or not reference.source or reference.read == "None":
            raise ValueError(
                f"reference {number}: it needs gbps above 0, a source, and the date on which that was read"
            )
        references.append(reference)
    return tuple(references)


def floor_for(transfer: Transfer, node: Node, references: Iterable[Reference]) -> Floor | None:
    """Return what ``transfer`` has to reach on a healthy ``node``; ``None`` where nothing is known to hold it against.

    A published figure comes before a share of the raw rate.
    """
    if transfer.executor.on == "device":
        device = node.device(transfer.executor.owner)
        for reference in references:
            if reference.is_about(transfer, device):
                said = f"{PUBLISHED_SHARE} x {reference.gbps} GB/s: {reference.source}, read {reference.read}"
                return Floor(PUBLISHED_SHARE * reference.gbps, said)
    ceiling = ceiling_for(transfer, node)
    if ceiling is None or transfer.nbytes < CEILING_FROM_BYTES:
        return None
    return Floor(CEILING_SHARE * ceiling.gbps, f"{CEILING_SHARE} x {ceiling.gbps:.1f} GB/s: {ceiling.source}")

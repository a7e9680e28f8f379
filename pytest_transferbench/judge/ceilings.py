"""What the way of a Transfer can carry at most: above it a figure is wrong, however pleasant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeGuard

from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import Node
from pytest_transferbench.transfer import Transfer, format_size

RUN_CEILING_FACTOR = 1.15
"""How far a pair's smaller sizes may stand above its largest before they count as impossible."""


@dataclass(frozen=True)
class Ceiling:
    """The most a Transfer can reach, in GB/s (1e9 bytes a second), and in words where that comes from."""

    gbps: float
    source: str


def ceiling_for(transfer: Transfer, node: Node) -> Ceiling | None:
    """Return the ceiling of ``transfer`` on ``node``; ``None`` where no rate of its way is known.

    Between owners it is the raw rate of the slower link on the way. Where the executor owns both ends it is what
    that GPU's memory reads plus writes: half of it for a copy, all of it for reading or writing alone.
    """
    if transfer.op == "local":
        return _memory_ceiling(transfer, node)
    executor = transfer.executor.owner
    hops = [(transfer.owner_of(memory), executor) for memory in transfer.sources]
    hops += [(executor, transfer.owner_of(memory)) for memory in transfer.destinations]
    ceilings = [ceiling for start, end in hops if start != end and (ceiling := _link_ceiling(start, end, node))]
    # An unknown hop could only lower what a known one allows.
    return min(ceilings, key=lambda ceiling: ceiling.gbps, default=None)


def _link_ceiling(start: int, end: int, node: Node) -> Ceiling | None:
    try:
        link = node.link(start, end)
    except KeyError:
        return None
    return Ceiling(link.gbps, f"{link.link_class}, {link.source_of_rate}") if _is_rate(link.gbps) else None


def _memory_ceiling(transfer: Transfer, node: Node) -> Ceiling | None:
    owner = transfer.executor.owner
    try:
        rate = node.device(owner).memory_gbps
    except KeyError:  # the host, whose memory rate no source tells
        return None
    if not _is_rate(rate):
        return None
    if any(memory.on == "none" for memory in (*transfer.sources, *transfer.destinations)):
        return Ceiling(rate, f"GPU {owner}'s memory, {rate:.1f} GB/s")
    return Ceiling(rate / 2, f"GPU {owner}'s memory, {rate:.1f} GB/s for reads and writes together")


class RunCeilings:
    """Ceilings for pairs whose rate nobody tells: 1.15 x what the pair's largest size reached in this run.

    ``transfers`` are all cases there are, the deselected too: a pair is judged by its largest size or not at all.
    Transfers are of one pair when they differ in nothing but size and SubExecutors. The caller runs each pair's
    largest size first and hands every measurement to :meth:`record`.
    """

    def __init__(self, transfers: Iterable[Transfer]) -> None:
        self._largest: dict[object, int] = {}
        self._medians: dict[object, float] = {}
        for transfer in transfers:
            pair = _pair(transfer)
            self._largest[pair] = max(transfer.nbytes, self._largest.get(pair, 0))

    def record(self, measurement: Measurement) -> None:
        """Keep the steady median of ``measurement`` if it is its pair's largest size, rotated, and passed.

        Call it after judging, with the verdicts in the measurement.
        """
        pair = _pair(measurement.transfer)
        fit = measurement.method["rotate_bytes"] != 0 and not any(finding.fails for finding in measurement.verdicts)
        if fit and measurement.nbytes == self._largest.get(pair) and _is_rate(measurement.gbps):
            self._medians[pair] = float(measurement.gbps)

    def ceiling_for(self, transfer: Transfer) -> Ceiling | None:
        """Return the ceiling of ``transfer`` by this run, ``None`` where :meth:`why_not` says why there is none."""
        if self.why_not(transfer) is not None:
            return None
        median = self._medians[_pair(transfer)]
        size = format_size(self._largest[_pair(transfer)])
        return Ceiling(
            RUN_CEILING_FACTOR * median, f"{RUN_CEILING_FACTOR} x this pair's {size} median of {median:.1f} GB/s"
        )

    def why_not(self, transfer: Transfer) -> str | None:
        """Return, in one line for the record, why ``transfer`` has no ceiling by this run; ``None`` if it has one."""
        pair = _pair(transfer)
        largest = self._largest.get(pair)
        if largest is None:
            return "no ceiling: no link rate is known, and this run has no other size of this pair"
        if transfer.nbytes >= largest:
            return "no ceiling: no link rate is known, and this is its pair's largest size"
        if pair not in self._medians:
            return f"no ceiling: no link rate is known, and this pair's {format_size(largest)} gave no rotated median"
        return None


def _pair(transfer: Transfer) -> object:
    return transfer.sources, transfer.executor, transfer.destinations


def _is_rate(gbps: float | None) -> TypeGuard[float]:
    return gbps is not None and 0 < gbps < math.inf

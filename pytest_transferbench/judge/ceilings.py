"""What the way of a Transfer can carry at most: above it a figure is wrong, however pleasant."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import Link, LinkClass, Node
from pytest_transferbench.transfer import AnyTransfer, Message, Test, Transfer, format_size

RUN_CEILING_FACTOR = 1.15
"""How far a pair's smaller sizes may stand above its largest before they count as impossible."""


@dataclass(frozen=True)
class Ceiling:
    """The most a Transfer or a Test can reach, in GB/s (1e9 bytes a second), and in words where that comes from."""

    gbps: float
    source: str


def ceiling_for(transfer: AnyTransfer, node: Node) -> Ceiling | None:
    """Return the ceiling of ``transfer`` on ``node``; ``None`` where no rate of its way is known.

    Between owners it is the raw rate of the slowest link on the way. Where the executor owns all ends it is what
    that GPU's memory reads plus writes, shared by the ends: half of it for a copy, all of it for reading or writing
    alone. A Test can reach the sum over the ways its Transfers take, and over the memories they copy within, one they
    share counted once; a single unknown one leaves it without a ceiling. Of a Message's bytes only a share is data,
    and within one GPU it has no way to be held against.
    """
    if isinstance(transfer, Message):
        return _ceiling_of_message(transfer, node)
    if isinstance(transfer, Test):
        return _ceiling_of_test(transfer, node)
    if transfer.op == "local":
        return _memory_ceiling(transfer, node)
    link = _slowest_link(transfer, node)
    return _ceiling_of_link(link) if link else None


def _ceiling_of_message(message: Message, node: Node) -> Ceiling | None:
    link = _slowest_link(message, node)
    if link is None:
        return None
    share, whole = message.protocol.wire_efficiency, _ceiling_of_link(link)
    return Ceiling(whole.gbps * share, f"{whole.source}, {100 * share:g} % of which is data")


def _ceiling_of_test(test: Test, node: Node) -> Ceiling | None:
    by_way: dict[object, list[tuple[Link, int]]] = defaultdict(list)
    by_memory: dict[int, list[Ceiling]] = defaultdict(list)
    for transfer in test.transfers:
        executor = transfer.executor.owner
        memory = _memory_ceiling(transfer, node) if transfer.op == "local" else None
        link = _slowest_link(transfer, node)
        if memory is not None:
            by_memory[executor].append(memory)
        elif link is not None:
            by_way[_way(link, executor, node)].append((link, executor))
        else:
            return None
    memories = [max(ceilings, key=_gbps) for ceilings in by_memory.values()]
    if len(memories) == 1 and not by_way:
        return memories[0]
    ways = [each for way, taken in by_way.items() for each in _ceilings_of_way(way, taken, node)] + memories
    parts = [f"{count} x {way.gbps:.1f} GB/s {way.source}" for way, count in Counter(ways).items()]
    return Ceiling(sum(way.gbps for way in ways), " + ".join(parts))


def _ceilings_of_way(way: object, taken: Sequence[tuple[Link, int]], node: Node) -> list[Ceiling]:
    """Return what each link ``taken`` carries, or what their common way does where that is less than their sum.

    With each link comes the executor that takes it.
    """
    links, executors = [link for link, _ in taken], {executor for _, executor in taken}
    others = [
        link
        for link in node.links
        for executor in executors
        if _is_rate(link.gbps) and _touches(link, executor) and _way(link, executor, node) == way
    ]
    whole = max(map(_ceiling_of_link, [*links, *others]), key=_gbps)
    times = Counter(_ends(link) for link in links)
    each = {_ends(link): _used(_ceiling_of_link(link), times[_ends(link)]) for link in links}
    return list(each.values()) if sum(map(_gbps, each.values())) <= whole.gbps else [_used(whole, len(taken))]


def _used(ceiling: Ceiling, times: int) -> Ceiling:
    """Say in a ceiling's words that several Transfers share it."""
    return ceiling if times == 1 else Ceiling(ceiling.gbps, f"{ceiling.source}, one way for {times} Transfers")


def _way(link: Link, executor: int, node: Node) -> object:
    """Return what carries ``link``'s bytes to or from ``executor``: equal for links that share it.

    Everything over PCIe passes the GPU's one slot, everything through NVLink switches the GPU's own links. xGMI
    joins two physical GPUs, whichever of their partitions talk. Of other classes each pair counts as a way of its
    own: a ceiling may be too high, never too low.
    """
    inward = link.destination == executor
    if link.link_class in (LinkClass.PCIE, LinkClass.HOST):
        return "PCIe", executor, inward
    if link.link_class is LinkClass.NVLINK and link.hops is not None and link.hops > 1:
        return "NVLink", executor, inward
    if link.link_class is LinkClass.XGMI:
        physical = {device.index: device.physical_gpu or device.index for device in node.devices}
        return tuple(physical.get(end, end) for end in _ends(link))
    return _ends(link)


def _slowest_link(transfer: Transfer | Message, node: Node) -> Link | None:
    """Return the slowest link of known rate on the way; an unknown one could only lower what that allows."""
    executor = transfer.executor.owner
    hops = [(transfer.owner_of(memory), executor) for memory in transfer.sources]
    hops += [(executor, transfer.owner_of(memory)) for memory in transfer.destinations]
    known = {_ends(link): link for link in node.links if _is_rate(link.gbps)}
    links = [known[hop] for hop in hops if hop[0] != hop[1] and hop in known]
    return min(links, key=lambda link: link.gbps or math.inf, default=None)


def _ceiling_of_link(link: Link) -> Ceiling:
    return Ceiling(link.gbps or math.inf, f"{link.link_class}, {link.source_of_rate}")


def _ends(link: Link) -> tuple[int, int]:
    return link.source, link.destination


def _touches(link: Link, executor: int) -> bool:
    return link.source != link.destination and executor in _ends(link)


def _gbps(ceiling: Ceiling) -> float:
    return ceiling.gbps


def _memory_ceiling(transfer: Transfer, node: Node) -> Ceiling | None:
    owner = transfer.executor.owner
    try:
        rate = node.device(owner).memory_gbps
    except KeyError:  # the host, whose memory rate no source tells
        return None
    if not _is_rate(rate):
        return None
    ends = sum(memory.on != "none" for memory in (*transfer.sources, *transfer.destinations))
    together = " for reads and writes together" if ends > 1 else ""
    return Ceiling(rate / ends, f"GPU {owner}'s memory, {rate:.1f} GB/s{together}")


class RunCeilings:
    """Ceilings for pairs whose rate nobody tells: 1.15 x what the pair's largest size reached in this run.

    ``transfers`` are all cases there are, the deselected too: a pair is judged by its largest size or not at all.
    Transfers are of one pair when they differ in nothing but size and SubExecutors, and Tests when theirs do, all
    sizes in one proportion. The caller runs each pair's
    largest size first and hands every measurement to :meth:`record`.
    """

    def __init__(self, transfers: Iterable[AnyTransfer]) -> None:
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
        fit = measurement.method.get("rotated", False) and not any(finding.fails for finding in measurement.verdicts)
        if fit and measurement.nbytes == self._largest.get(pair) and _is_rate(measurement.gbps):
            self._medians[pair] = float(measurement.gbps)

    def ceiling_for(self, transfer: AnyTransfer) -> Ceiling | None:
        """Return the ceiling of ``transfer`` by this run, ``None`` where :meth:`why_not` says why there is none."""
        if self.why_not(transfer) is not None:
            return None
        median = self._medians[_pair(transfer)]
        size = format_size(self._largest[_pair(transfer)])
        return Ceiling(
            RUN_CEILING_FACTOR * median, f"{RUN_CEILING_FACTOR} x this pair's {size} median of {median:.1f} GB/s"
        )

    def why_not(self, transfer: AnyTransfer) -> str | None:
        """Return, in one line for the record, why ``transfer`` has no ceiling by this run; ``None`` if it has one."""
        if isinstance(transfer, Message):
            return "no ceiling: no link rate is known, and a message's own figures grow with its size"
        pair = _pair(transfer)
        largest = self._largest.get(pair)
        if largest is None:
            return "no ceiling: no link rate is known, and this run has no other size of this pair"
        if transfer.nbytes >= largest:
            return "no ceiling: no link rate is known, and this is its pair's largest size"
        if pair not in self._medians:
            return f"no ceiling: no link rate is known, and this pair's {format_size(largest)} gave no rotated median"
        return None


def _pair(transfer: AnyTransfer) -> object:
    if not isinstance(transfer, Test):
        return transfer.sources, transfer.executor, transfer.destinations
    return tuple(
        (each.sources, each.executor, each.destinations, Fraction(each.nbytes, transfer.nbytes))
        for each in transfer.transfers
    )


def _is_rate(gbps: float | None) -> TypeGuard[float]:
    return gbps is not None and 0 < gbps < math.inf

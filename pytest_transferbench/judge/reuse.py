"""Which cache may answer a read that is repeated: what a transfer without rotation must show on a node.

Two artefacts that must not be mistaken for each other. A cache *shared with the peer*, before the memory of one
physical GPU, answers the reads of all its partitions, from one launch to the next. The *reader's own* cache keeps what
one launch has read from a peer and answers it again inside that launch; the next launch starts without it.
"""

from __future__ import annotations

import enum

from pytest_transferbench.judge.verdict import DEFAULT_LIMITS
from pytest_transferbench.node import HOST, Device, LinkClass, Node
from pytest_transferbench.transfer import Case, Test

SHARED_CACHE_MEASURED = ("gfx1250",)
"""Architectures whose partitions are known to answer each other from one cache, and how much of it."""
READER_SIDE_MEASURED = ("sm_90",)
"""Architectures whose own cache is known to answer what one launch reads again."""
READER_SIDE_MIN_BYTES, READER_SIDE_MIN_PASSES = 256 * 2**10, 64
"""The least that was measured of it: below, what a launch costs hides how fast its later passes are."""
FITS, EXCEEDS = 64 / 96, 128 / 96
"""Shares of a cache's size below which everything hits, and above which nothing does. Source: gfx1250 in DPX mode,
where pulls of 64M were answered whole and those of 128M not at all; its cache is taken for the 96 MiB between. What
lies between was not measured, and depends on the rest of what is in the cache."""


class Reuse(enum.StrEnum):
    """What answers the repeated reads of a case that does not rotate."""

    NONE = "none"
    SHARED_CACHE = "cache shared with the peer"
    READER_SIDE = "reader-side reuse"
    UNKNOWN = "unknown"


def reuse_without_rotation(case: Case, node: Node) -> Reuse:
    """Return what must answer the repeated reads of ``case``, rotation off, on ``node``; UNKNOWN makes no claim.

    A claim about caches is made of architectures on which it was measured, and of no other: gfx1250 in DPX and SPX
    mode, by TransferBench's source rotation, and two H200 joined by NVLink, docs/measured.
    """
    transfer = case.transfer
    if any(executor.kind != "G" for executor in transfer.executors):
        return Reuse.UNKNOWN
    if isinstance(transfer, Test):
        return _of_test(transfer, case.sub_iterations, node)
    if len(transfer.sources) > 1 or len(transfer.destinations) > 1:
        return Reuse.UNKNOWN  # the slowest of several ways may hide what a cache answers on another
    source, destination = transfer.owner_of(transfer.sources[0]), transfer.owner_of(transfer.destinations[0])
    if HOST in (source, destination):
        return Reuse.UNKNOWN
    if transfer.op == "push":
        return Reuse.NONE  # a remote write is published whatever the caches hold
    if node.link(source, destination).link_class is LinkClass.ON_DIE:
        return _in_shared_cache(transfer.nbytes, node.device(source))
    if transfer.op == "pull" and case.sub_iterations == 1:
        return Reuse.NONE
    return _at_reader(transfer.nbytes, case.sub_iterations, node.device(transfer.executor.owner))


def _of_test(test: Test, passes: int, node: Node) -> Reuse:
    """Several ways are read at once and the slowest decides: those that a cache answers hide behind a link."""
    if test.op == "push":
        return Reuse.NONE
    if test.op == "mixed" or any(len(each.sources) > 1 or len(each.destinations) > 1 for each in test.transfers):
        return Reuse.UNKNOWN
    ways = (node.link(each.owner_of(each.sources[0]), each.owner_of(each.destinations[0])) for each in test.transfers)
    over_a_link = any(way.link_class not in (LinkClass.LOCAL, LinkClass.ON_DIE, LinkClass.HOST) for way in ways)
    return Reuse.NONE if over_a_link and passes == 1 else Reuse.UNKNOWN


def _in_shared_cache(nbytes: int, source: Device) -> Reuse:
    if not _is_one_of(source, SHARED_CACHE_MEASURED) or nbytes < DEFAULT_LIMITS.contaminated_min_nbytes:
        return Reuse.UNKNOWN  # smaller ones are inflated as well, and no verdict says so
    return _by_size(nbytes, source.last_level_cache_bytes, Reuse.SHARED_CACHE)


def _at_reader(nbytes: int, passes: int, reader: Device) -> Reuse:
    measured = nbytes >= READER_SIDE_MIN_BYTES and passes >= READER_SIDE_MIN_PASSES
    if not measured or not _is_one_of(reader, READER_SIDE_MEASURED):
        return Reuse.UNKNOWN
    return _by_size(nbytes, reader.last_level_cache_bytes, Reuse.READER_SIDE)


def _is_one_of(device: Device, architectures: tuple[str, ...]) -> bool:
    return device.arch.partition(":")[0] in architectures


def _by_size(nbytes: int, cache_bytes: int | None, where_it_fits: Reuse) -> Reuse:
    if cache_bytes is None:
        return Reuse.UNKNOWN
    if nbytes <= FITS * cache_bytes:
        return where_it_fits
    return Reuse.NONE if nbytes >= EXCEEDS * cache_bytes else Reuse.UNKNOWN

"""Which cache may answer a read that is repeated: what a transfer without rotation must show on a node.

Two artefacts that must not be mistaken for each other. A cache *shared with the peer*, before the memory of one
physical GPU, answers the reads of all its partitions, from one launch to the next. The *reader's own* cache keeps what
one launch has read from a peer and answers it again inside that launch; the next launch starts without it.
"""

from __future__ import annotations

import enum

from pytest_transferbench.node import HOST, LinkClass, Node
from pytest_transferbench.transfer import Case, Test

FITS, EXCEEDS = 2 / 3, 4 / 3
"""Shares of a cache's size below which everything hits, and above which least-recently-used replacement leaves nothing
to hit; between them it depends on the rest of what is in the cache."""


class Reuse(enum.StrEnum):
    """What answers the repeated reads of a case that does not rotate."""

    NONE = "none"
    SHARED_CACHE = "cache shared with the peer"
    READER_SIDE = "reader-side reuse"
    UNKNOWN = "unknown"


def reuse_without_rotation(case: Case, node: Node) -> Reuse:
    """Return what must answer the repeated reads of ``case``, rotation off, on ``node``; UNKNOWN makes no claim.

    Source of the first kind: TransferBench's source rotation, measured on gfx1250 in DPX and SPX mode; of the second:
    two H200 joined by NVLink, docs/measured.
    """
    transfer = case.transfer
    if transfer.executor.kind != "G":
        return Reuse.UNKNOWN
    if isinstance(transfer, Test):
        # Several ways are read at once and the slowest decides: a single one answered by a cache hides behind it.
        return Reuse.NONE if transfer.op == "push" or len(transfer.transfers) > 2 else Reuse.UNKNOWN
    source, destination = transfer.owner_of(transfer.sources[0]), transfer.owner_of(transfer.destinations[0])
    if HOST in (source, destination):
        return Reuse.UNKNOWN
    if transfer.op == "push":
        return Reuse.NONE  # a remote write is published whatever the caches hold
    link_class = node.link(source, destination).link_class
    if link_class is LinkClass.ON_DIE:
        return _by_size(transfer.nbytes, node.device(source).last_level_cache_bytes, Reuse.SHARED_CACHE)
    if transfer.op == "pull" and case.sub_iterations == 1:
        return Reuse.NONE
    if node.runtime == "cuda" and case.sub_iterations > 1:
        reader = node.device(transfer.executor.owner)
        return _by_size(transfer.nbytes, reader.last_level_cache_bytes, Reuse.READER_SIDE)
    return Reuse.UNKNOWN


def _by_size(nbytes: int, cache_bytes: int | None, where_it_fits: Reuse) -> Reuse:
    if cache_bytes is None:
        return Reuse.UNKNOWN
    if nbytes <= FITS * cache_bytes:
        return where_it_fits
    return Reuse.NONE if nbytes >= EXCEEDS * cache_bytes else Reuse.UNKNOWN

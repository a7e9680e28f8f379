"""The two tables of letters: who moves the bytes, and what memory they lie in.

Letters and words are TransferBench's. A letter stands here only when the code that runs it or allocates it
exists: a new one is one more row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from pytest_transferbench.transfer.sizes import shown

HOST = -1
"""The index that stands for the host wherever a device index is expected."""


@dataclass(frozen=True)
class ExecutorKind:
    """One row of :data:`EXECUTORS`.

    ``on`` says where it runs. ``relays`` tells whether it may own neither end of a Transfer, ``reaches_null``
    whether it can read or write alone (null memory at the other end), ``many_sources`` and ``many_destinations``
    whether it takes more than one. ``sub_index`` is what a number after its index chooses, as in ``G0.2``, empty where
    nothing can be chosen. ``shares_work`` tells whether SubExecutors mean anything to it.
    """

    letter: str
    word: str
    on: Literal["device", "host"]
    relays: bool
    reaches_null: bool
    many_sources: bool
    many_destinations: bool
    summary: str
    sub_index: Literal["", "XCC", "DMA engine"] = ""
    shares_work: bool = True


@dataclass(frozen=True)
class MemoryKind:
    """One row of :data:`MEMORIES`; ``on`` says where the bytes live, ``none`` for no memory at all.

    ``by_gpu`` tells that host memory is indexed by the GPU it lies nearest to, and not by its NUMA node. ``pinned``
    tells that its pages stay where they are, within reach of every GPU; ``amd_only`` that CUDA has nothing like it.
    """

    letter: str
    word: str
    on: Literal["device", "host", "none"]
    summary: str
    by_gpu: bool = False
    pinned: bool = True
    amd_only: bool = False


EXECUTORS = (
    ExecutorKind("C", "cpu", "host", True, False, True, True, "host threads"),
    ExecutorKind("G", "gfx", "device", True, True, True, True, "a GPU kernel", sub_index="XCC"),
    ExecutorKind(
        "D", "dma", "device", False, False, False, True, "a GPU's copy engine", sub_index="DMA engine",
        shares_work=False,
    ),
    ExecutorKind("B", "batch", "device", False, False, False, True, "a GPU's copy engine, many copies in one call"),
)  # fmt: skip
"""Every executor there is, by TransferBench's letter."""

FOREIGN_EXECUTORS = {
    "I": "a NIC",
    "N": "the nearest NIC",
    "T": "the tensor data mover",
}
"""TransferBench's executors that are not measured here."""

MEMORIES = (
    MemoryKind("C", "pinned", "host", "pinned host memory"),
    MemoryKind("P", "closest", "host", "pinned host memory on the NUMA node closest to a GPU", by_gpu=True),
    MemoryKind("B", "coherent", "host", "coherent pinned host memory", amd_only=True),
    MemoryKind("D", "noncoherent", "host", "non-coherent pinned host memory", amd_only=True),
    MemoryKind("K", "hostuncached", "host", "uncached pinned host memory", amd_only=True),
    MemoryKind("H", "unpinned", "host", "unpinned host memory", pinned=False),
    MemoryKind("G", "device", "device", "default GPU memory"),
    MemoryKind("F", "fine", "device", "fine-grained GPU memory", amd_only=True),
    MemoryKind("U", "uncached", "device", "uncached GPU memory", amd_only=True),
    MemoryKind("M", "managed", "device", "managed memory, at home on a GPU", pinned=False),
    MemoryKind("N", "null", "none", "no memory: the Transfer only reads or only writes"),
)
"""Every memory kind there is, by TransferBench's letter and in its order."""

_Row = TypeVar("_Row", ExecutorKind, MemoryKind)


def _by_name(table: tuple[_Row, ...]) -> dict[str, _Row]:
    return {name: row for row in table for name in (row.letter.casefold(), row.word)}


_EXECUTORS_BY_NAME, _MEMORIES_BY_NAME = _by_name(EXECUTORS), _by_name(MEMORIES)


def executor_kind(name: str) -> ExecutorKind:
    """Return the executor called ``name``, a letter or a word in either case; raises ``ValueError`` for others."""
    return _row(_EXECUTORS_BY_NAME, "executor", name)


def memory_kind(name: str) -> MemoryKind:
    """Return the memory kind called ``name``, a letter or a word in either case; raises ``ValueError`` for others."""
    return _row(_MEMORIES_BY_NAME, "memory kind", name)


def _row(rows: dict[str, _Row], what: str, name: str) -> _Row:
    row = rows.get(name.casefold()) if isinstance(name, str) else None
    if row is None:
        raise ValueError(f"unknown {what} {shown(name)}: use {spellings(dict.fromkeys(rows.values()))}")
    return row


def spellings(rows: Iterable[ExecutorKind | MemoryKind]) -> str:
    """Return what ``rows`` are called, for refusals: ``C or cpu, G or gfx``."""
    return ", ".join(f"{row.letter} or {row.word}" for row in rows)

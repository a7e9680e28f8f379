"""The places a Transfer is made of: memories and executors, and their names."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_transferbench.transfer.letters import (
    EXECUTORS,
    FOREIGN_EXECUTORS,
    HOST,
    MEMORIES,
    ExecutorKind,
    executor_kind,
    memory_kind,
    spellings,
)
from pytest_transferbench.transfer.sizes import shown, whole

MAX_INDEX = 9999
"""The largest index of a memory or an executor; far above any node, and short enough for a name."""

_INDEX = r"[0-9]{1,4}(?![0-9])|\*|\[[^\]]*\]"
_PLACE = re.compile(
    rf"(?:[Rr](?P<rank>{_INDEX}))?(?P<name>[A-Za-z]+)(?P<index>{_INDEX})?(?:\.(?P<sub_index>{_INDEX}))?"
)
_LISTED = re.compile(r"\s*([0-9]{1,4})\s*(?:\.\.\s*([0-9]{1,4})\s*)?")


@dataclass(frozen=True, order=True)
class Memory:
    """A place for bytes: ``kind`` is a letter of :data:`MEMORIES`, ``index`` a GPU or a NUMA node.

    Null memory (``N``) has index 0. Raises ``ValueError`` for an unknown letter or an index that cannot be.
    """

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        letters = [row.letter for row in MEMORIES]
        if self.kind not in letters:
            raise ValueError(f"bad memory letter {shown(self.kind)}: use one of {' '.join(letters)}")
        object.__setattr__(self, "index", _checked_index("memory", self.kind, self.index))
        if self.on == "none" and self.index:
            raise ValueError(f"null memory has no index: write N, not N{self.index}")

    @functools.cached_property
    def on(self) -> Literal["device", "host", "none"]:
        """Where the bytes live."""
        return memory_kind(self.kind).on

    @functools.cached_property
    def beside(self) -> int | None:
        """The index of an executor that sits with these bytes; None where only the machine can tell.

        That is so of null memory, and of the NUMA node closest to a GPU.
        """
        return None if self.on == "none" or memory_kind(self.kind).by_gpu else self.index

    @property
    def owner(self) -> int:
        """The GPU that homes the bytes, or ``HOST``.

        Raises ``ValueError`` for null memory, which belongs to whoever executes: see :meth:`Transfer.owner_of`.
        """
        if self.on == "none":
            raise ValueError("null memory has no owner of its own: ask Transfer.owner_of, it counts as the executor's")
        return self.index if self.on == "device" else HOST

    def __str__(self) -> str:
        return self.kind if self.on == "none" else f"{self.kind}{self.index}"


@dataclass(frozen=True)
class Executor:
    """Who moves the bytes: ``kind`` is a letter of :data:`EXECUTORS`, ``index`` a GPU or a NUMA node.

    ``sub_index`` chooses a part of it, the XCC of a kernel or one of the copy engines; ``None`` leaves it to the
    runtime. Raises ``ValueError`` for an unknown letter, an index that cannot be, or a part of what has none.
    """

    kind: str
    index: int = 0
    sub_index: int | None = None

    def __post_init__(self) -> None:
        letters = [row.letter for row in EXECUTORS]
        if self.kind not in letters:
            raise ValueError(f"bad executor letter {shown(self.kind)}: use one of {' '.join(letters)}")
        object.__setattr__(self, "index", _checked_index("executor", self.kind, self.index))
        if self.sub_index is not None:
            kind = executor_kind(self.kind)
            if not kind.sub_index:
                raise ValueError(_no_parts(kind, f"{self.kind}{self.index}.{self.sub_index}"))
            sub_index = _checked_index(kind.sub_index, f"{self.kind}{self.index}.", self.sub_index)
            object.__setattr__(self, "sub_index", sub_index)

    @functools.cached_property
    def word(self) -> str:
        """The executor's word, such as ``gfx``."""
        return executor_kind(self.kind).word

    @functools.cached_property
    def on(self) -> Literal["device", "host"]:
        """Where it runs."""
        return executor_kind(self.kind).on

    @property
    def owner(self) -> int:
        """The GPU it runs on, or ``HOST``."""
        return self.index if self.on == "device" else HOST

    def __str__(self) -> str:
        return f"{self.kind}{self.index}" + ("" if self.sub_index is None else f".{self.sub_index}")


@dataclass(frozen=True)
class Places:
    """What ``*`` in a notation stands for on one machine, in plain numbers.

    ``gpus`` and ``numa_nodes`` are indices; ``xccs`` and ``copy_engines`` tell how many each GPU has, and leave out
    those of which nobody knows.
    """

    gpus: tuple[int, ...]
    numa_nodes: tuple[int, ...] = (0,)
    xccs: Mapping[int, int] = field(default_factory=dict)
    copy_engines: Mapping[int, int] = field(default_factory=dict)

    def indices(self, *, by_gpu: bool) -> tuple[int, ...]:
        """Return the indices there are: of GPUs, or of NUMA nodes."""
        return self.gpus if by_gpu else self.numa_nodes

    def sub_indices(self, kind: ExecutorKind, index: int, text: str) -> tuple[int, ...]:
        """Return the parts of the executor of GPU ``index``; raises ``ValueError``, naming ``text``, if not known."""
        counts = {"XCC": self.xccs, "DMA engine": self.copy_engines}[kind.sub_index]
        if index not in counts:
            raise ValueError(f"{text!r}: how many {kind.sub_index}s GPU {index} has is not known: give a number")
        return tuple(range(counts[index]))


def parse_memory(text: str) -> Memory:
    """Return the one memory called ``text``: ``G0``, ``device0``, ``N``; raises ``ValueError`` naming ``text``.

    An index after ``N`` is read and means nothing, as in TransferBench.
    """
    named = memories_named(text)
    if len(named) != 1 or len(named[0]) != 1:
        raise ValueError(f"bad memory {shown(text)}: it names several, write one, such as G0 or C0")
    return named[0][0]


def parse_executor(text: str) -> Executor:
    """Return the one executor called ``text``: ``G0``, ``gfx0``, ``G0.2``; raises ``ValueError`` naming ``text``."""
    named = executors_named(text)
    if len(named) != 1:
        raise ValueError(f"bad executor {shown(text)}: it names several, write one, such as G0 or dma1")
    return named[0]


def memories_named(text: str, places: Places | None = None) -> list[list[Memory]]:
    """Return the memories of a list written back to back, such as ``G0G1`` or ``C0F*``: for each all it may be.

    Wildcards are TransferBench's: ``*``, ``[1]``, ``[0,2,5]``, ``[1..3]``; ``*`` needs ``places``. The rank ``R0``
    before a memory is this machine. Raises ``ValueError`` naming the memory that cannot be read.
    """
    matches: list[re.Match[str]] = []
    at = 0
    while at < len(text) or not matches:
        match = _PLACE.match(text, at)
        if match is None or match["sub_index"] is not None:
            raise ValueError(f"bad memory {shown(text)}: write a letter or a word and an index, such as G0 or C0")
        matches.append(match)
        at = match.end()
    return [_memories(match, places) for match in matches]


def executors_named(text: str, places: Places | None = None) -> list[Executor]:
    """Return every executor that ``text`` names: ``G0``, ``dma1.[0,1]``, ``G*.*``.

    A sub-index ``*`` of what has no parts is none. Raises ``ValueError`` naming ``text``.
    """
    match = _PLACE.match(text)
    # Before the shape is looked at: NICs have slots behind their indices, and a nearest one needs no index.
    foreign = match and not _is_executor(match["name"]) and FOREIGN_EXECUTORS.get(match["name"].upper())
    if foreign:
        raise ValueError(f"bad executor {shown(text)}: {foreign} is not measured here; use {spellings(EXECUTORS)}")
    if match is None or match.end() != len(text):
        raise ValueError(f"bad executor {shown(text)}: write a letter or a word and an index, such as G0 or dma1")
    _check_rank("executor", match)
    try:
        kind = executor_kind(match["name"])
    except ValueError as error:
        raise ValueError(f"bad executor {shown(text)}: {error}") from None
    there = places.indices(by_gpu=kind.on == "device") if places else None
    return [
        Executor(kind.letter, index, sub_index)
        for index in _indices("executor", match, match["index"], there)
        for sub_index in _sub_indices(kind, match, index, places)
    ]


def _memories(match: re.Match[str], places: Places | None) -> list[Memory]:
    _check_rank("memory", match)
    try:
        kind = memory_kind(match["name"])
    except ValueError as error:
        raise ValueError(f"bad memory {shown(match[0])}: {error}") from None
    if kind.on == "none":
        return [Memory(kind.letter)]
    there = places.indices(by_gpu=kind.on == "device" or kind.by_gpu) if places else None
    return [Memory(kind.letter, index) for index in _indices("memory", match, match["index"], there)]


def _sub_indices(
    kind: ExecutorKind, match: re.Match[str], index: int, places: Places | None
) -> tuple[int, ...] | tuple[None]:
    given = match["sub_index"]
    if given is None or (given == "*" and not kind.sub_index):
        return (None,)
    if not kind.sub_index:
        raise ValueError(f"bad executor {shown(match[0])}: {_no_parts(kind, match[0])}")
    there = places.sub_indices(kind, index, match[0]) if places and given == "*" else None
    return _indices("executor", match, given, there)


def _indices(what: str, match: re.Match[str], given: str | None, there: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the indices that ``given`` stands for: a number, a list in square brackets, or all ``there`` are."""
    refused = f"bad {what} {shown(match[0])}"
    if not given:
        raise ValueError(f"{refused}: its index is missing, write for example {match[0]}0")
    if given == "*":
        if there is None:
            raise ValueError(f"{refused}: '*' stands for all there are of a machine, and none is known here")
        return there
    if not given.startswith("["):
        return (int(given),)
    indices: list[int] = []
    for part in given[1:-1].split(","):
        bounds = _LISTED.fullmatch(part)
        if bounds is None:
            raise ValueError(f"{refused}: write {shown(given)} as [1], [0,2,5] or [1..3]")
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if last < first:
            raise ValueError(f"{refused}: {first}..{last} ends below its start, write the smaller index first")
        indices += range(first, last + 1)
    if len(set(indices)) < len(indices):
        raise ValueError(f"{refused}: {shown(given)} has an index twice: give every one once")
    return tuple(indices)


def _check_rank(what: str, match: re.Match[str]) -> None:
    """TransferBench writes a rank before every place it dumps; of one machine it is always 0."""
    if match["rank"] not in (None, "0"):
        raise ValueError(
            f"bad {what} {shown(match[0])}: rank R{match['rank']} is another machine, and a Transfer stays within one "
            "here: leave it out, or write R0"
        )


def _is_executor(name: str) -> bool:
    return any(name.casefold() in (row.letter.casefold(), row.word) for row in EXECUTORS)


def _no_parts(kind: ExecutorKind, text: str) -> str:
    return f"{kind.word} has no parts to choose from, write {shown(text.partition('.')[0])}"


def _checked_index(what: str, letter: str, index: object) -> int:
    number = whole(index)
    if number is None or not 0 <= number <= MAX_INDEX:
        raise ValueError(f"bad {what} index {shown(index)} after {letter}: use 0 to {MAX_INDEX}")
    return number

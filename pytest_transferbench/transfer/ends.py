"""The places a Transfer is made of: memories and executors, and their names."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

from pytest_transferbench.transfer.letters import EXECUTORS, HOST, MEMORIES, executor_kind, memory_kind
from pytest_transferbench.transfer.sizes import shown, whole

MAX_INDEX = 9999
"""The largest index of a memory or an executor; far above any node, and short enough for a name."""

_PLACE = re.compile(r"([A-Za-z]+)([0-9]{0,4})")


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


@dataclass(frozen=True, order=True)
class Executor:
    """Who moves the bytes: ``kind`` is a letter of :data:`EXECUTORS`, ``index`` a GPU or a NUMA node.

    Raises ``ValueError`` for an unknown letter or an index that cannot be.
    """

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        letters = [row.letter for row in EXECUTORS]
        if self.kind not in letters:
            raise ValueError(f"bad executor letter {shown(self.kind)}: use one of {' '.join(letters)}")
        object.__setattr__(self, "index", _checked_index("executor", self.kind, self.index))

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
        return f"{self.kind}{self.index}"


def parse_memory(text: str) -> Memory:
    """Return the memory called ``text``: ``G0``, ``device0``, ``N``; raises ``ValueError`` naming ``text``.

    An index after ``N`` is read and means nothing, as in TransferBench.
    """
    name, index = _place(text, "memory", "G0 or C0")
    try:
        kind = memory_kind(name)
    except ValueError as error:
        raise ValueError(f"bad memory {shown(text)}: {error}") from None
    if kind.on == "none":
        return Memory(kind.letter)
    if not index:
        raise ValueError(f"bad memory {shown(text)}: its index is missing, write for example {text}0")
    return Memory(kind.letter, int(index))


def parse_executor(text: str) -> Executor:
    """Return the executor called ``text``: ``G0``, ``gfx0``; raises ``ValueError`` naming ``text``."""
    name, index = _place(text, "executor", "G0 or dma1")
    try:
        kind = executor_kind(name)
    except ValueError as error:
        raise ValueError(f"bad executor {shown(text)}: {error}") from None
    if not index:
        raise ValueError(f"bad executor {shown(text)}: its index is missing, write for example {text}0")
    return Executor(kind.letter, int(index))


def _place(text: str, what: str, examples: str) -> tuple[str, str]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError(f"bad {what} {shown(text)}: write a letter or a word and an index, such as {examples}")
    return match[1], match[2]


def _checked_index(what: str, letter: str, index: object) -> int:
    number = whole(index)
    if number is None or not 0 <= number <= MAX_INDEX:
        raise ValueError(f"bad {what} index {shown(index)} after {letter}: use 0 to {MAX_INDEX}")
    return number

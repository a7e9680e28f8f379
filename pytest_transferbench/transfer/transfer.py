"""What moves: one Transfer from a source, by an executor, to a destination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_transferbench.transfer.letters import HOST, EXECUTORS, MEMORIES, ExecutorKind, executor_kind, memory_kind
from pytest_transferbench.transfer.sizes import MAX_BYTES, format_size

Op = Literal["local", "push", "pull", "relay"]
MAX_INDEX = 9999
"""The largest index of a memory or an executor; far above any node, and short enough for a name."""


@dataclass(frozen=True, order=True)
class Memory:
    """A place for bytes: ``kind`` is a letter of :data:`MEMORIES`, ``index`` a GPU or a NUMA node.

    Null memory (``N``) has index 0. Raises ``ValueError`` for an unknown letter or an index that cannot be.
    """

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in (row.letter for row in MEMORIES):
            raise ValueError(f"bad memory letter {self.kind!r}: use one of {' '.join(row.letter for row in MEMORIES)}")
        _check_index("memory", self.kind, self.index)
        if self.on == "none" and self.index:
            raise ValueError(f"null memory has no index: write N, not N{self.index}")

    @property
    def on(self) -> Literal["device", "host", "none"]:
        """Where the bytes live."""
        return memory_kind(self.kind).on

    @property
    def owner(self) -> int:
        """The GPU that homes the bytes, or ``HOST``.

        Raises ``ValueError`` for null memory, which belongs to whoever executes: see :meth:`Transfer.owner_of`.
        """
        if self.on == "none":
            raise ValueError("null memory has no owner of its own; ask Transfer.owner_of, it counts as the executor's")
        return self.index if self.on == "device" else HOST

    def __str__(self) -> str:
        return self.kind if self.on == "none" else f"{self.kind}{self.index}"


@dataclass(frozen=True, order=True)
class Executor:
    """Who moves the bytes: ``kind`` is a letter of :data:`EXECUTORS`, ``index`` a GPU or a NUMA node."""

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in (row.letter for row in EXECUTORS):
            raise ValueError(
                f"bad executor letter {self.kind!r}: use one of {' '.join(row.letter for row in EXECUTORS)}"
            )
        _check_index("executor", self.kind, self.index)

    @property
    def word(self) -> str:
        return executor_kind(self.kind).word

    @property
    def on(self) -> Literal["device", "host"]:
        """Where it runs."""
        return executor_kind(self.kind).on

    @property
    def owner(self) -> int:
        """The GPU it runs on, or ``HOST``."""
        return self.index if self.on == "device" else HOST

    def __str__(self) -> str:
        return f"{self.kind}{self.index}"


End = str | int | Memory
"""An end of a Transfer as people write it: ``"G0"``, a :class:`Memory`, or an integer for that GPU's memory."""


@dataclass(frozen=True)
class Transfer:
    """``nbytes`` bytes from ``sources`` through ``executor`` to ``destinations``.

    ``subexecutors`` is how many parts of the executor share the work (blocks of a kernel, threads of a CPU); 0
    leaves it to the engine. Raises ``ValueError``, in one line, for whatever cannot be run.
    """

    sources: tuple[Memory, ...]
    executor: Executor
    destinations: tuple[Memory, ...]
    nbytes: int
    subexecutors: int = 0

    def __post_init__(self) -> None:
        kind = executor_kind(self.executor.kind)
        if self.nbytes <= 0 or self.nbytes % 4 or self.nbytes > MAX_BYTES:
            raise ValueError(f"bad size {self.nbytes} of {self._route()}: a Transfer moves a positive multiple of 4 bytes")
        if self.subexecutors < 0:
            raise ValueError(f"bad subexecutors {self.subexecutors} of {self._route()}: give 0 (chosen) or more")
        self._check_count("source", self.sources, kind.many_sources)
        self._check_count("destination", self.destinations, kind.many_destinations)
        nulls = [memory.on == "none" for memory in (*self.sources, *self.destinations)]
        if all(nulls):
            raise ValueError(f"{self._route()} moves nothing: at most one end may be null (N)")
        if any(nulls) and not kind.reaches_null:
            raise ValueError(f"{self._route()}: {kind.word} copies and needs memory at both ends; use {_others(kind)} for N")
        if self.op == "relay" and not kind.relays:
            raise ValueError(
                f"{self._route()}: {kind.word} has to own the source or the destination; "
                f"run it on one of the ends, or use {_others(kind)}"
            )

    @classmethod
    def push(cls, source: End, destination: End, nbytes: int, executor: str = "gfx", subexecutors: int = 0) -> Transfer:
        """Return the Transfer whose executor sits with the source: it reads at home and writes afar.

        An integer end means that GPU's default memory. Raises ``ValueError`` when such an executor cannot sit there.
        """
        home, away = _end(source), _end(destination)
        return cls((home,), _beside(home, executor, "push from", "pull"), (away,), nbytes, subexecutors)

    @classmethod
    def pull(cls, source: End, destination: End, nbytes: int, executor: str = "gfx", subexecutors: int = 0) -> Transfer:
        """Return the Transfer whose executor sits with the destination: it reads from afar and writes at home.

        An integer end means that GPU's default memory. Raises ``ValueError`` when such an executor cannot sit there.
        """
        away, home = _end(source), _end(destination)
        return cls((away,), _beside(home, executor, "pull into", "push"), (home,), nbytes, subexecutors)

    def owner_of(self, memory: Memory) -> int:
        """The GPU that homes ``memory``, or ``HOST``; null memory counts as the executor's."""
        return self.executor.owner if memory.on == "none" else memory.owner

    @property
    def op(self) -> Op:
        """``local``: the executor owns all ends. ``push``: the sources. ``pull``: the destinations. ``relay``: neither."""
        home = self.executor.owner
        reads_at_home = all(self.owner_of(memory) == home for memory in self.sources)
        writes_at_home = all(self.owner_of(memory) == home for memory in self.destinations)
        if reads_at_home and writes_at_home:
            return "local"
        if reads_at_home:
            return "push"
        return "pull" if writes_at_home else "relay"

    def notation(self) -> str:
        """Return the Transfer as text that :func:`parse_transfer` reads back: ``(G1->G0->G0 8 64M)``."""
        return f"({self._route()} {self.subexecutors} {format_size(self.nbytes)})"

    def case_name(self, variant: str = "") -> str:
        """Return the id of this Transfer: ``<op>-<exe>[count]-<src>-<dst>-<size>[-at-<exe>][-<variant>]``.

        ``at-G2`` names the executor's place where the rest does not tell it: always for a relay, for a push out of
        or a pull into null memory, and for host threads of another NUMA node than the memory. Two different
        Transfers never share a name. ``variant`` may hold letters, digits, ``_``, ``.`` and ``-``, which ``-k``
        takes without quoting.
        """
        if not all(character.isascii() and (character.isalnum() or character in "_.-") for character in variant):
            raise ValueError(f"bad variant {variant!r}: use letters, digits, '_', '.' and '-'")
        parts = [self.op, f"{self.executor.word}{self.subexecutors or ''}"]
        parts += ["+".join(map(str, ends)) for ends in (self.sources, self.destinations)]
        parts.append(format_size(self.nbytes))
        if self.executor.index != self._index_in_name():
            parts.append(f"at-{self.executor}")
        if variant:
            parts.append(variant)
        return "-".join(parts)

    def _index_in_name(self) -> int | None:
        """The executor's index as op, source and destination alone would tell it."""
        homes = {"push": self.sources, "pull": self.destinations, "local": self.sources + self.destinations, "relay": ()}
        return next((memory.index for memory in homes[self.op] if memory.on != "none"), None)

    def _route(self) -> str:
        return f"{''.join(map(str, self.sources))}->{self.executor}->{''.join(map(str, self.destinations))}"

    def _check_count(self, what: str, ends: tuple[Memory, ...], many: bool) -> None:
        if not ends or (len(ends) > 1 and not many):
            allowed = f"at least one {what}" if many else f"exactly one {what}"
            raise ValueError(f"{self._route()}: {self.executor.word} takes {allowed}, not {len(ends)}")


def _check_index(what: str, letter: str, index: int) -> None:
    if not 0 <= index <= MAX_INDEX:
        raise ValueError(f"bad {what} index {index} after {letter}: use 0 to {MAX_INDEX}")


def _others(kind: ExecutorKind) -> str:
    return " or ".join(row.word for row in EXECUTORS if row.relays and row is not kind)


def _end(end: End) -> Memory:
    from pytest_transferbench.transfer.notation import parse_memory

    if isinstance(end, Memory):
        return end
    return Memory("G", end) if isinstance(end, int) else parse_memory(end)


def _beside(home: Memory, executor: str, doing: str, instead: str) -> Executor:
    """Place ``executor`` with ``home``; ``doing`` and ``instead`` word the refusal."""
    kind = executor_kind(executor)
    if home.on == "none":
        raise ValueError(f"{doing} N: null memory is nowhere; name the executor's place, as in G1->G0->N or N->G0->G1")
    if kind.on != home.on:
        fitting = " or ".join(row.word for row in EXECUTORS if row.on == home.on)
        place = "a GPU" if kind.on == "device" else "the host"
        raise ValueError(f"{doing} {home} by {kind.word}, which runs on {place}: use {instead}, or {fitting}")
    return Executor(kind.letter, home.index)

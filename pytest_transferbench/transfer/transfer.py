"""What moves: one Transfer from a source, by an executor, to a destination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_transferbench.transfer.ends import Executor, Memory, memories_named, parse_memory
from pytest_transferbench.transfer.letters import EXECUTORS, ExecutorKind, executor_kind
from pytest_transferbench.transfer.sizes import MAX_BYTES, WORD_BYTES, format_size, shortened, shown, whole

Op = Literal["local", "push", "pull", "relay"]
End = str | int | Memory
"""An end of a Transfer as people write it: ``"G0"``, a :class:`Memory`, or an integer for that GPU's memory."""
Ends = End | Sequence[End]
"""One end, or several: ``"G1G2"`` or ``(1, 2)``."""

MAX_ENDS = 8
"""The most sources, and the most destinations, of a Transfer: TransferBench's."""
MAX_SUBEXECUTORS = 999_999


@dataclass(frozen=True, repr=False, slots=True)
class Transfer:
    """``nbytes`` bytes from ``sources`` through ``executor`` to ``destinations``.

    Every destination receives the bytes of the one source, or the sum of several, word by word as 32-bit floats.
    ``subexecutors`` is how many parts of the executor share the work (blocks of a kernel, threads of a CPU); 0
    leaves it to the engine, and an executor that shares no work always has 0. Raises ``ValueError``, in one line, for
    whatever cannot be run.
    """

    sources: tuple[Memory, ...]
    executor: Executor
    destinations: tuple[Memory, ...]
    nbytes: int
    subexecutors: int = 0

    def __post_init__(self) -> None:
        _check_memories("source", self.sources)
        _check_memories("destination", self.destinations)
        if not isinstance(self.executor, Executor):
            raise ValueError(f"bad executor {shown(self.executor)}: give an Executor, such as Executor('G', 0)")
        kind = executor_kind(self.executor.kind)
        self._check_count("source", self.sources, kind.many_sources)
        self._check_count("destination", self.destinations, kind.many_destinations)
        route = self._route()
        # A float passes every comparison below, and 64e6 is easily written.
        nbytes, subexecutors = whole(self.nbytes), whole(self.subexecutors)
        if nbytes is None or not 0 < nbytes <= MAX_BYTES or nbytes % WORD_BYTES:
            raise ValueError(
                f"bad size {shown(self.nbytes)} of {route}: a Transfer moves a positive multiple of 4 bytes"
            )
        if subexecutors is None or not 0 <= subexecutors <= MAX_SUBEXECUTORS:
            raise ValueError(
                f"bad subexecutors {shown(self.subexecutors)} of {route}: use 0 (chosen) to {MAX_SUBEXECUTORS}"
            )
        object.__setattr__(self, "nbytes", nbytes)
        object.__setattr__(self, "subexecutors", subexecutors if kind.shares_work else 0)
        nulls = [memory.on == "none" for memory in (*self.sources, *self.destinations)]
        if all(nulls):
            raise ValueError(f"{route} moves nothing: at most one end is null (N)")
        if any(nulls) and not kind.reaches_null:
            able = " or ".join(row.word for row in EXECUTORS if row.reaches_null)
            raise ValueError(f"{route}: {kind.word} needs memory at both ends; use {able} for N")
        if self.op == "relay" and not kind.relays:
            ends = "the source or the destination" if len(nulls) == 2 else "all sources or all destinations"
            raise ValueError(
                f"{route}: {kind.word} has to own {ends}; let one of these run it, or use {_relaying(kind)}"
            )

    def __repr__(self) -> str:
        return f"<Transfer {self.notation()}>"

    @classmethod
    def push(
        cls, source: Ends, destination: Ends, nbytes: int, executor: str = "gfx", subexecutors: int = 0
    ) -> Transfer:
        """Return the Transfer whose executor sits with the source: it reads at home and writes afar.

        Raises ``ValueError``, saying what to use instead, when that executor cannot sit there: GPU memory is pushed
        by ``gfx`` or ``dma``, host memory by ``cpu``.
        """
        home, away = as_memories(source), as_memories(destination)
        return cls(home, _place_beside(home, away, executor, "push from", "pull"), away, nbytes, subexecutors)

    @classmethod
    def pull(
        cls, source: Ends, destination: Ends, nbytes: int, executor: str = "gfx", subexecutors: int = 0
    ) -> Transfer:
        """Return the Transfer whose executor sits with the destination: it reads from afar and writes at home.

        Raises ``ValueError``, saying what to use instead, when that executor cannot sit there: into GPU memory
        ``gfx`` or ``dma`` pull, into host memory ``cpu``.
        """
        away, home = as_memories(source), as_memories(destination)
        return cls(away, _place_beside(home, away, executor, "pull into", "push"), home, nbytes, subexecutors)

    def owner_of(self, memory: Memory) -> int:
        """Return the GPU that homes ``memory``, or ``HOST``; null memory counts as the executor's."""
        return self.executor.owner if memory.on == "none" else memory.owner

    @property
    def op(self) -> Op:
        """``local``: the executor owns all ends; ``push``: all sources; ``pull``: all destinations; else ``relay``."""
        home = self.executor.owner
        reads_at_home = all(self.owner_of(memory) == home for memory in self.sources)
        writes_at_home = all(self.owner_of(memory) == home for memory in self.destinations)
        if reads_at_home and writes_at_home:
            return "local"
        if reads_at_home:
            return "push"
        return "pull" if writes_at_home else "relay"

    @property
    def owners(self) -> frozenset[int]:
        """Every GPU that takes part, and ``HOST`` where the host does."""
        ends = (*self.sources, *self.destinations)
        return frozenset((self.executor.owner, *(self.owner_of(memory) for memory in ends)))

    @property
    def executors(self) -> tuple[Executor, ...]:
        """Who runs it, as of a Test: one."""
        return (self.executor,)

    @property
    def by(self) -> str:
        """Who moves the bytes: the executor's word."""
        return self.executor.word

    @property
    def by_in_name(self) -> str:
        """Who moves the bytes, as names have it: the executor's word, and its SubExecutors where they are given."""
        return f"{self.executor.word}{self.subexecutors or ''}"

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """This Transfer alone: what runs at the same time, as in a Test."""
        return (self,)

    @property
    def total_bytes(self) -> int:
        """Bytes of all that runs at the same time: those of this Transfer."""
        return self.nbytes

    @property
    def end_names(self) -> tuple[str, str]:
        """Sources and destinations as names have them, several back to back as TransferBench writes them: ``G0G1``."""
        return "".join(map(str, self.sources)), "".join(map(str, self.destinations))

    def notation(self) -> str:
        """Return the Transfer as text that :func:`parse_transfer` reads back: ``(G1->G0->G0 8 64M)``."""
        return self._bracket(self.subexecutors)

    def line(self) -> str:
        """Return the Transfer as a line of a TransferBench configuration file: ``-1 (G1->G0->G0 8 64M)``.

        TransferBench takes 0 SubExecutors, left to the engine here, for a search through all numbers of blocks.
        """
        return f"-1 {self.bracket_in_line()}"

    def bracket_in_line(self) -> str:
        """Return the Transfer as one of a line's: there a copy engine counts as the one SubExecutor it is."""
        return self._bracket(self.subexecutors if executor_kind(self.executor.kind).shares_work else 1)

    def case_name(self, variant: str = "") -> str:
        """Return the id of this Transfer: ``<op>-<exe>[count]-<src>-<dst>-<size>[-at-<exe>][-<variant>]``.

        ``at-G2`` gives the executor's place where op and ends do not: for every relay, for a push out of or a pull
        into null memory, for host threads of another NUMA node than their memory or of one that the memory's name does
        not tell, and wherever a part of the executor is chosen, ``at-G0.2``. Two Transfers that differ have names that
        differ. ``variant`` is made of letters, digits, ``_``, ``.`` and ``-``, which ``-k`` takes without quoting; it
        does not start with ``at-``. Raises
        ``ValueError`` for another one.
        """
        return case_name(self, variant)

    def place_in_name(self) -> str:
        """Return ``at-<exe>`` where op and ends alone do not tell where the executor is, nothing elsewhere."""
        told = self.executor.sub_index is None and self.executor.index == self._index_told_by_ends()
        return "" if told else f"at-{self.executor}"

    def _index_told_by_ends(self) -> int | None:
        """Return the executor's index as op, source and destination alone tell it, None where they do not."""
        ends: dict[Op, tuple[Memory, ...]] = {
            "push": self.sources,
            "pull": self.destinations,
            "local": self.sources + self.destinations,
            "relay": (),
        }
        return next((memory.beside for memory in ends[self.op] if memory.on != "none"), None)

    def _route(self) -> str:
        return f"{''.join(map(str, self.sources))}->{self.executor}->{''.join(map(str, self.destinations))}"

    def _bracket(self, subexecutors: int) -> str:
        return f"({self._route()} {subexecutors} {format_size(self.nbytes)})"

    def _check_count(self, what: str, ends: tuple[Memory, ...], many: bool) -> None:
        if not 0 < len(ends) <= (MAX_ENDS if many else 1):
            allowed = f"1 to {MAX_ENDS} {what}s" if many else f"exactly one {what}"
            raise ValueError(f"{shortened(self._route())}: {self.executor.word} takes {allowed}, not {len(ends)}")
        if len(ends) > 1 and any(memory.on == "none" for memory in ends):
            raise ValueError(f"{self._route()}: null memory (N) stands alone, not among other {what}s")


class _Named(Protocol):
    """What a name is made of."""

    @property
    def op(self) -> str: ...
    @property
    def by_in_name(self) -> str: ...
    @property
    def end_names(self) -> tuple[str, str]: ...
    @property
    def nbytes(self) -> int: ...
    def place_in_name(self) -> str: ...


def case_name(named: _Named, variant: str) -> str:
    """Return ``<op>-<exe>[count]-<src>-<dst>-<size>[-<place>][-<variant>]``; see :meth:`Transfer.case_name`."""
    if (
        not isinstance(variant, str)
        or variant.startswith("at-")
        or not all(c.isascii() and (c.isalnum() or c in "_.-") for c in variant)
    ):
        raise ValueError(f"bad variant {shown(variant)}: use letters, digits, '_', '.' and '-', and no 'at-' in front")
    size = format_size(named.nbytes)
    parts = [named.op, named.by_in_name, *named.end_names, size, named.place_in_name(), variant]
    return "-".join(part for part in parts if part)


def as_memory(end: End) -> Memory:
    """Return an end as people write it as the memory it means; raises ``ValueError`` naming what was written."""
    if isinstance(end, Memory):
        return end
    if isinstance(end, str):
        return parse_memory(end)
    index = whole(end)
    if index is None:
        raise ValueError(f"bad end {shown(end)}: give 'G0', a Memory, or a GPU's index")
    return Memory("G", index)


def as_memories(ends: Ends) -> tuple[Memory, ...]:
    """Return ends as people write them, one or several, as memories; raises ``ValueError`` naming what was written."""
    if isinstance(ends, str):
        return tuple(memory for (memory,) in memories_named(ends))
    if isinstance(ends, Sequence):
        return tuple(as_memory(end) for end in ends)
    return (as_memory(ends),)


def _check_memories(what: str, ends: object) -> None:
    how = "give a tuple of Memory, such as (Memory('G', 1),)"
    if not isinstance(ends, tuple):
        raise ValueError(f"bad {what}s {shown(ends)}: {how}")
    for end in ends:
        if not isinstance(end, Memory):
            raise ValueError(f"bad {what} {shown(end)}: {how}")


def _place_beside(
    home: tuple[Memory, ...], away: tuple[Memory, ...], executor: str, doing: str, instead: str
) -> Executor:
    """Place ``executor`` where all of ``home`` is; ``doing`` and ``instead`` word the refusal."""
    kind = executor_kind(executor)
    names = "".join(map(str, home))
    if any(memory.on == "none" for memory in home):
        raise ValueError(f"{doing} N: null memory is nowhere; name the executor's place, as in G1->G0->N or N->G0->G1")
    places = {(memory.on, memory.beside) for memory in home}
    if len(places) != 1:
        raise ValueError(f"{doing} {names or 'nothing'}: give memory of one place, where the executor can sit")
    ((on, beside),) = places
    if kind.on != on:
        fitting = [row.word for row in EXECUTORS if row.on == on]
        if all(kind.on == memory.on for memory in away):
            fitting.insert(0, instead)
        runs_on = "GPUs" if kind.on == "device" else "the host"
        raise ValueError(f"{doing} {names} by {kind.word}, which runs on {runs_on}: use {' or '.join(fitting)}")
    if beside is None:
        raise ValueError(
            f"{doing} {names} by {kind.word}: only the machine knows its NUMA node; name it, as in P0->C0->C0"
        )
    return Executor(kind.letter, beside)


def _relaying(refused: ExecutorKind) -> str:
    return " or ".join(row.word for row in EXECUTORS if row.relays and row is not refused)

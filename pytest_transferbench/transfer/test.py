"""What moves at the same time: a Test, Transfers that start together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_transferbench.transfer.ends import Executor, Memory
from pytest_transferbench.transfer.letters import MEMORIES, memory_kind, spellings
from pytest_transferbench.transfer.sizes import shown
from pytest_transferbench.transfer.transfer import End, Op, Transfer, case_name

MOST_IN_NAME = 8
"""Of more Transfers than these a name lists no ends one by one."""

TestOp = Op | Literal["mixed"]
"""What all Transfers of a Test are, or that they differ."""
Direction = Literal["push", "pull"]


@dataclass(frozen=True, repr=False)
class Test:
    """Transfers that run at the same time: any, of any executors, sizes and SubExecutors, equal ones too.

    Equal Transfers have buffers of their own. ``end_words`` are words that stand for the sources and for the
    destinations in names, such as ``("peers", "")`` where the sources are all the other GPUs there are; they take no
    part in comparisons. Raises ``ValueError``, in one line, for what makes no Test.
    """

    __test__ = False  # pytest takes an imported class of this name for one of its own

    transfers: tuple[Transfer, ...]
    end_words: tuple[str, str] = field(default=("", ""), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.transfers, tuple):
            raise ValueError(f"bad Test {shown(self.transfers)}: give a tuple of Transfers")
        for transfer in self.transfers:
            if not isinstance(transfer, Transfer):
                raise ValueError(
                    f"bad Transfer {shown(transfer)} in a Test: give Transfers, or write their notation all in one text"
                )
        if len(self.transfers) < (1 if any(self.end_words) else 2):
            raise ValueError(f"a Test of {len(self.transfers)} Transfers: give two or more, or a Transfer by itself")

    def __repr__(self) -> str:
        return f"<Test {self.notation()}>"

    @classmethod
    def pull_from_peers(
        cls, gpu: int, gpus: Iterable[int], nbytes: int, subexecutors: int = 0, executor: str = "gfx", memory: str = "G"
    ) -> Test:
        """Return the Test in which ``gpu`` pulls ``nbytes`` from each of the other ``gpus``, all there are.

        ``memory`` is the letter or word of the memory kind at all ends. Raises ``ValueError`` where there is no other.
        """
        return cls._with_peers("pull", gpu, gpus, nbytes, subexecutors, executor, memory)

    @classmethod
    def push_to_peers(
        cls, gpu: int, gpus: Iterable[int], nbytes: int, subexecutors: int = 0, executor: str = "gfx", memory: str = "G"
    ) -> Test:
        """Return the Test in which ``gpu`` pushes ``nbytes`` to each of the other ``gpus``, all there are.

        ``memory`` is the letter or word of the memory kind at all ends. Raises ``ValueError`` where there is no other.
        """
        return cls._with_peers("push", gpu, gpus, nbytes, subexecutors, executor, memory)

    @classmethod
    def one_to_all(
        cls,
        gpu: int,
        others: Iterable[int],
        nbytes: int,
        op: Direction = "push",
        executor: str = "gfx",
        subexecutors: int = 0,
        memory: str = "G",
    ) -> TransferOrTest:
        """Return what takes ``nbytes`` from ``gpu`` to each of the ``others``: it pushes, or each of them pulls.

        Names list the others; of one it is a Transfer. Raises ``ValueError`` where there is none.
        """
        one = _memory(memory, gpu)
        return together(tuple(_moved(op, one, other, nbytes, executor, subexecutors) for other in _others(one, others)))

    @classmethod
    def all_to_one(
        cls,
        others: Iterable[int],
        gpu: int,
        nbytes: int,
        op: Direction = "pull",
        executor: str = "gfx",
        subexecutors: int = 0,
        memory: str = "G",
    ) -> TransferOrTest:
        """Return what takes ``nbytes`` to ``gpu`` from each of the ``others``: it pulls, or each of them pushes.

        Names list the others; of one it is a Transfer. Raises ``ValueError`` where there is none.
        """
        one = _memory(memory, gpu)
        return together(tuple(_moved(op, other, one, nbytes, executor, subexecutors) for other in _others(one, others)))

    @classmethod
    def both_ways(
        cls, one: End, other: End, nbytes: int, op: Direction = "push", executor: str = "gfx", subexecutors: int = 0
    ) -> Test:
        """Return the Test of two Transfers, there and back, each pushed or each pulled.

        Raises ``ValueError``, saying what to use instead, where that executor cannot sit at both ends.
        """
        ways = (one, other), (other, one)
        return cls(tuple(_moved(op, *way, nbytes, executor, subexecutors) for way in ways))

    @classmethod
    def all_to_all(
        cls,
        gpus: Iterable[int],
        nbytes: int,
        op: Direction = "push",
        executor: str = "gfx",
        subexecutors: int = 0,
        local: bool = False,
        memory: str = "G",
    ) -> Test:
        """Return the Test in which each of the ``gpus``, all there are, sends ``nbytes`` to each, pushed or pulled.

        With ``local`` each GPU copies within itself too. Raises ``ValueError`` where there are not two.
        """
        ends = _memories(memory, gpus)
        if len(ends) < 2:
            raise ValueError(f"all-to-all among {' and '.join(map(str, ends)) or 'no GPU'}: name two GPUs at least")
        pairs = [(source, destination) for source in ends for destination in ends if local or source != destination]
        word = _word("all", ends[0])
        return cls(tuple(_moved(op, *pair, nbytes, executor, subexecutors) for pair in pairs), (word, word))

    @classmethod
    def _with_peers(
        cls, op: Direction, gpu: int, gpus: Iterable[int], nbytes: int, subexecutors: int, executor: str, memory: str
    ) -> Test:
        home = _memory(memory, gpu)
        peers = _others(home, gpus)
        word = _word("peers", home)
        if op == "pull":
            pairs, words = [(peer, home) for peer in peers], (word, "")
        else:
            pairs, words = [(home, peer) for peer in peers], ("", word)
        return cls(tuple(_moved(op, *pair, nbytes, executor, subexecutors) for pair in pairs), words)

    @property
    def executors(self) -> tuple[Executor, ...]:
        """Who runs the Transfers, each once."""
        return tuple(dict.fromkeys(transfer.executor for transfer in self.transfers))

    @property
    def executor(self) -> Executor:
        """Who runs all Transfers; raises ``ValueError`` where they have several: see :attr:`executors`."""
        if len(self.executors) > 1:
            raise ValueError(f"{', '.join(map(str, self.executors))} run this Test: ask each Transfer for its executor")
        return self.executors[0]

    @property
    def op(self) -> TestOp:
        """What every Transfer is, or ``mixed``."""
        ops = {transfer.op for transfer in self.transfers}
        return ops.pop() if len(ops) == 1 else "mixed"

    @property
    def nbytes(self) -> int:
        """Bytes of one Transfer, the largest, as TransferBench writes them; see :attr:`total_bytes`."""
        return max(transfer.nbytes for transfer in self.transfers)

    @property
    def total_bytes(self) -> int:
        """Bytes of all Transfers together: what bandwidth is counted from."""
        return sum(transfer.nbytes for transfer in self.transfers)

    @property
    def subexecutors(self) -> int:
        """Parts of the executor that share the work of one Transfer, 0 where Transfers differ or leave it open."""
        counts = {transfer.subexecutors for transfer in self.transfers}
        return counts.pop() if len(counts) == 1 else 0

    @property
    def sources(self) -> tuple[Memory, ...]:
        """The sources of all Transfers, in their order."""
        return tuple(memory for transfer in self.transfers for memory in transfer.sources)

    @property
    def destinations(self) -> tuple[Memory, ...]:
        """The destinations of all Transfers, in their order."""
        return tuple(memory for transfer in self.transfers for memory in transfer.destinations)

    @property
    def owners(self) -> frozenset[int]:
        """Every GPU that takes part, and ``HOST`` where the host does."""
        return frozenset().union(*(transfer.owners for transfer in self.transfers))

    @property
    def by(self) -> str:
        """Who moves the bytes: the executors' words, joined by ``+`` where they differ."""
        return "+".join(dict.fromkeys(transfer.by for transfer in self.transfers))

    @property
    def by_in_name(self) -> str:
        """Who moves the bytes, as names have it: each executor's word with its SubExecutors, joined by ``+``."""
        return "+".join(dict.fromkeys(transfer.by_in_name for transfer in self.transfers))

    @property
    def end_names(self) -> tuple[str, str]:
        """Sources and destinations as names have them: ``("peers", "G0")``, ``("G1+G2", "G0")``.

        The ends of the Transfers stand in their order; one that all share, and every one of more than eight
        Transfers, is named once.
        """
        pairs = [transfer.end_names for transfer in self.transfers]
        sources, destinations = (
            word or _joined([pair[side] for pair in pairs]) for side, word in enumerate(self.end_words)
        )
        return sources, destinations

    def notation(self) -> str:
        """Return the Transfers as text that :func:`parse_transfers` reads back, a bracket each."""
        return " ".join(transfer.notation() for transfer in self.transfers)

    def line(self) -> str:
        """Return the Test as a line of a TransferBench configuration file: ``-2 (G0->G0->G1 8 64M) (G1->...)``.

        TransferBench takes 0 SubExecutors, left to the engine here, for a search through all numbers of blocks.
        """
        return f"-{len(self.transfers)} " + " ".join(transfer.bracket_in_line() for transfer in self.transfers)

    def case_name(self, variant: str = "") -> str:
        """Return the id of this Test: :meth:`Transfer.case_name` with the ends of all Transfers in it.

        Where Transfers differ it has ``mixed`` as op, several executors and the largest size; whatever that leaves
        open is told by a hash, ``-x0c9d3a71``. Tests that differ have names that differ, ``end_words`` apart, which
        stand for the GPUs of one machine. Raises ``ValueError`` for a variant that makes no name.
        """
        return case_name(self, variant)

    def place_in_name(self) -> str:
        """Return what tells this Test from others of its op, executors, ends and size; nothing where those tell all.

        That is the place of an executor that all share, ``at-G2``, else a hash of all there is to tell.
        """
        first = self.transfers[0]
        alike = all(
            (transfer.op, transfer.by_in_name, transfer.nbytes) == (first.op, first.by_in_name, first.nbytes)
            for transfer in self.transfers
        )
        if alike and self._ends_told():
            if not any(transfer.place_in_name() for transfer in self.transfers):
                return ""
            if len(self.executors) == 1:
                return f"at-{first.executor}"
        return f"x{hashlib.sha256(self.notation().encode()).hexdigest()[:8]}"

    def _ends_told(self) -> bool:
        """Whether :attr:`end_names` tell the ends of every Transfer, and how many Transfers there are."""
        if any(self.end_words):
            return True
        pairs = {transfer.end_names for transfer in self.transfers}
        return len(pairs) > 1 and len(self.transfers) <= MOST_IN_NAME


TransferOrTest = Transfer | Test
"""What executors run."""


def together(transfers: tuple[Transfer, ...]) -> TransferOrTest:
    """Return the one Transfer there is, or the Test of several; raises ``ValueError`` where they make none."""
    return transfers[0] if len(transfers) == 1 else Test(transfers)


def _joined(names: Sequence[str]) -> str:
    once = dict.fromkeys(names)
    return "+".join(names if len(once) > 1 and len(names) <= MOST_IN_NAME else once)


def _moved(op: Direction, source: End, destination: End, nbytes: int, executor: str, subexecutors: int) -> Transfer:
    make = {"push": Transfer.push, "pull": Transfer.pull}.get(op)
    if make is None:
        raise ValueError(f"bad op {shown(op)} of a Test: use push or pull")
    return make(source, destination, nbytes, executor, subexecutors)


def _memory(kind: str, gpu: int) -> Memory:
    """Return the memory of a kind, by letter or word, on a GPU."""
    row = memory_kind(kind)
    if row.on != "device":
        on_gpus = [row for row in MEMORIES if row.on == "device"]
        raise ValueError(f"bad memory {shown(kind)} of GPUs: use {spellings(on_gpus)}")
    return Memory(row.letter, gpu)


def _memories(kind: str, gpus: Iterable[int]) -> list[Memory]:
    """Return the memory of a kind on each of the GPUs, none twice."""
    if not isinstance(gpus, Iterable):
        raise ValueError(f"bad gpus {shown(gpus)}: give the indices of GPUs, such as range(8)")
    return list(dict.fromkeys(_memory(kind, gpu) for gpu in gpus))


def _others(home: Memory, gpus: Iterable[int]) -> list[Memory]:
    others = [memory for memory in _memories(home.kind, gpus) if memory != home]
    if not others:
        raise ValueError(f"GPU {home.index} has no peers: name one more GPU at least")
    return others


def _word(word: str, memory: Memory) -> str:
    """Return the word that stands for memory of many GPUs: of plain memory the word alone."""
    return word if memory.kind == "G" else f"{memory.kind}{word}"

"""What moves at the same time: a Test, Transfers that start together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_transferbench.transfer.ends import Executor, Memory
from pytest_transferbench.transfer.sizes import shown
from pytest_transferbench.transfer.transfer import Op, Transfer, case_name


@dataclass(frozen=True, repr=False)
class Test:
    """Transfers that run at the same time, in one launch of the gfx executor they share.

    All move ``nbytes`` bytes each, share ``executor``, ``op`` and ``subexecutors`` (of each Transfer), and no two are
    equal. ``peers`` tells that the far ends are all the other GPUs there are: names then say so and do not list them;
    it takes no part in comparisons. Raises ``ValueError``, in one line, for Transfers that make no Test.
    """

    __test__ = False  # pytest takes an imported class of this name for one of its own

    transfers: tuple[Transfer, ...]
    peers: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.transfers, tuple):
            raise ValueError(f"bad Test {shown(self.transfers)}: give a tuple of Transfers")
        for transfer in self.transfers:
            if not isinstance(transfer, Transfer):
                raise ValueError(
                    f"bad Transfer {shown(transfer)} in a Test: give Transfers, or write their notation all in one text"
                )
        if len(self.transfers) < (1 if self.peers else 2):
            raise ValueError(f"a Test of {len(self.transfers)} Transfers: give two or more, or a Transfer by itself")
        first = self.transfers[0]
        for transfer in self.transfers:
            if transfer.executor.kind != "G" or "N" in (memory.kind for memory in _memories(transfer)):
                raise ValueError(f"{transfer.notation()} in a Test: use gfx, and memory at both ends")
            for what, mine, common in (
                ("executor", transfer.executor, first.executor),
                ("op", transfer.op, first.op),
                ("bytes", transfer.nbytes, first.nbytes),
                ("subexecutors", transfer.subexecutors, first.subexecutors),
            ):
                if mine != common:
                    raise ValueError(
                        f"{first.notation()} and {transfer.notation()} in a Test: {what} {common} and {mine}, "
                        "give all Transfers the same"
                    )
        if len(set(self.transfers)) < len(self.transfers):
            twice = next(transfer for transfer in self.transfers if self.transfers.count(transfer) > 1)
            raise ValueError(f"{twice.notation()} is twice in a Test: give every Transfer once")

    def __repr__(self) -> str:
        return f"<Test {self.notation()}>"

    @classmethod
    def pull_from_peers(cls, gpu: int, gpus: Iterable[int], nbytes: int, subexecutors: int = 0) -> Test:
        """Return the Test in which ``gpu`` pulls ``nbytes`` from each of the other ``gpus`` at the same time.

        Raises ``ValueError`` where there is no other.
        """
        peers = _peers(gpu, gpus)
        return cls._with_peers(gpu, [Transfer.pull(p, gpu, nbytes, "gfx", subexecutors) for p in peers])

    @classmethod
    def push_to_peers(cls, gpu: int, gpus: Iterable[int], nbytes: int, subexecutors: int = 0) -> Test:
        """Return the Test in which ``gpu`` pushes ``nbytes`` to each of the other ``gpus`` at the same time.

        Raises ``ValueError`` where there is no other.
        """
        peers = _peers(gpu, gpus)
        return cls._with_peers(gpu, [Transfer.push(gpu, p, nbytes, "gfx", subexecutors) for p in peers])

    @classmethod
    def _with_peers(cls, gpu: int, transfers: list[Transfer]) -> Test:
        if not transfers:
            raise ValueError(f"GPU {gpu} has no peers: name one more GPU at least")
        return cls(tuple(transfers), peers=True)

    @property
    def executor(self) -> Executor:
        """Who runs all Transfers."""
        return self.transfers[0].executor

    @property
    def op(self) -> Op:
        """What every Transfer is."""
        return self.transfers[0].op

    @property
    def nbytes(self) -> int:
        """Bytes of one Transfer, as TransferBench writes them; see :attr:`total_bytes`."""
        return self.transfers[0].nbytes

    @property
    def total_bytes(self) -> int:
        """Bytes of all Transfers together: what bandwidth is counted from."""
        return sum(transfer.nbytes for transfer in self.transfers)

    @property
    def subexecutors(self) -> int:
        """Parts of the executor that share the work of one Transfer; 0 leaves it to the engine."""
        return self.transfers[0].subexecutors

    @property
    def sources(self) -> tuple[Memory, ...]:
        """The sources of all Transfers, in their order."""
        return tuple(memory for transfer in self.transfers for memory in transfer.sources)

    @property
    def destinations(self) -> tuple[Memory, ...]:
        """The destinations of all Transfers, in their order."""
        return tuple(memory for transfer in self.transfers for memory in transfer.destinations)

    @property
    def by(self) -> str:
        """Who moves the bytes, as names have it: the executor's word."""
        return self.executor.word

    @property
    def end_names(self) -> tuple[str, str]:
        """Sources and destinations as names have them: ``("peers", "G0")``, ``("G1+G2", "G0")``.

        An end that all Transfers share is named once.
        """
        sources, destinations = (
            str(ends[0]) if len(set(ends)) == 1 else "+".join(map(str, ends))
            for ends in (self.sources, self.destinations)
        )
        if self.peers:
            return ("peers", destinations) if self.op == "pull" else (sources, "peers")
        return sources, destinations

    def owner_of(self, memory: Memory) -> int:
        """Return the GPU that homes ``memory``, or ``HOST``."""
        return memory.owner

    def notation(self) -> str:
        """Return the Transfers as text that :func:`parse_transfers` reads back, a bracket each."""
        return " ".join(transfer.notation() for transfer in self.transfers)

    def case_name(self, variant: str = "") -> str:
        """Return the id of this Test: :meth:`Transfer.case_name` with the ends of all Transfers in it.

        Tests that differ have names that differ, ``peers`` apart, which stands for the GPUs of one machine. Raises
        ``ValueError`` for a variant that makes no name.
        """
        return case_name(self, self.transfers[0].place_in_name(), variant)


TransferOrTest = Transfer | Test
"""What executors run."""


def together(transfers: tuple[Transfer, ...]) -> TransferOrTest:
    """Return the one Transfer there is, or the Test of several; raises ``ValueError`` where they make none."""
    return transfers[0] if len(transfers) == 1 else Test(transfers)


def _peers(gpu: int, gpus: Iterable[int]) -> list[int]:
    if not isinstance(gpus, Iterable):
        raise ValueError(f"bad gpus {shown(gpus)}: give the indices of GPUs, such as range(8)")
    return [peer for peer in gpus if peer != gpu]


def _memories(transfer: Transfer) -> tuple[Memory, ...]:
    return (*transfer.sources, *transfer.destinations)

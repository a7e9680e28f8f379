"""The buffers of one Transfer of a case: a case has as many legs as Transfers run at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors import Operands, link_of
from pytest_transferbench.engine.pattern import Words
from pytest_transferbench.engine.validation import Destination, Prover, Region, fill_slices
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import Allocation, RuntimeFault
from pytest_transferbench.transfer import Memory, RotationPlan, Transfer, memory_kind

if TYPE_CHECKING:
    from pytest_transferbench.engine.bench import Bench

SCRATCH_BYTES = 64 * 1024


class Leg:
    """Where one Transfer's bytes come from and go to, taken from the arena.

    ``number`` tells the legs of a case apart. ``source`` starts at slice 0; it and ``destination`` are None for null
    memory. ``nonce`` is that of the pattern in the slices, 0 where they hold the caller's own data.
    """

    def __init__(self, bench: Bench, transfer: Transfer, plan: RotationPlan, number: int) -> None:
        self.bench = bench
        self.transfer = transfer
        self.plan = plan
        self._number = number
        self.ends = link_of(transfer)
        self.link = bench.node.link(*self.ends)
        source, destination = transfer.sources[0], transfer.destinations[0]
        offset, nbytes = plan.byte_offset, plan.nbytes
        self._source = self._take("source", source, plan.allocation_bytes)
        self._destination = self._take("destination", destination, Destination.allocation_bytes(nbytes, offset))
        self.source: Region | None = None
        if self._source is not None:
            self.source = Region(self._source.pointer + offset, nbytes, self._agent(source))
        self.destination: Destination | None = None
        if self._destination is not None:
            self.destination = Destination(self._destination, offset, nbytes, self._agent(destination))
        self.nonce = 0
        self._filled = False

    @property
    def warnings(self) -> list[str]:
        """What nobody could see of where the buffers lie."""
        return [held.unchecked for held in (self._source, self._destination) if held is not None and held.unchecked]

    @property
    def slices(self) -> list[Any]:
        """The K filled source arrays: CuPy on a GPU, NumPy on the host; 1-d, 32-bit words."""
        assert self._source is not None
        assert self.source is not None
        if not self._filled:
            self.fill(self.bench.next_nonce())
            if self.source.agent is not None:
                self.source.agent.synchronize()
        array = self.bench.runtime.array
        return [array(self._source, self.plan.offset_of(index), self.plan.nbytes) for index in range(self.plan.slices)]

    @property
    def peer(self) -> Any:
        """The destination array, as :attr:`slices` are."""
        assert self._destination is not None
        assert self.destination is not None
        offset = self.destination.data.pointer - self._destination.pointer
        return self.bench.runtime.array(self._destination, offset, self.plan.nbytes)

    def operands(self) -> Operands:
        """Return where an executor finds the bytes."""
        source = self.source.pointer if self.source else None
        destination = self.destination.data.pointer if self.destination else None
        return Operands(source, destination, self.plan.nbytes, self.plan)

    def scratch_operands(self) -> Operands:
        """Return a small copy between the same memories, without rotation: it wakes the link."""
        nbytes = min(SCRATCH_BYTES, self.plan.nbytes)
        source = self._take("scratch source", self.transfer.sources[0], SCRATCH_BYTES)
        destination = self._take("scratch destination", self.transfer.destinations[0], SCRATCH_BYTES)
        plan = RotationPlan.make(nbytes, 0, memory_bytes=nbytes)
        return Operands(_pointer(source), _pointer(destination), nbytes, plan)

    def fill(self, nonce: int) -> None:
        """Queue the pattern of ``nonce`` into every slice."""
        if self.source is not None:
            fill_slices(self.source, self.plan, nonce)
            self.nonce, self._filled = nonce, True

    def fill_with(self, words: Words) -> int:
        """Put the caller's own words into every slice, by prefix doubling.

        Returns the address of a copy beside the destination, to compare with; 0 where there is no destination.
        """
        __tracebackhide__ = True
        runtime, raw = self.bench.runtime, words.tobytes()
        if self.source is None:
            raise ValueError(f"{self.transfer.notation()} has no source that could hold data")
        agent = self.source.agent
        runtime.write(self.source.pointer, raw, agent.index if agent else HOST)
        for copy in self.plan.prefix_doubling():
            assert agent is not None, "only GPU memory is rotated"
            target = self.source.pointer + copy.destination_slice * self.plan.pitch
            nbytes = copy.slices * self.plan.pitch
            runtime.dma_copy(target, self.source.pointer, nbytes, agent.stream)
            agent.synchronize()
        self.nonce, self._filled = 0, True
        if self.destination is None:
            return 0
        role = self._role("reference")
        reference = self.bench.arena.take(role, self.transfer.destinations[0], self.plan.nbytes)
        agent = self.destination.data.agent
        runtime.write(reference.pointer, raw, agent.index if agent else HOST)
        return reference.pointer

    def prover(self, reference: int) -> Prover | None:
        """Return what proves the destination; ``None`` for a read-only transfer."""
        if self.destination is None:
            return None
        return Prover(self.bench.runtime, self.destination, self.plan, reference)

    def agent_of(self, end: int) -> DeviceContext | None:
        """Return the open device ``end``, ``None`` for the host."""
        return None if end == HOST else self.bench.device(end)

    def _role(self, role: str) -> str:
        return f"{role} {self._number}" if self._number else role

    def _take(self, role: str, memory: Memory, nbytes: int) -> Allocation | None:
        if memory.on == "none":
            return None
        taken = self.bench.arena.take(self._role(role), memory, nbytes)
        if memory.on == "device":
            owner = self.bench.runtime.owner_of(taken.pointer)
            if owner != memory.owner:
                raise RuntimeFault("allocate", memory.owner, "WrongOwner", f"{memory} is homed on GPU {owner}")
        return taken

    def _agent(self, memory: Memory) -> DeviceContext | None:
        """Who fills and checks ``memory``: its owner; for pinned host memory a GPU of the case, else the host."""
        if memory.on == "host" and not memory_kind(memory.kind).pinned:
            return None
        gpus = [end for end in (self.transfer.executor.owner, *self.ends) if end != HOST]
        return self.agent_of(memory.owner if memory.owner != HOST else gpus[0] if gpus else HOST)


def _pointer(allocation: Allocation | None) -> int | None:
    return None if allocation is None else allocation.pointer

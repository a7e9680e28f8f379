"""The buffers of one Transfer of a case: a case has as many legs as Transfers run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors import Operands, link_of
from pytest_transferbench.engine.pattern import WRITE_KEY, Words, key_of
from pytest_transferbench.engine.validation import Destination, Prover, Region, fill_slices
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import Allocation, RuntimeFault
from pytest_transferbench.transfer import Memory, RotationPlan, Transfer, memory_kind

if TYPE_CHECKING:
    from pytest_transferbench.engine.bench import Bench

SCRATCH_BYTES = 64 * 1024
_E = TypeVar("_E", Region, Destination)


class Leg:
    """Where one Transfer's bytes come from and go to, taken from the arena.

    ``number`` tells the legs of a case apart. ``sources`` start at slice 0; they and ``destinations`` are none for null
    memory. ``nonce`` is that of the pattern in the slices of the first source, those after it have the next ones; 0
    where they hold the caller's own data.
    """

    def __init__(self, bench: Bench, transfer: Transfer, plan: RotationPlan, number: int) -> None:
        self.bench = bench
        self.transfer = transfer
        self.plan = plan
        self._number = number
        self.ends = link_of(transfer)
        self.link = bench.node.link(*self.ends)
        offset, nbytes = plan.byte_offset, plan.nbytes
        self.sources: list[Region] = []
        self.destinations: list[Destination] = []
        self._source_allocations = self._take_all("source", transfer.sources, plan.allocation_bytes)
        for memory, taken in zip(transfer.sources, self._source_allocations, strict=False):
            self.sources.append(Region(taken.pointer + offset, nbytes, self._agent(memory)))
        room = Destination.allocation_bytes(nbytes, offset)
        self._destination_allocations = self._take_all("destination", transfer.destinations, room)
        for memory, taken in zip(transfer.destinations, self._destination_allocations, strict=False):
            self.destinations.append(Destination(taken, offset, nbytes, self._agent(memory)))
        self.nonce = 0
        self._filled = False

    @property
    def warnings(self) -> list[str]:
        """What nobody could see of where the buffers lie."""
        return [
            held.unchecked for held in (*self._source_allocations, *self._destination_allocations) if held.unchecked
        ]

    @property
    def nonces(self) -> int:
        """How many nonces a pattern takes: one for each source, and one where there is none."""
        return max(1, len(self.sources))

    @property
    def numbers(self) -> bool:
        """Whether the sources hold numbers that are added up."""
        return len(self.sources) > 1

    @property
    def slices(self) -> list[Any]:
        """The K filled arrays of the only source: CuPy on a GPU, NumPy on the host; 1-d, 32-bit words."""
        self._only("source", self.sources)
        if not self._filled:
            self.fill(self.bench.next_nonce())
            if self.sources[0].agent is not None:
                self.sources[0].agent.synchronize()
        array, (taken,) = self.bench.runtime.array, self._source_allocations
        return [array(taken, self.plan.offset_of(index), self.plan.nbytes) for index in range(self.plan.slices)]

    @property
    def peer(self) -> Any:
        """The array of the only destination, as :attr:`slices` are."""
        destination = self._only("destination", self.destinations)
        (taken,) = self._destination_allocations
        offset = destination.data.pointer - taken.pointer
        return self.bench.runtime.array(taken, offset, self.plan.nbytes)

    def operands(self) -> Operands:
        """Return where an executor finds the bytes."""
        sources = tuple(source.pointer for source in self.sources)
        destinations = tuple(destination.data.pointer for destination in self.destinations)
        return Operands(sources, destinations, self.plan.nbytes, self.plan)

    def scratch_operands(self) -> Operands:
        """Return a small copy between the same memories, without rotation: it wakes the links."""
        nbytes = min(SCRATCH_BYTES, self.plan.nbytes)
        sources = self._take_all("scratch source", self.transfer.sources, SCRATCH_BYTES)
        destinations = self._take_all("scratch destination", self.transfer.destinations, SCRATCH_BYTES)
        plan = RotationPlan.make(nbytes, 0, memory_bytes=nbytes)
        return Operands(_pointers(sources), _pointers(destinations), nbytes, plan)

    def fill(self, nonce: int) -> None:
        """Queue the pattern of ``nonce`` into every slice of the first source, of the next nonces into those after."""
        for number, source in enumerate(self.sources):
            fill_slices(source, self.plan, nonce + number, numbers=self.numbers)
        self.nonce, self._filled = nonce if self.sources else 0, bool(self.sources)

    def keys(self, slice_index: int, nonce: int) -> tuple[int, ...]:
        """Return the keys of what a copy of ``slice_index`` leaves, where the first source has ``nonce``."""
        if not self.sources:
            return (WRITE_KEY,)
        return tuple(key_of(slice_index, nonce + number) for number in range(len(self.sources)))

    def fill_with(self, words: Words) -> int:
        """Put the caller's own words into every slice, by prefix doubling.

        Returns the address of a copy beside the destination, to compare with; 0 where there is no destination.
        """
        __tracebackhide__ = True
        runtime, raw = self.bench.runtime, words.tobytes()
        if len(self.sources) != 1 or len(self.destinations) > 1:
            raise ValueError(
                f"{self.transfer.notation()}: data of your own goes from exactly one source to one destination at most"
            )
        (source,) = self.sources
        agent = source.agent
        runtime.write(source.pointer, raw, agent.index if agent else HOST)
        for copy in self.plan.prefix_doubling():
            assert agent is not None, "only GPU memory is rotated"
            target = source.pointer + copy.destination_slice * self.plan.pitch
            nbytes = copy.slices * self.plan.pitch
            runtime.dma_copy(target, source.pointer, nbytes, agent.stream)
            agent.synchronize()
        self.nonce, self._filled = 0, True
        if not self.destinations:
            return 0
        role = self._role("reference")
        reference = self.bench.arena.take(role, self.transfer.destinations[0], self.plan.nbytes)
        agent = self.destinations[0].data.agent
        runtime.write(reference.pointer, raw, agent.index if agent else HOST)
        return reference.pointer

    def provers(self, reference: int) -> list[Prover]:
        """Return what proves each destination; nothing for a read-only transfer."""
        runtime = self.bench.runtime
        return [Prover(runtime, destination, self.plan, reference) for destination in self.destinations]

    def agent_of(self, end: int) -> DeviceContext | None:
        """Return the open device ``end``, ``None`` for the host."""
        return None if end == HOST else self.bench.device(end)

    def _only(self, what: str, ends: list[_E]) -> _E:
        if len(ends) != 1:
            raise ValueError(f"{self.transfer.notation()} has {len(ends)} {what}s: ask .legs[0].{what}s for each")
        return ends[0]

    def _role(self, role: str, end: int = 0) -> str:
        return f"{role} {self._number}.{end}" if self._number or end else role

    def _take_all(self, role: str, memories: Sequence[Memory], nbytes: int) -> list[Allocation]:
        """Take memory for each end that has any."""
        return [
            self._take(self._role(role, end), memory, nbytes)
            for end, memory in enumerate(memories)
            if memory.on != "none"
        ]

    def _take(self, role: str, memory: Memory, nbytes: int) -> Allocation:
        taken = self.bench.arena.take(role, memory, nbytes)
        if memory.on == "device":
            owner = self.bench.runtime.owner_of(taken.pointer)
            if owner != memory.owner:
                raise RuntimeFault("allocate", memory.owner, "WrongOwner", f"{memory} is homed on GPU {owner}")
        return taken

    def _agent(self, memory: Memory) -> DeviceContext | None:
        """Who fills and checks ``memory``: its owner; for pinned host memory a GPU of the case, else the host."""
        if memory.on == "host" and not memory_kind(memory.kind).pinned:
            return None
        gpus = [end for end in (self.transfer.executor.owner, *sorted(self.transfer.owners)) if end != HOST]
        return self.agent_of(memory.owner if memory.owner != HOST else gpus[0] if gpus else HOST)


def _pointers(allocations: Sequence[Allocation]) -> tuple[int, ...]:
    return tuple(allocation.pointer for allocation in allocations)

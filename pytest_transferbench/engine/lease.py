"""The buffers and the executor of one case, taken before its first sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pytest_transferbench.engine import executors
from pytest_transferbench.engine.caches import Evictor
from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors import Executor, Geometry, Operands
from pytest_transferbench.engine.pattern import Words
from pytest_transferbench.engine.validation import Destination, Prover, Region, fill_slices
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.runtime import Allocation, RuntimeFault
from pytest_transferbench.transfer import Case, Memory, Method, RotationPlan, copies_per_sample
from pytest_transferbench.transfer.case import MAX_COPIES

if TYPE_CHECKING:
    from pytest_transferbench.engine.bench import Bench

SCRATCH_BYTES = 64 * 1024
SUMS_BYTES = 256


@dataclass(repr=False)
class Lease:
    """The buffers and facts of one case, taken from the arena. Filled arrays are made when first asked for."""

    bench: Bench
    case: Case
    plan: RotationPlan = field(init=False)
    method: Method = field(init=False)
    geometry: Geometry = field(init=False)
    executor: Executor = field(init=False)
    waker: Executor = field(init=False)
    evictor: Evictor = field(init=False)

    def __post_init__(self) -> None:
        bench, case, transfer = self.bench, self.case, self.case.transfer
        node, nbytes, offset = bench.node, transfer.nbytes, case.byte_offset
        self.ends = executors.link_of(transfer)
        self.link = node.link(*self.ends)
        owners = executors.devices_of(transfer)
        self.warnings: list[str] = []
        for fault in bench.arena.keep_only(owners):
            bench.find_lost(case, fault)
            self.warnings.append(f"memory of an earlier case is still held: {fault}")
        for end in owners:
            bench.device(end)
            bench.connect(transfer.executor.owner, end)
        self.plan = _plan(case, node, self.ends)
        self.geometry = executors.geometry_of(transfer, node)
        copies = self._copies()

        source, destination = transfer.sources[0], transfer.destinations[0]
        self._source = self._take("source", source, self.plan.allocation_bytes)
        self._destination = self._take("destination", destination, Destination.allocation_bytes(nbytes, offset))
        self.source_region: Region | None = None
        if self._source is not None:
            agent = self._agent(source, transfer.executor.owner)
            self.source_region = Region(self._source.pointer + offset, nbytes, agent)
        self.destination: Destination | None = None
        if self._destination is not None:
            agent = self._agent(destination, transfer.executor.owner)
            self.destination = Destination(self._destination, offset, nbytes, agent)
        self.executor = self._make_executor(self._operands(nbytes), "", copies)
        self.waker = self._make_executor(self._scratch_operands(), "scratch ", 1)
        agents = {end: self._agent_of(end) for end in dict.fromkeys(self.ends)}
        self.evictor = Evictor(bench.arena, agents, node.host_cache_bytes)
        self.method = self._method(copies)
        self.nonce = 0
        self._filled = False

    def __repr__(self) -> str:
        return f"<lease of {self.case.name}, {self.plan.describe()}>"

    @property
    def slices(self) -> list[Any]:
        """The K filled source arrays: CuPy on a GPU, NumPy on the host; 1-d, 32-bit words."""
        assert self._source is not None
        assert self.source_region is not None
        if not self._filled:
            self.fill(self.bench.next_nonce())
            if self.source_region.agent is not None:
                self.source_region.agent.synchronize()
        array = self.bench.runtime.array
        return [array(self._source, self.plan.offset_of(index), self.plan.nbytes) for index in range(self.plan.slices)]

    @property
    def peer(self) -> Any:
        """The destination array, as :attr:`slices` are."""
        assert self._destination is not None
        assert self.destination is not None
        offset = self.destination.data.pointer - self._destination.pointer
        return self.bench.runtime.array(self._destination, offset, self.plan.nbytes)

    def fill(self, nonce: int) -> None:
        """Queue the pattern of ``nonce`` into every slice."""
        if self.source_region is not None:
            fill_slices(self.source_region, self.plan, nonce)
            self.nonce, self._filled = nonce, True

    def words_of(self, data: Any) -> Words:
        """Return the caller's own data as 32-bit words.

        Raises ValueError, one line, for what is no array of plain values and for one not as long as the transfer.
        """
        if hasattr(data, "get") and hasattr(data, "__cuda_array_interface__"):
            data = data.get()
        plain = isinstance(data, bytes | bytearray | memoryview) or hasattr(data, "dtype")
        if not plain or getattr(data, "dtype", np.dtype(np.uint8)).hasobject:
            kind = type(data).__name__ if not plain else f"array of {data.dtype}"
            raise ValueError(f"data is {kind}: give an array of numbers, of NumPy or CuPy, or bytes")
        raw = np.ascontiguousarray(data).tobytes() if hasattr(data, "dtype") else bytes(data)
        if len(raw) != self.plan.nbytes:
            raise ValueError(f"data has {len(raw)} bytes; this transfer moves {self.plan.nbytes}: give exactly as many")
        return np.frombuffer(raw, dtype=np.uint32)

    def fill_with(self, words: Words) -> int:
        """Put the caller's own words into every slice, by prefix doubling.

        Returns the address of a copy beside the destination, to compare with; 0 where there is no destination.
        """
        __tracebackhide__ = True
        runtime, raw = self.bench.runtime, words.tobytes()
        if self.source_region is None:
            raise ValueError(f"{self.case.transfer.notation()} has no source that could hold data")
        agent = self.source_region.agent
        runtime.write(self.source_region.pointer, raw, agent.index if agent else HOST)
        for copy in self.plan.prefix_doubling():
            assert agent is not None, "only GPU memory is rotated"
            target = self.source_region.pointer + copy.destination_slice * self.plan.pitch
            nbytes = copy.slices * self.plan.pitch
            runtime.dma_copy(target, self.source_region.pointer, nbytes, agent.stream)
            agent.synchronize()
        self.nonce, self._filled = 0, True
        if self.destination is None:
            return 0
        reference = self.bench.arena.take("reference", self.case.transfer.destinations[0], self.plan.nbytes)
        agent = self.destination.data.agent
        runtime.write(reference.pointer, raw, agent.index if agent else HOST)
        return reference.pointer

    def prover(self, reference: int) -> Prover | None:
        """Return what proves the destination; ``None`` for a read-only transfer."""
        if self.destination is None:
            return None
        return Prover(self.bench.runtime, self.destination, self.plan, reference)

    def stamps(self, launches: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Read the stamps of the first ``launches`` launches as ``[launch, block, (start, stop)]``."""
        words = launches * self.executor.stamps_per_launch
        context = self.bench.device(self.case.transfer.executor.owner)
        return context.read_words(self.executor.stamps_at, words).reshape(launches, -1, 2)

    def clear_stamps(self, launches: int) -> None:
        """Zero the stamps, so that none is older than this case."""
        context = self.bench.device(self.case.transfer.executor.owner)
        context.write_words(self.executor.stamps_at, [0] * (launches * self.executor.stamps_per_launch))

    def _copies(self) -> int:
        copies = copies_per_sample(
            self.case.transfer.nbytes * self.case.sub_iterations,
            self.link.link_class,
            virtual_clock=self.bench.runtime.emulated,
        )
        queued = executors.passes_per_launch(self.case.transfer, self.case.sub_iterations)
        return min(copies, MAX_COPIES // queued)

    def _take(self, role: str, memory: Memory, nbytes: int) -> Allocation | None:
        if memory.on == "none":
            return None
        taken = self.bench.arena.take(role, memory, nbytes)
        owner = self.bench.runtime.owner_of(taken.pointer)
        if memory.on == "device" and owner != memory.owner:
            raise RuntimeFault("allocate", memory.owner, "WrongOwner", f"{memory} is homed on GPU {owner}")
        return taken

    def _agent_of(self, end: int) -> DeviceContext | None:
        return None if end == HOST else self.bench.device(end)

    def _agent(self, memory: Memory, executor: int) -> DeviceContext | None:
        """Who fills and checks ``memory``: its owner; for host memory a GPU of the case, else the host itself."""
        gpus = [end for end in (executor, *self.ends) if end != HOST]
        home = HOST if memory.on == "none" else memory.owner
        return self._agent_of(home if home != HOST else gpus[0] if gpus else HOST)

    def _operands(self, nbytes: int) -> Operands:
        source = self.source_region.pointer if self.source_region else None
        destination = self.destination.data.pointer if self.destination else None
        return Operands(source, destination, nbytes, self.plan)

    def _scratch_operands(self) -> Operands:
        nbytes = min(SCRATCH_BYTES, self.plan.nbytes)
        source, destination = (
            self._take("scratch " + role, memory, SCRATCH_BYTES)
            for role, memory in (
                ("source", self.case.transfer.sources[0]),
                ("destination", self.case.transfer.destinations[0]),
            )
        )
        plan = RotationPlan.make(nbytes, 0, memory_bytes=nbytes)
        return Operands(_pointer(source), _pointer(destination), nbytes, plan)

    def _make_executor(self, operands: Operands, role: str, launches: int) -> Executor:
        transfer = self.case.transfer
        if transfer.executor.kind == "C":
            return executors.CpuExecutor(self.bench.runtime, operands, self.geometry.subexecutors)
        context = self.bench.device(transfer.executor.index)
        assert context.stream.device == transfer.executor.owner
        if transfer.executor.kind == "D":
            return executors.DmaExecutor(context, operands)
        nbytes = 16 * self.geometry.subexecutors * launches
        stamps = self.bench.arena.take(role + "stamps", Memory("G", context.index), nbytes)
        sums = self.bench.arena.take(role + "sums", Memory("G", context.index), SUMS_BYTES).pointer
        return executors.GfxExecutor(context, operands, self.geometry, stamps.pointer, sums_at=sums)

    def _method(self, copies: int) -> Method:
        case, transfer = self.case, self.case.transfer
        gate: Literal["kernel", "host", "none"] = "host"
        if self.executor.stream is not None:
            gate = "kernel" if self.bench.gates(transfer, self.executor) else "none"
        return Method(
            samples=case.samples,
            copies=copies,
            sub_iterations=case.sub_iterations,
            warmups=case.warmups,
            rotate_bytes=self.plan.budget,
            slices=self.plan.slices,
            pitch=self.plan.pitch,
            byte_offset=case.byte_offset,
            subexecutors=self.geometry.subexecutors,
            block_threads=self.geometry.block_threads,
            unroll=self.geometry.unroll,
            source_kind=transfer.sources[0].kind,
            destination_kind=transfer.destinations[0].kind,
            gate=gate,
            link_class=self.link.link_class,
        )


def _pointer(allocation: Allocation | None) -> int | None:
    return None if allocation is None else allocation.pointer


def _plan(case: Case, node: Node, ends: tuple[int, int]) -> RotationPlan:
    caches = [node.device(end).last_level_cache_bytes for end in ends if end != HOST]
    memory = node.device(ends[0]).memory_bytes if ends[0] != HOST else 2**62
    return RotationPlan.for_transfer(
        case.transfer, case.rotate_bytes, memory_bytes=memory, byte_offset=case.byte_offset, caches=caches
    )

"""The buffers and the executor of one case, taken before its first sample."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pytest_transferbench.engine import executors
from pytest_transferbench.engine.caches import Evictor
from pytest_transferbench.engine.executors import Executor, Geometry, Operands
from pytest_transferbench.engine.leg import Leg
from pytest_transferbench.engine.memory_kinds import numa_node_of
from pytest_transferbench.engine.pattern import Words
from pytest_transferbench.engine.validation import Prover
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.transfer import (
    Case,
    Memory,
    Method,
    RotationPlan,
    Transfer,
    copies_per_sample,
    rotation_budget,
)
from pytest_transferbench.transfer.case import MAX_COPIES

if TYPE_CHECKING:
    from pytest_transferbench.engine.bench import Bench


@dataclass(repr=False)
class Lease:
    """The buffers and facts of one case, taken from the arena. Sources are filled when first asked for.

    ``legs`` hold the buffers, one for each Transfer; ``plan`` is how all their sources rotate. ``owners`` are the
    GPUs that take part. There is no ``evictor``, and only steady copies are made, where more than one source goes to
    one destination: what caches hold then depends on all of them.
    """

    bench: Bench
    case: Case
    plan: RotationPlan = field(init=False)
    method: Method = field(init=False)
    geometry: Geometry = field(init=False)
    executor: Executor = field(init=False)
    waker: Executor = field(init=False)
    evictor: Evictor | None = field(init=False)

    def __post_init__(self) -> None:
        bench, case, transfer = self.bench, self.case, self.case.transfer
        self.owners = executors.devices_of(transfer)
        self.warnings = bench.make_room(case, self.owners)
        for end in self.owners:
            bench.connect(transfer.executor.owner, end)
        self.plan = _plan(case, bench.node)
        self.geometry = executors.geometry_of(transfer, bench.node, case.block_threads, case.unroll)
        self.legs = [Leg(bench, each, self.plan, number) for number, each in enumerate(transfer.transfers)]
        self.warnings += dict.fromkeys(warning for leg in self.legs for warning in leg.warnings)
        copies = self._copies()
        self.executor = self.make_executor([leg.operands() for leg in self.legs], "", copies)
        self.waker = self.make_executor([leg.scratch_operands() for leg in self.legs], "scratch ", 1)
        self.evictor = None
        if isinstance(transfer, Transfer) and len(transfer.sources) == len(transfer.destinations) == 1:
            ends = executors.link_of(transfer)
            agents = {end: self.legs[0].agent_of(end) for end in dict.fromkeys(ends)}
            self.evictor = Evictor(bench.arena, agents, bench.node.host_cache_bytes, self._numa_node())
        self.method = self._method(copies)

    def __repr__(self) -> str:
        return f"<lease of {self.case.name}, {self.plan.describe()}>"

    @property
    def slices(self) -> list[Any]:
        """The K filled source arrays of a Transfer: CuPy on a GPU, NumPy on the host; 1-d, 32-bit words."""
        return self._only_leg("slices").slices

    @property
    def peer(self) -> Any:
        """The destination array of a Transfer, as :attr:`slices` are."""
        return self._only_leg("peer").peer

    @property
    def nonce(self) -> int:
        """The nonce of the pattern that a Transfer's slices hold, 0 where they hold the caller's own data."""
        return self._only_leg("nonce").nonce

    def fill(self, nonce: int) -> None:
        """Queue the pattern of ``nonce`` into every slice of the first source, of the next nonces into those after it.

        Every source of every leg has its own, so that two swapped destinations do not look right.
        """
        for leg, first in zip(self.legs, self.nonces_from(nonce), strict=True):
            leg.fill(first)

    def nonces_from(self, nonce: int) -> list[int]:
        """Return the nonce of the first source of every leg, where that of the first leg is ``nonce``."""
        return [nonce + sum(leg.nonces for leg in self.legs[:number]) for number in range(len(self.legs))]

    def words_of(self, data: Any) -> Words:
        """Return the caller's own data as 32-bit words.

        Raises ValueError, one line, for what is no array of plain values and for one not as long as the transfer.
        """
        __tracebackhide__ = True
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

    def fill_with(self, words: Words) -> list[int]:
        """Put the caller's own words into every slice of every leg; returns what :meth:`Leg.fill_with` does of each."""
        __tracebackhide__ = True
        return [leg.fill_with(words) for leg in self.legs]

    def provers(self, references: list[int]) -> list[list[Prover]]:
        """Return what proves the destinations, leg by leg; nothing for a read-only transfer."""
        return [leg.provers(reference) for leg, reference in zip(self.legs, references, strict=True)]

    def stamps(self, launches: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Read the stamps of the first ``launches`` launches as ``[launch, block, (start, stop)]``."""
        words = launches * self.executor.stamps_per_launch
        context = self.bench.device(self.case.transfer.executor.owner)
        return context.read_words(self.executor.stamps_at, words).reshape(launches, -1, 2)

    def clear_stamps(self, launches: int) -> None:
        """Zero the stamps, so that none is older than this case."""
        context = self.bench.device(self.case.transfer.executor.owner)
        context.write_words(self.executor.stamps_at, [0] * (launches * self.executor.stamps_per_launch))

    def _numa_node(self) -> int:
        """Return the NUMA node of the host's part in a Transfer, the source before the destination."""
        transfer, node = self.case.transfer, self.bench.node
        on_host = (memory for memory in (*transfer.sources, *transfer.destinations) if memory.on == "host")
        return next((numa_node_of(memory, node) for memory in on_host), node.numa_nodes[0].index)

    def _only_leg(self, asked: str) -> Leg:
        if len(self.legs) > 1:
            raise ValueError(f"{self.case.name} has {len(self.legs)} Transfers: ask .legs for .{asked} of each")
        return self.legs[0]

    def _copies(self) -> int:
        # A virtual clock passes while a CPU makes the copies one after the other, a real one while all are made.
        transfer, virtual_clock = self.case.transfer, self.bench.runtime.emulated
        nbytes = transfer.total_bytes if virtual_clock else transfer.nbytes
        copies = min(
            copies_per_sample(nbytes * self.case.sub_iterations, leg.link.link_class, virtual_clock=virtual_clock)
            for leg in self.legs
        )
        first = transfer.transfers[0]
        queued = executors.file_of(transfer).operations(first, self.case.sub_iterations)
        return min(copies, MAX_COPIES // queued)

    def make_executor(self, operands: list[Operands], role: str, launches: int) -> Executor:
        transfer, bench = self.case.transfer, self.bench
        context = bench.device(transfer.executor.owner) if transfer.executor.on == "device" else None
        assert context is None or context.stream.device == transfer.executor.owner

        def take(what: str, nbytes: int) -> int:
            return bench.arena.take(role + what, Memory("G", transfer.executor.owner), nbytes).pointer

        place = executors.Place(bench.runtime, transfer.executor.index, context, take)
        return executors.file_of(transfer).make(place, operands, self.geometry, launches)

    def _method(self, copies: int) -> Method:
        case, transfer = self.case, self.case.transfer
        link_classes = dict.fromkeys(str(leg.link.link_class) for leg in self.legs)
        gate: Literal["kernel", "host", "none"] = "host"
        if self.executor.stream is not None:
            gate = "kernel" if self.bench.gates(transfer, self.executor) else "none"
        return Method(
            transfers=len(self.legs),
            samples=case.samples,
            copies=copies,
            sub_iterations=case.sub_iterations,
            warmups=case.warmups,
            rotate_bytes=self.plan.budget,
            slices=self.plan.slices,
            pitch=self.plan.pitch,
            rotated=self.plan.rotated,
            byte_offset=case.byte_offset,
            subexecutors=self.geometry.subexecutors,
            block_threads=self.geometry.block_threads,
            unroll=self.geometry.unroll,
            part=-1 if self.geometry.part is None else self.geometry.part,
            source_kind="+".join(dict.fromkeys(memory.kind for memory in transfer.sources)),
            destination_kind="+".join(dict.fromkeys(memory.kind for memory in transfer.destinations)),
            gate=gate,
            link_class="+".join(link_classes),
        )


def _plan(case: Case, node: Node) -> RotationPlan:
    """Return how every source of the case rotates; those of one device share its memory."""
    transfers = case.transfer.transfers
    ends = {end for transfer in transfers for end in transfer.owners if end != HOST}
    sources = Counter(transfer.owner_of(memory) for transfer in transfers for memory in transfer.sources)
    memory_bytes = {owner: 2**62 if owner == HOST else node.device(owner).memory_bytes for owner in sources}
    crowded = min(sources, key=lambda owner: memory_bytes[owner] // sources[owner])
    return RotationPlan.make(
        case.transfer.nbytes,
        rotation_budget(case.transfer, case.rotate_bytes),
        memory_bytes=memory_bytes[crowded],
        sources=sources[crowded],
        byte_offset=case.byte_offset,
        caches=[node.device(end).last_level_cache_bytes for end in sorted(ends)],
    )

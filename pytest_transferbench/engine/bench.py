"""One opened machine, kept for the whole session: runtime, devices, gate, arena; and the lease of a case on it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_transferbench.engine import clocks, executors, run
from pytest_transferbench.engine.arena import Arena
from pytest_transferbench.engine.device import DeviceContext, insist
from pytest_transferbench.engine.executors import Executor, Operands
from pytest_transferbench.engine.gate import Gate
from pytest_transferbench.engine.lease import Lease
from pytest_transferbench.engine.leg import SCRATCH_BYTES
from pytest_transferbench.engine.pattern import key_of
from pytest_transferbench.engine.validation import Region, fill_slices
from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.runtime import Runtime, RuntimeFault, Telemetry, open_runtime
from pytest_transferbench.transfer import (
    NOMINAL_GBPS,
    AnyCase,
    Case,
    Memory,
    RotationPlan,
    TransferOrTest,
    copies_per_sample,
    rotation_budget,
)
from pytest_transferbench.transfer.rotation import CACHE_FACTOR, DEFAULT_BUDGET_BYTES

_C = TypeVar("_C", bound=AnyCase)
_L = TypeVar("_L")

_CANARY_SECONDS = 10.0
_FIRST_NONCE = 1


@dataclass(frozen=True)
class ClockFacts:
    """What is known about one device's clocks before anything is timed with them."""

    empty_pair_seconds: float
    launch_seconds: float
    skew_seconds: float


class DeviceLost(RuntimeFault):
    """A device that an earlier case has ended: every call for it fails, so none is made."""

    def __init__(self, device: int, name: str, first: RuntimeFault) -> None:
        super().__init__(first.call, device, first.code)
        self.args = (
            f"GPU {device} was lost in {name}: {first}; nothing runs on it any more, see the driver's log and "
            "start a new run",
        )


class Bench:
    """Opens devices when a case first needs them and keeps them. Not safe for threads: one case at a time."""

    def __init__(self, node: Node, runtime: Runtime) -> None:
        self.node = node
        self.runtime = runtime
        self.arena = Arena(runtime)
        self.telemetry = Telemetry(node)
        self._gate: Gate | None = None
        self._devices: dict[int, DeviceContext] = {}
        self._lost: dict[int, DeviceLost] = {}
        self._clock_facts: dict[int, ClockFacts] = {}
        self._connected: set[frozenset[int]] = set()
        self._gated: dict[tuple[str, str, str], bool] = {}
        self._nonce = _FIRST_NONCE

    @classmethod
    def open(cls, node: Node, emulate: str | None = None) -> Bench:
        """Open the runtime that ``node`` was probed with, in this process."""
        return cls(node, open_runtime(node, emulate))

    @property
    def gate(self) -> Gate:
        if self._gate is None:
            self._gate = Gate(self.runtime, self.node.numa_nodes[0].index)
        return self._gate

    def device(self, index: int) -> DeviceContext:
        """Return the open device ``index``."""
        if index not in self._devices:
            self._devices[index] = DeviceContext(self.runtime, self.node.device(index))
        return self._devices[index]

    def clock_facts(self, index: int) -> ClockFacts:
        """Return what the clocks of device ``index`` add by themselves, measured once."""
        if index not in self._clock_facts:
            context = self.device(index)
            self._clock_facts[index] = ClockFacts(
                clocks.empty_pair_seconds(context, self.gate),
                clocks.launch_seconds(context, self.gate),
                clocks.skew_seconds(context),
            )
        return self._clock_facts[index]

    def next_nonce(self, count: int = 1) -> int:
        """Return the first of ``count`` nonces that no earlier case has used."""
        self._nonce += count
        return self._nonce - count + 1

    def connect(self, one: int, other: int) -> None:
        """Enable peer access both ways, once, and see a few bytes arrive; raises RuntimeFault when they do not."""
        pair = frozenset((one, other))
        if len(pair) == 1 or HOST in pair or pair in self._connected:
            return
        for device, peer in ((one, other), (other, one)):
            self.device(device)
            self.runtime.enable_peer(device, peer)
        for device, peer in ((one, other), (other, one)):
            self._send_canary(self.device(device), self.device(peer))
        self._connected.add(pair)

    @contextlib.contextmanager
    def lease(self, case: Case) -> Iterator[Lease]:
        """Take everything ``case`` needs before its first sample; raises RuntimeFault when the machine has it not.

        A lease within a lease has buffers of its own.
        """
        with self.borrow(case, Lease) as lease:
            yield lease

    @contextlib.contextmanager
    def borrow(self, case: _C, take: Callable[[Bench, _C], _L]) -> Iterator[_L]:
        """Let ``take`` get what ``case`` needs, as :meth:`lease` does for Transfers; raises RuntimeFault."""
        self.refuse_lost(executors.devices_of(case.transfer))
        with self.arena.case():
            try:
                taken = take(self, case)
            except RuntimeFault as fault:
                self.note_fault(case, fault)
                raise
            yield taken

    def make_room(self, case: AnyCase, owners: set[int]) -> list[str]:
        """Open the devices of a case and give back what others hold; returns warnings about what could not be."""
        warnings = []
        for fault in self.arena.keep_only(owners):
            self.find_lost(case, fault)
            warnings.append(f"memory of an earlier case is still held: {fault}")
        for owner in owners:
            self.device(owner)
        return warnings

    def measure(self, lease: Lease, *, key: str, data: Any = None) -> Measurement:
        """Measure a leased case. Faults of the device are recorded in the measurement, never raised."""
        __tracebackhide__ = True
        return run.measure(self, lease, key, data)

    def refuse_lost(self, devices: set[int]) -> None:
        """Raise :class:`DeviceLost` when an earlier fault has ended one of ``devices``; nothing is asked of it."""
        for index in sorted(devices & self._lost.keys()):
            raise self._lost[index]

    def note_fault(self, case: AnyCase, fault: RuntimeFault) -> None:
        """Keep nothing of a case in which a device call failed, and remember the devices that do not answer now."""
        self.arena.spoil()
        if not isinstance(fault, DeviceLost):
            self.find_lost(case, fault)

    def find_lost(self, case: AnyCase, fault: RuntimeFault) -> None:
        """Remember which devices do not answer after a fault: it has ended them."""
        self._find_lost(executors.devices_of(case.transfer), case.name, fault)

    def find_lost_after(self, name: str) -> None:
        """Remember which devices do not answer after what is called ``name`` failed: a test may run what it likes."""
        if self._find_lost(set(), name, None):
            self.arena.spoil()

    def _find_lost(self, devices: set[int], name: str, fault: RuntimeFault | None) -> bool:
        """Look at ``devices`` and all opened ones; ``fault`` is what it began with, else their own answer."""
        found = False
        for index in sorted((devices | self._devices.keys()) - self._lost.keys()):
            silence = self._silence(index)
            if silence is not None:
                self._lost[index] = DeviceLost(index, name, fault or silence)
                self.arena.forget(index)
                found = True
        if self._lost:
            self._make_another_current()
        return found

    def gates(self, transfer: TransferOrTest, executor: Executor) -> bool:
        """Say whether the executor's calls return behind a closed gate for these memories; probed once."""
        kinds = (executor.letter, _kinds(transfer.sources), _kinds(transfer.destinations))
        if kinds not in self._gated:
            context = self.device(transfer.executor.owner)
            executor.launch(0, 1, 0)  # loads the module: that must not be mistaken for a call that waits
            context.synchronize()
            self._gated[kinds] = self.gate.holds(context, lambda: executor.launch(0, 1, 0))
        return self._gated[kinds]

    def close(self) -> None:
        """Give back all memory and close all devices; a device already lost is left as it is."""
        self.arena.clear()
        for index in self._devices.keys() - self._lost.keys():
            self._devices[index].close()
        if self._gate is not None:
            insist(self._gate.release)
        self.telemetry.close()
        self.runtime.close()

    def _silence(self, index: int) -> RuntimeFault | None:
        """Return how a device refuses what it is asked, twice running; None where it answers."""
        silence = None
        for _ in range(2):
            try:
                if index in self._devices:
                    self._devices[index].synchronize()
                self.runtime.free_bytes(index)
            except RuntimeFault as fault:
                silence = silence or fault
            else:
                return None
        return silence

    def _make_another_current(self) -> None:
        """Leave the lost device: memory of the host would still be asked of it, because it was the last one used."""
        for device in self.node.devices:
            if device.index not in self._lost and self._silence(device.index) is None:
                return

    def _send_canary(self, puller: DeviceContext, owner: DeviceContext) -> None:
        """Let ``puller`` copy one line from ``owner``: peer access can be advertised and still be dead."""
        source = self.arena.take("canary", Memory("G", owner.index), SCRATCH_BYTES)
        target = self.arena.take("canary", Memory("G", puller.index), SCRATCH_BYTES)
        plan = RotationPlan.make(SCRATCH_BYTES, 0, memory_bytes=SCRATCH_BYTES)
        nonce = self.next_nonce()
        fill_slices(Region(source.pointer, SCRATCH_BYTES, owner), plan, nonce)
        owner.synchronize()
        geometry = executors.gfx.blocks(puller.device, SCRATCH_BYTES, 1, local=False)
        home = Memory("G", puller.index)
        place = executors.Place(
            self.runtime, puller, lambda what, nbytes: self.arena.take(f"canary {what}", home, nbytes).pointer
        )
        operands = Operands((source.pointer,), (target.pointer,), SCRATCH_BYTES, plan)
        executor = executors.gfx.make(place, [operands], geometry, 1)
        executor.launch(0, 1, 0)
        self.runtime.record(puller.stop, puller.stream)
        deadline = time.monotonic() + _CANARY_SECONDS
        while not self.runtime.finished(puller.stop):
            if time.monotonic() > deadline:
                # It would wait for ever when it is closed or its memory is given back.
                del self._devices[puller.index]
                self.arena.forget(puller.index)
                raise _dead_peer(puller.index, owner.index, f"nothing arrived within {_CANARY_SECONDS:.0f} s")
        destination = Region(target.pointer, SCRATCH_BYTES, puller)
        wrong = destination.check("canary", (key_of(0, nonce),)).wrong_words
        if wrong:
            raise _dead_peer(puller.index, owner.index, f"{wrong} of {SCRATCH_BYTES // 4} words arrived wrong")


def _kinds(memories: tuple[Memory, ...]) -> str:
    return "".join(dict.fromkeys(memory.kind for memory in memories))


def _dead_peer(puller: int, owner: int, what: str) -> RuntimeFault:
    return RuntimeFault(
        "peer copy",
        puller,
        "PeerAccessDead",
        f"GPU {puller} may read GPU {owner} by the driver's word, but {what}: check IOMMU (iommu=pt) and PCIe ACS",
    )


def estimate_seconds(case: Case, node: Node) -> float:
    """Return about how long ``case`` takes on ``node``, for the header; nothing is opened to tell."""
    transfer = case.transfer
    link_classes = [node.link(*executors.link_of(each)).link_class for each in transfer.transfers]
    slowest = min(link_classes, key=lambda link_class: NOMINAL_GBPS[link_class])
    virtual_clock = node.emulated is not None
    nbytes = (transfer.total_bytes if virtual_clock else transfer.nbytes) * case.sub_iterations
    bytes_moved = case.samples * nbytes * copies_per_sample(nbytes, slowest, virtual_clock=virtual_clock)
    if virtual_clock:
        # A CPU makes the single and the untimed copies too, compares every word three times, and fills every slice.
        more_copies = 4 + 2 * min(run.SINGLE_COPY_SAMPLES, case.samples)
        compared = 3 * transfer.total_bytes / 0.53e9
        return 0.05 + (bytes_moved + more_copies * nbytes) / 2.1e9 + compared + _filled_bytes(case, node) / 1.2e9
    return 0.3 + bytes_moved / (NOMINAL_GBPS[slowest] * 1e9)


def _filled_bytes(case: Case, node: Node) -> int:
    """About what the slices of all sources hold together: as much as was asked for, or as a GPU has memory."""
    budget = rotation_budget(case.transfer, case.rotate_bytes)
    if budget is None:
        cache = max(device.last_level_cache_bytes or 0 for device in node.devices)
        budget = max(DEFAULT_BUDGET_BYTES, CACHE_FACTOR * cache)
    memory_bytes = min(device.memory_bytes for device in node.devices)
    return len(case.transfer.transfers) * min(max(budget, case.transfer.nbytes), memory_bytes)

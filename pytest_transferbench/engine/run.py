"""One case, measured: three arms of samples, each proved, every sample kept or named as rejected."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pytest_transferbench.engine.clocks import Clocks, span_of_stamps
from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors import file_of
from pytest_transferbench.engine.pattern import Keys, Words, key_of
from pytest_transferbench.engine.validation import Prover
from pytest_transferbench.measurement import Arm, Check, Fault, Measurement
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.runtime.telemetry import Snapshot, link_bytes, reasons_to_reject
from pytest_transferbench.transfer.case import MAX_COPIES

if TYPE_CHECKING:
    from pytest_transferbench.engine.bench import Bench
    from pytest_transferbench.engine.lease import Lease

_T = TypeVar("_T")

SINGLE_COPY_SAMPLES = 9
"""Samples of the cold and the warm arm: their medians are only compared with each other."""
WARMUP_SECONDS = 0.02
WHOLE_TURN_AT_MOST = 1000
"""Launches of a whole turn of slices: only copies too small for their warm/cold ratio to be judged have more."""
REJECTED_SHARE = 0.1
WAKING_COPY_SECONDS = 10e-6
"""No copy that wakes a link takes longer; what does is left to the slack between the clocks."""
_GRAPH_REPLAYS = 3
COMPARED_FROM_BYTES = 64 * 2**20
"""From this size on launch cost is nothing beside the copies: a graph's figure must be the gate's."""
GRAPH_SHARE = 0.05
"""How far from it a graph's figure may be before that is a warning."""


class _CorruptError(Exception):
    """Ends an arm whose data is wrong: there is no figure to take any more."""


def measure(bench: Bench, lease: Lease, key: str, data: Any = None) -> Measurement:
    """Measure ``lease``'s case in all arms; see :meth:`Bench.measure <pytest_transferbench.engine.Bench.measure>`."""
    __tracebackhide__ = True
    started = time.monotonic()
    own_data = None if data is None else lease.words_of(data)
    run = _Run(bench, lease, own_data)
    before = bench.telemetry.snapshot(lease.owners)
    try:
        bench.refuse_lost(lease.owners)
        complete = run.take_arms()
        after = bench.telemetry.snapshot(lease.owners)
        run.count_link_bytes(before, after)
        if complete:
            run.cross_check()
    except RuntimeFault as fault:
        bench.note_fault(lease.case, fault)
        run.faults.append(Fault("DEVICE_ERROR", f"{key}: {fault}"))
    else:
        run.faults += [Fault("INVALID", reason) for reason in reasons_to_reject(before, after)]
        run.facts["telemetry"] = {"before": before, "after": after}
    case, transfer = lease.case, lease.case.transfer
    return Measurement(
        key=key,
        transfer=transfer,
        op=transfer.op,
        link_class=lease.method.link_class,
        nbytes=transfer.nbytes,
        method=lease.method.to_json(),
        digest=lease.method.digest(),
        arms=tuple(run.arms),
        checks=tuple(run.checks),
        faults=tuple(run.faults),
        warnings=tuple(run.warnings),
        context=run.context(),
        emulated=bench.node.emulated,
        validated=case.validate != "off",
        slice_identity_proved=data is None,
        wall_seconds=time.monotonic() - started,
    )


class _Run:
    def __init__(self, bench: Bench, lease: Lease, own_data: Words | None) -> None:
        self.bench = bench
        self.lease = lease
        self.runtime = bench.runtime
        self.case = lease.case
        self.own_data = own_data
        self.provers: list[list[Prover]] = []
        self.arms: list[Arm] = []
        self.checks: list[Check] = []
        self.faults: list[Fault] = []
        self.warnings = [*lease.warnings, *([lease.plan.warning] if lease.plan.warning else [])]
        self.facts: dict[str, Any] = {}
        singles = min(SINGLE_COPY_SAMPLES, self.case.samples)
        steady = ("steady", self.case.samples, lease.method.copies)
        # What caches hold depends on all sources and destinations: one cold or warm copy of several tells nothing.
        self._arms = (steady,) if lease.evictor is None else (("cold", singles, 1), ("warm", singles, 1), steady)
        self._rejected = 0
        # Of the samples then taken, these are no more than the share the judge allows.
        self._rejected_at_most = sum(samples for _, samples, _ in self._arms) * REJECTED_SHARE / (1 - REJECTED_SHARE)
        self._nonces = sum(leg.nonces for leg in lease.legs)
        self._nonce = 0
        self._iteration = 0
        self._passes = 0
        self._last_stop = 0
        self._sums: dict[tuple[int, int], int] = {}
        owner = self.case.transfer.executor.owner
        self.device = None if lease.executor.stream is None else bench.device(owner)

    def take_arms(self) -> bool:
        """Take the arms in turn; False where wrong data, or samples that cannot be believed, end them early."""
        if self.device is not None:
            facts = self.bench.clock_facts(self.device.index)
            self.facts["empty_pair_seconds"] = facts.empty_pair_seconds
            self.facts["launch_seconds"] = facts.launch_seconds
            self.facts["skew_seconds"] = facts.skew_seconds
        self._nonce = self.bench.next_nonce(self._nonces)
        references = [0] * len(self.lease.legs)
        if self.own_data is None:
            self.lease.fill(self._nonce)
        else:
            references = self.lease.fill_with(self.own_data)
        if self.case.validate != "off":
            self.provers = self.lease.provers(references)
        for name, samples, copies in self._arms:
            try:
                with _no_collection():
                    believed = self._take_arm(name, samples, copies)
            except _CorruptError:
                return False
            if not believed:
                return False
        return True

    def context(self) -> dict[str, Any]:
        """Return who executed, on what, with which shape: what the figures belong to."""
        lease, geometry = self.lease, self.lease.geometry
        remark = file_of(self.case.transfer).remark(lease.legs[0].transfer, self.bench.node)
        caches = [lease.bench.node.device(owner).last_level_cache_bytes or 0 for owner in lease.owners]
        return {
            "executor": str(self.case.transfer.executor),
            "launch_device": self.device.index if self.device else HOST,
            "source_owner": _one_or_all(leg.ends[0] for leg in lease.legs),
            "destination_owner": _one_or_all(leg.ends[1] for leg in lease.legs),
            "gate": lease.method.gate,
            "rotation": lease.plan.describe(),
            "slices": lease.plan.slices,
            "span_bytes": lease.plan.span_bytes,
            "last_level_cache_bytes": max(caches, default=0) or None,
            "subexecutors": geometry.subexecutors,
            "block_threads": geometry.block_threads,
            "unroll": geometry.unroll,
            "link_gbps": _one_or_all(leg.link.gbps for leg in lease.legs),
            "source_of_rate": _one_or_all(leg.link.source_of_rate for leg in lease.legs),
            **({"remark": remark} if remark else {}),
            **self.facts,
        }

    def _take_arm(self, name: str, samples: int, copies: int) -> bool:
        """Take one arm and check its data; False when too many samples had to be rejected."""
        self._prepare(name, samples, copies)
        taken: list[Clocks] = []
        rejected: list[str] = []
        while len(taken) < samples and self._rejected <= self._rejected_at_most:
            clocks, objection = self._sample(name, copies, last_of_arm=len(taken) == samples - 1)
            if objection is None:
                taken.append(clocks)
            else:
                rejected.append(f"sample {len(taken) + len(rejected)}: {objection}")
                self._rejected += 1
        passes = copies * self.case.sub_iterations
        self.arms.append(
            Arm(
                name,
                passes,
                seconds=tuple(clocks.seconds / passes for clocks in taken),
                event_seconds=tuple(clocks.event for clocks in taken),
                kernel_seconds=tuple(clocks.kernel for clocks in taken),
                host_seconds=tuple(clocks.host for clocks in taken),
                rejected=tuple(rejected),
            )
        )
        self._check_everything(name)
        return self._rejected <= self._rejected_at_most

    def _prepare(self, name: str, samples: int, copies: int) -> None:
        """Lay the guards, poison every word of the destination, and warm up.

        Where the first sample is the last, it poisons every word itself.
        """
        lease = self.lease
        for leg in lease.legs:
            for destination in leg.destinations:
                destination.prepare_guards()
        # Iterations go on from arm to arm: from slice 0 again, copies would find what the arm before left in a cache.
        before = sum(self._before_a_warm_copy()) if name == "warm" else 0
        first_sample_ends = self._iteration + before + copies - 1
        if samples > 1:
            self._poison(first_sample_ends, everywhere=True)
        self._synchronize_ends()
        if lease.executor.stamps_per_launch:
            lease.clear_stamps(lease.method.copies)
            self._last_stop = 0
        self._warm_up(copies)

    def _warm_up(self, copies: int) -> None:
        """Make untimed copies, with negative iterations, until the clocks are up; a virtual clock has none to raise."""
        batch, seconds = max(copies, self.case.warmups), WARMUP_SECONDS
        if self.runtime.emulated:
            batch, seconds = self.case.warmups, 0.0
        started, done = time.monotonic(), 0
        while done < self.case.warmups or time.monotonic() - started < seconds:
            self._launch(range(-batch, 0))
            self._synchronize_executor()
            done += batch

    def _sample(self, arm: str, copies: int, *, last_of_arm: bool) -> tuple[Clocks, str | None]:
        """Take one sample and return its clocks and what speaks against believing them.

        The sample after which every word is checked starts from a destination in which every word is wrong: with
        one slice, the copies before it have already put the right words everywhere.
        """
        if arm == "warm":
            self._warm_caches()
        iterations = self._advance(copies)
        last = iterations[-1]
        self._poison(last, everywhere=last_of_arm or self.case.validate == "each")
        self._zero_sums()
        self._synchronize_ends()
        if arm == "cold" and self.lease.evictor is not None:
            self.lease.evictor.evict()
        clocks, objection = self._timed(iterations)
        self._prove(arm, iterations)
        return clocks, objection

    def _warm_caches(self) -> None:
        """Make the untimed copies that come before a warm one.

        Where caches can hold all slices, the copy that is timed has to show it: the copies before it are a whole turn,
        and it reads the oldest slice but one, for what else is read in between may push the oldest out.
        """
        untimed, left_out = self._before_a_warm_copy()
        for first in range(0, untimed, MAX_COPIES):
            self._launch(self._advance(min(MAX_COPIES, untimed - first)))
            self._synchronize_executor()
        self._advance(left_out)

    def _before_a_warm_copy(self) -> tuple[int, int]:
        """Return how many untimed launches come before a warm copy, and how many iterations are left out after them."""
        plan, warmups = self.lease.plan, self.case.warmups
        if plan.rotated:
            return warmups, 0
        turn = -(-plan.slices // self.case.sub_iterations)
        return max(warmups, min(turn, WHOLE_TURN_AT_MOST)), 1 if turn > 1 else 0

    def _timed(self, iterations: range) -> tuple[Clocks, str | None]:
        runtime, device = self.runtime, self.device
        if device is None:
            self.lease.waker.launch(0, self.lease.waker.wake_passes, 0)
            begun = runtime.host_clock()
            self._launch(iterations)
            clocks = Clocks(host=runtime.host_clock() - begun, host_only=True)
            return clocks, clocks.objection()
        # Where no clock runs any more a gate has no deadline: it would be over before it held anything.
        gated = self.lease.method.gate == "kernel" and runtime.deadline_hz(device.index) > 0
        begun = runtime.host_clock()
        try:
            self._queue(device, iterations, gated)
            begun = runtime.host_clock() if gated else begun
        finally:
            # Also when a call failed: a stream left behind a closed gate would hold up whatever comes next.
            self.bench.gate.open()
        runtime.synchronize(device.stream)
        host = runtime.host_clock() - begun
        if gated and self.bench.gate.timed_out():
            return Clocks(), "the start gate ran into its deadline before everything was queued"
        if gated and self.lease.waker.wakes_behind_gate:
            waking = min(max(0.0, runtime.elapsed_seconds(device.waking, device.start)), self._wakes_within())
            host = max(0.0, host - waking)
        event = runtime.elapsed_seconds(device.start, device.stop)
        kernel, flaw = self._kernel_span(len(iterations))
        clocks = Clocks(event, kernel, host if gated else math.nan, kernel_flaw=flaw)
        return clocks, clocks.objection(self.facts["launch_seconds"])

    def _wakes_within(self) -> float:
        """Return how much of what the host's clock shows may be the links waking: two batches of eight take 90 us.

        Not more, or an event clock that is wrong would make the host's wrong, too.
        """
        pieces = self.lease.geometry.subexecutors * max(len(leg.destinations) for leg in self.lease.legs)
        return WAKING_COPY_SECONDS * self.lease.waker.wake_passes * pieces

    def _queue(self, device: DeviceContext, iterations: range, gated: bool) -> None:
        """Queue one sample; behind the gate, where there is one, nothing of it starts yet."""
        waker = self.lease.waker
        if not waker.wakes_behind_gate:
            waker.launch(0, waker.wake_passes, 0)
        if gated:
            self.bench.gate.close(device)
        self.runtime.record(device.waking, device.stream)
        if waker.wakes_behind_gate:
            waker.launch(0, waker.wake_passes, 0)
        self.runtime.record(device.start, device.stream)
        self._launch(iterations)
        self.runtime.record(device.stop, device.stream)

    def _kernel_span(self, launches: int) -> tuple[float, str | None]:
        if not self.lease.executor.stamps_per_launch:
            return math.nan, None
        assert self.device is not None
        hz = self.runtime.stamp_hz(self.device.index)
        span, self._last_stop, flaw = span_of_stamps(self.lease.stamps(launches), hz, self._last_stop)
        return span, flaw

    def _prove(self, arm: str, iterations: range) -> None:
        """Look at what the sample left behind; wrong data is examined at once and ends the case."""
        if self.case.validate == "off":
            return
        if not any(self.provers):
            self._prove_sum(arm, iterations)
        elif self.case.validate == "each" or not self._glance(arm, iterations[-1]):
            self._check_everything(arm)

    def _poison(self, iteration: int, *, everywhere: bool) -> None:
        """Queue the complement of what ``iteration`` must leave in every destination."""
        for leg, prover in self._each_prover():
            prover.poison(self._keys(iteration, leg), everywhere=everywhere)

    def _glance(self, arm: str, iteration: int) -> bool:
        return all(prover.glance(arm, self._keys(iteration, leg)) for leg, prover in self._each_prover())

    def _each_prover(self) -> Iterator[tuple[int, Prover]]:
        return ((leg, prover) for leg, provers in enumerate(self.provers) for prover in provers)

    def _check_everything(self, arm: str) -> None:
        last = self._iteration - 1
        checks = [
            prover.check(self._name(arm, leg, end), self._keys(last, leg), self._slice(last), self._origins(leg))
            for leg, provers in enumerate(self.provers)
            for end, prover in enumerate(provers)
        ]
        self._keep(*checks)

    def _name(self, arm: str, leg: int, end: int) -> str:
        """Return what a check is called: it says which Transfer, and which destination, where there are several."""
        legs, destinations = self.lease.legs, self.lease.legs[leg].transfer.destinations
        at = f" at {destinations[end]}" if len(set(destinations)) > 1 else ""
        at = at or (f" at destination {end + 1}" if len(destinations) > 1 else "")
        return f"{arm}{at}" if len(legs) == 1 else f"{arm}{at} of {legs[leg].transfer.notation()}"

    def _origins(self, leg: int) -> list[tuple[int, str]]:
        """Return the nonces that data found in a leg's destination may have, and whose slices they are in words."""
        legs, nonces = self.lease.legs, self.lease.nonces_from(self._nonce)
        others = [
            (nonces[other], f" of {legs[other].transfer.notation()}") for other in range(len(legs)) if other != leg
        ]
        mine = nonces[leg]
        return [(mine, ""), *others, (mine - self._nonces, " of the case before")]

    def _keep(self, *checks: Check) -> None:
        """Keep the latest check of each arm and leg; ends the arm if any of these failed."""
        names = {check.what for check in checks}
        self.checks = [kept for kept in self.checks if kept.what not in names] + list(checks)
        if not all(check.passed for check in checks):
            raise _CorruptError

    def _prove_sum(self, arm: str, iterations: range) -> None:
        """Compare what a read-only transfer added up with what its slices hold."""
        assert self.device is not None
        subs = self.case.sub_iterations
        slices = [self.lease.plan.slice_of(i, sub, subs) for i in iterations for sub in range(subs)]
        sources = range(len(self.lease.legs[0].sources))
        expected = sum(self._sum_of(index, source) for index in slices for source in sources) % 2**64
        found = int(self.device.read_words(self.lease.executor.sums_at, 1)[0])
        words = self.lease.plan.nbytes // 4
        if found == expected:
            self._keep(Check(arm, words))
        else:
            said = f"checksum {found:#x} instead of {expected:#x}"
            self._keep(Check.of_sum(arm, words, said))

    def _sum_of(self, slice_index: int, source: int) -> int:
        if self.own_data is not None:
            return int(self.own_data.astype(np.uint64).sum())
        place = (self._nonce + source, slice_index)
        if place not in self._sums:
            assert self.device is not None
            at = self.lease.executor.sums_at + 8
            self.device.write_words(at, [0])
            words = self.lease.plan.nbytes // 4
            key = np.uint32(key_of(slice_index, self._nonce + source))
            numbers = np.uint32(self.lease.legs[0].numbers)
            self.device.prepare("tb_expected_sum", (np.uint64(words), key, numbers, np.uint64(at)), words)
            self.device.synchronize()
            self._sums[place] = int(self.device.read_words(at, 1)[0])
        return self._sums[place]

    def _zero_sums(self) -> None:
        if not self.lease.legs[0].destinations and self.device is not None:
            self.device.write_words(self.lease.executor.sums_at, [0])

    def cross_check(self) -> None:
        """Replay the copies as a captured graph: launch cost must not have been taken for link time."""
        missing = self._why_no_graph()
        if missing is None:
            try:
                self._compare_with_graph(self._graph_gbps())
            except RuntimeFault as fault:
                self.bench.note_fault(self.case, fault)
                missing = str(fault)
        if missing is not None:
            self.facts["graph_missing"] = missing

    def _compare_with_graph(self, graph_gbps: float) -> None:
        """Keep the graph's figure; at large sizes, where launch cost is nothing, it must be the gate's."""
        self.facts["graph_gbps"] = graph_gbps
        gated_gbps = self.case.transfer.total_bytes / self.arms[-1].median_seconds / 1e9
        if self.lease.plan.nbytes >= COMPARED_FROM_BYTES and abs(graph_gbps / gated_gbps - 1) > GRAPH_SHARE:
            self.warnings.append(f"a captured graph gives {graph_gbps:.1f} GB/s where the gate gives {gated_gbps:.1f}")

    def _why_no_graph(self) -> str | None:
        slices, subs = self.lease.plan.slices, self.case.sub_iterations
        if self.device is None or self.lease.method.gate != "kernel":
            return "copies were not queued behind a gate"
        if self.runtime.emulated:
            return "a virtual clock has no launch cost to mistake"
        if slices * subs > MAX_COPIES:
            return f"a whole turn of K={slices} slices is more than {MAX_COPIES} operations"
        return None

    def _graph_gbps(self) -> float:
        device, gate = self.device, self.bench.gate
        assert device is not None
        copies = self.lease.method.copies
        turn = self.lease.plan.slices * max(1, copies // self.lease.plan.slices)
        replay = self.runtime.capture(device.stream, lambda: self._launch(range(turn)))
        spans = []
        for _ in range(1 + _GRAPH_REPLAYS):
            with gate.closed(device):
                self.runtime.record(device.start, device.stream)
                replay()
                self.runtime.record(device.stop, device.stream)
            device.synchronize()
            spans.append(self.runtime.elapsed_seconds(device.start, device.stop))
        passes = turn * self.case.sub_iterations
        return self.case.transfer.total_bytes * passes / statistics.median(spans[1:]) / 1e9

    def count_link_bytes(self, before: Snapshot, after: Snapshot) -> None:
        """Keep what the links' own counters saw beside the bytes that all copies, timed or not, claim to have moved."""
        counted = link_bytes(before, after, str(self.device.index)) if self.device else None
        if counted is not None:
            claimed = self._passes * sum(transfer.nbytes for transfer in self.case.transfer.transfers)
            self.facts["link_bytes"] = {"sent": counted[0], "received": counted[1], "claimed": claimed}

    def _launch(self, iterations: range) -> None:
        """Queue one launch an iteration; each goes on with the slice after the last pass of the one before."""
        plan, subs, executor = self.lease.plan, self.case.sub_iterations, self.lease.executor
        self._passes += subs * len(iterations)
        for slot, iteration in enumerate(iterations):
            executor.launch(plan.slice_of(iteration, 0, subs), subs, slot % self.lease.method.copies)

    def _advance(self, copies: int) -> range:
        first = self._iteration
        self._iteration += copies
        return range(first, self._iteration)

    def _slice(self, iteration: int) -> int:
        """Return the slice that the last pass of ``iteration`` reads."""
        subs = self.case.sub_iterations
        return self.lease.plan.slice_of(iteration, subs - 1, subs)

    def _keys(self, iteration: int, leg: int) -> Keys:
        """Return the keys of what ``iteration`` leaves in a leg's destinations."""
        return self.lease.legs[leg].keys(self._slice(iteration), self.lease.nonces_from(self._nonce)[leg])

    def _synchronize_executor(self) -> None:
        if self.device is not None:
            self.device.synchronize()

    def _synchronize_ends(self) -> None:
        for index in self.lease.owners:
            self.bench.device(index).synchronize()


def _one_or_all(facts: Iterable[_T]) -> _T | list[_T]:
    """Return what all legs have in common, or what each has."""
    found = list(facts)
    return found[0] if all(fact == found[0] for fact in found) else found


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of the samples."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""What a measurement says when clocks, gate or device do not do as they should."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pytest_transferbench.engine import Bench, gate
from pytest_transferbench.engine.executors import Operands
from pytest_transferbench.engine.executors.gfx import GfxExecutor
from pytest_transferbench.engine.validation import POISON_STRIDE_WORDS
from pytest_transferbench.judge import judge
from pytest_transferbench.measurement import Measurement
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.transfer import Case, Memory, RotationPlan, Transfer
from tests.engine import mutants
from tests.engine.proof import corrupt_check, measured

MIB = 1 << 20
SMALL = {"rotate_bytes": 8 * MIB}


@pytest.fixture
def pull() -> Transfer:
    return Transfer.pull("G1", "G0", 16 * MIB)


@pytest.fixture(autouse=True)
def probed_afresh(bench: Bench) -> Iterator[None]:
    yield
    bench._gated.clear()


def verdicts(measurement: Measurement) -> list[str]:
    return [finding.verdict for finding in judge(measurement, ceiling=None)]


def test_a_healthy_case(bench: Bench, pull: Transfer) -> None:
    measurement = measured(bench, pull, samples=25, **SMALL)
    assert verdicts(measurement) == ["NEW"]
    assert [(arm.name, len(arm.seconds), arm.copies) for arm in measurement.arms] == [
        ("cold", 9, 1),
        ("warm", 9, 1),
        ("steady", 25, 16),
    ]
    for arm in measurement.arms:
        for event, kernel, host in zip(arm.event_seconds, arm.kernel_seconds, arm.host_seconds, strict=True):
            assert 0 < kernel <= event <= host
    context = measurement.context
    assert (context["executor"], context["launch_device"], context["source_owner"]) == ("G0", 0, 1)
    assert context["graph_missing"] == "a virtual clock has no launch cost to mistake"
    assert context["skew_seconds"] == 0
    assert context["empty_pair_seconds"] >= 0


def test_the_gpus_state_is_kept_and_throttling_is_invalid(
    bench: Bench, pull: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([{"0": {"gfx_mhz": 1980, "slowdowns": []}}, {"0": {"gfx_mhz": 345, "slowdowns": ["power brake"]}}])
    monkeypatch.setattr(bench.telemetry, "snapshot", lambda devices: next(states))
    measurement = measured(bench, pull, **SMALL)
    assert measurement.context["telemetry"]["after"]["0"]["gfx_mhz"] == 345
    assert verdicts(measurement) == ["INVALID"]
    assert "GPU 0 was throttled: power brake" in measurement.faults[0].detail


def test_what_the_links_counted_stands_beside_what_the_copies_claim(
    bench: Bench, pull: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([{"0": {"link_sent_kib": sent, "link_received_kib": 7 * sent}} for sent in (1, 3)])
    monkeypatch.setattr(bench.telemetry, "snapshot", lambda devices: next(states))
    measurement = measured(bench, pull, samples=2, warmups=1, sub_iterations=3, **SMALL)
    # Cold: a warm-up and 2 copies; warm: a warm-up, then 2 x (a warm-up and a copy); steady: a warm-up and 2 samples.
    launches = (1 + 2) + (1 + 2 * 2) + (1 + 2 * 16)
    assert measurement.context["link_bytes"] == {
        "sent": 2048,
        "received": 7 * 2048,
        "claimed": launches * 3 * pull.nbytes,
    }


@pytest.mark.parametrize(
    ("nbytes", "rotate_bytes", "settings", "launches", "left_out"),
    [
        (MIB, 5 * MIB, {}, 5, 1),
        (MIB, 5 * MIB, {"sub_iterations": 2}, 3, 1),
        (MIB, 5 * MIB, {"warmups": 7}, 7, 1),
        (MIB, 0, {"warmups": 0}, 1, 0),
        (MIB, MIB, {"warmups": 0}, 1, 0),
        (MIB, None, {}, 1, 0),
        (MIB, None, {"warmups": 0}, 0, 0),
        (4096, 8 * MIB, {}, 1000, 1),
    ],
)
def test_a_warm_copy_finds_what_caches_can_hold_of_all_slices(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    nbytes: int,
    rotate_bytes: int | None,
    settings: dict[str, int],
    launches: int,
    left_out: int,
) -> None:
    given = {"samples": 2, "warmups": 1, **settings}
    case = Case(Transfer.pull("G1", "G0", nbytes), **given, rotate_bytes=rotate_bytes)
    with bench.lease(case) as lease:
        first_slices: list[int] = []
        launch = lease.executor.launch
        monkeypatch.setattr(lease.executor, "launch", lambda *call: (first_slices.append(call[0]), launch(*call)))
        assert verdicts(bench.measure(lease, key="test/turn")) == ["NEW"]
        slices, warmups, passes = lease.plan.slices, case.warmups, case.sub_iterations
    before = warmups + 2 + warmups
    warm = first_slices[before : before + 2 * (launches + 1)]
    # Cold copies are iterations 0 and 1; the oldest slice but one is then the one read.
    iterations = [*range(2, 2 + launches), 2 + launches + left_out]
    iterations += [iteration + 1 + launches + left_out for iteration in iterations]
    assert warm == [iteration * passes % slices for iteration in iterations]
    assert len(first_slices) == before + len(warm) + warmups + 2 * 16


def nth_call(call: Callable[..., Any], nth: int, other: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call`` with its ``nth`` use replaced by ``other``."""
    seen = iter(range(10**9))
    return lambda *arguments: other(*arguments) if next(seen) == nth else call(*arguments)


def test_one_bad_sample_is_taken_again(bench: Bench, pull: Transfer, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = nth_call(bench.runtime.elapsed_seconds, 30, lambda start, stop: math.nan)
    monkeypatch.setattr(bench.runtime, "elapsed_seconds", spoilt)
    measurement = measured(bench, pull, samples=25, **SMALL)
    assert verdicts(measurement) == ["NEW"]
    assert [len(arm.seconds) for arm in measurement.arms] == [9, 9, 25]
    assert sum(len(arm.rejected) for arm in measurement.arms) == 1


@pytest.mark.parametrize("call", ["launch", "synchronize", "record", "elapsed_seconds", "read", "write"])
@pytest.mark.parametrize("nth", [0, 4])
def test_a_device_fault_is_recorded_and_the_next_case_is_right(
    bench: Bench, call: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeFault(call, 0, "hipErrorLaunchFailure", "unspecified launch failure")

    transfer = Transfer.pull("G1", "G0", MIB)
    with bench.lease(Case(transfer, samples=2, **SMALL)) as lease, monkeypatch.context() as broken:
        broken.setattr(bench.runtime, call, nth_call(getattr(bench.runtime, call), nth, fail))
        measurement = bench.measure(lease, key="test/fault")
    assert verdicts(measurement) == ["DEVICE_ERROR"]
    assert f"{call} on GPU 0 failed: hipErrorLaunchFailure" in measurement.faults[0].detail
    assert verdicts(measured(bench, transfer, **SMALL)) == ["NEW"]


def test_a_gate_that_stays_shut_spoils_its_samples(
    bench: Bench, pull: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench.lease(Case(pull, samples=2, **SMALL)) as lease:
        bench.clock_facts(0)
        monkeypatch.setattr(gate.Gate.close, "__defaults__", (0.02,))
        monkeypatch.setattr(bench.gate, "open", lambda: None)
        measurement = bench.measure(lease, key="test/shut")
    assert set(verdicts(measurement)) == {"INVALID"}
    assert "the start gate ran into its deadline" in judge(measurement, ceiling=None)[0].detail


def test_calls_that_wait_are_measured_without_a_gate_and_apart(
    bench: Bench, pull: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated = measured(bench, pull, **SMALL)
    bench._gated.clear()
    monkeypatch.setattr(bench.gate, "holds", lambda context, queue: False)
    ungated = measured(bench, pull, **SMALL)
    assert (gated.method["gate"], ungated.method["gate"]) == ("kernel", "none")
    assert gated.digest != ungated.digest
    assert verdicts(ungated) == ["NEW"]


def test_an_enqueue_that_waits_for_its_stream_is_noticed(bench: Bench) -> None:
    context = bench.device(0)
    assert bench.gate.holds(context, lambda: None)
    assert not bench.gate.holds(context, context.synchronize)


def test_without_a_clock_there_is_no_deadline_and_so_no_gate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.gate, "close", lambda *_: pytest.fail("a stream was held without a deadline"))
    monkeypatch.setattr(bench.runtime, "deadline_hz", lambda device: 0.0)
    assert not bench.gate.holds(bench.device(0), lambda: None)


def test_data_is_not_looked_at_when_nobody_wants_it(bench: Bench) -> None:
    measurement = measured(bench, Transfer.pull("G1", "G0", MIB), mutants.CopiesNothing, validate="off", **SMALL)
    assert measurement.checks == ()
    assert not measurement.validated


def test_a_read_that_skips_a_slice_has_the_wrong_sum(bench: Bench) -> None:
    from pytest_transferbench.transfer import parse_transfer

    transfer = parse_transfer("G1->G0->N", nbytes=MIB)
    check = corrupt_check(measured(bench, transfer, mutants.ReadsTheNextSlice, **SMALL))
    assert (check.wrong_words, check.first) == (1, -1)  # at least: a sum counts nothing
    assert check.found.startswith("checksum 0x")


def test_own_data_that_does_not_fit_is_refused(bench: Bench) -> None:
    case = Case(Transfer.pull("G1", "G0", MIB), samples=1)
    refusal = pytest.raises(ValueError, match="data has 8 bytes; this transfer moves 1048576: give exactly as many")
    with bench.lease(case) as lease, refusal:
        bench.measure(lease, key="test/data", data=np.zeros(2, dtype=np.uint32))


@pytest.mark.parametrize("call", ["dma_copy", "write", "synchronize"])
def test_a_fault_while_the_callers_data_is_spread_is_in_the_measurement(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeFault(call, 0, "hipErrorUnknown")

    fails_once = nth_call(getattr(bench.runtime, call), 0, fails)
    data = np.arange(MIB // 4, dtype=np.uint32)
    transfer = Transfer.push("G0", "G1", MIB)
    with bench.lease(Case(transfer, samples=1, **SMALL)) as lease:
        with monkeypatch.context() as patched:
            patched.setattr(bench.runtime, call, fails_once)
            measurement = bench.measure(lease, key="test/data", data=data)
        assert verdicts(measurement) == ["DEVICE_ERROR"]
        assert bench.measure(lease, key="test/data", data=data).wrong_words == 0


class MovesOnlyTheSampledWords(mutants.Mutant):
    """Once warmed up, copies just the words that are poisoned before every sample: one in 4 KiB, and the last."""

    def __init__(self, lease: Any) -> None:
        super().__init__(lease)
        plan, self.warm = lease.plan, False
        self._words = range(0, plan.nbytes // 4, POISON_STRIDE_WORDS)
        self._plan = RotationPlan(4, 0, plan.pitch, plan.slices, plan.budget)
        stamps = lease.bench.arena.take("lazy stamps", Memory("G", 0), 4096)
        shape = type(lease.geometry)(1, 256, 1)
        self._copiers = [
            GfxExecutor(
                lease.bench.device(0),
                Operands(
                    (lease.legs[0].sources[0].pointer + 4 * i,),
                    (lease.legs[0].destinations[0].data.pointer + 4 * i,),
                    4,
                    self._plan,
                ),
                shape,
                stamps.pointer,
            )
            for i in [*self._words, plan.nbytes // 4 - 1]
        ]
        self._first = GfxExecutor(
            lease.bench.device(0),
            Operands((lease.legs[0].sources[0].pointer,), (lease.legs[0].destinations[0].data.pointer,), 4, self._plan),
            lease.geometry,
            self.stamps_at,
        )
        self._launches = 0

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        self._launches += 1
        if self._launches <= self.lease.case.warmups:
            self.real.launch(first_slice, passes, slot)
            return
        self._first.launch(first_slice, passes, slot)
        for copier in self._copiers:
            copier.launch(first_slice, passes, 0)


@pytest.mark.parametrize("rotate_bytes", [0, 8 * MIB])
def test_copies_that_move_only_what_is_glanced_at_are_caught(bench: Bench, rotate_bytes: int) -> None:
    """With one slice, warm-up has already put the right words everywhere."""
    transfer = Transfer.pull("G1", "G0", 64 * 1024)
    check = corrupt_check(measured(bench, transfer, MovesOnlyTheSampledWords, rotate_bytes=rotate_bytes))
    assert (check.what, check.wrong_words) == ("cold", 64 * 1024 // 4 - 17)


class CopiesNothingOnceWarm(mutants.Mutant):
    """Moves no byte from the warm arm on."""

    edit = mutants.CopiesNothing.edit

    def __init__(self, lease: Any) -> None:
        super().__init__(lease)
        assert isinstance(self.real, GfxExecutor)
        self._whole = GfxExecutor(
            lease.bench.device(0),
            Operands(
                (lease.legs[0].sources[0].pointer,),
                (lease.legs[0].destinations[0].data.pointer,),
                lease.plan.nbytes,
                lease.plan,
            ),
            lease.geometry,
            self.stamps_at,
        )
        self._cold_launches = lease.case.warmups + lease.case.samples

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        (self.real if self._cold_launches <= 0 else self._whole).launch(first_slice, passes, slot)
        self._cold_launches -= 1


def test_a_warm_copy_that_moves_nothing_leaves_poison_everywhere(bench: Bench) -> None:
    """What lies between the words poisoned before each sample was poisoned before the warm-ups, for the first one."""
    transfer = Transfer.pull("G1", "G0", 64 * 1024)
    check = corrupt_check(measured(bench, transfer, CopiesNothingOnceWarm, rotate_bytes=320 * 1024))
    assert (check.what, check.wrong_words) == ("warm", 16384)
    assert check.found == "poison (nothing was written) in 16384 words"


def test_own_data_stays_in_the_slices(bench: Bench) -> None:
    data = np.arange(1024, dtype=np.uint32)
    with bench.lease(Case(Transfer.pull("G1", "G0", 4096), samples=1, rotate_bytes=4 * 4096)) as lease:
        bench.measure(lease, key="test/own", data=data)
        assert all(np.array_equal(words.get(), data) for words in lease.slices)


def test_memory_on_the_wrong_gpu_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.runtime, "owner_of", lambda pointer: 5)
    case = Case(Transfer.pull("G1", "G0", 4096), samples=1)
    with pytest.raises(RuntimeFault, match="G1 is homed on GPU 5"), bench.lease(case):
        pass

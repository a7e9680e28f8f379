"""What each mutant must be called, on whatever node it runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from pytest_transferbench.engine import Bench, Lease
from pytest_transferbench.engine.executors import unsupported
from pytest_transferbench.judge import judge
from pytest_transferbench.measurement import Check, Measurement
from pytest_transferbench.transfer import Case, RotationPlan, Transfer, rotation_budget
from tests.engine import mutants

QUICK = 3
KIB, MIB = 1 << 10, 1 << 20


def measured(
    bench: Bench, transfer: Transfer, mutant: type[mutants.Mutant] | None = None, **settings: object
) -> Measurement:
    """Measure ``transfer`` with few samples, with its executor replaced where ``mutant`` says so."""
    case = dataclasses.replace(Case(transfer, samples=QUICK), **settings)  # type: ignore[arg-type]  # field by name
    with bench.lease(case) as lease:
        if mutant is not None:
            mutant(lease)
        return bench.measure(lease, key=f"test/{case.name}")


def corrupt_check(measurement: Measurement) -> Check:
    """Return the one check that failed; a corrupt arm ends the case, so it is the last."""
    *passed, failed = measurement.checks
    assert all(check.passed for check in passed)
    assert not failed.passed
    return failed


@dataclass(frozen=True)
class Broken:
    """A case, and the mutant that breaks it."""

    case: Case
    mutant: type[mutants.Mutant]

    def __str__(self) -> str:
        return f"{self.mutant.__name__}-{self.case.name}"


def _cases(transfer: Transfer) -> list[Case]:
    """One transfer with rotation, without it and from an odd start, and in several passes; all with odd tails.

    The host's memory is there for machines with one GPU, and is not rotated: for it the last is enough.
    """

    def case(variant: str, nbytes: int, **settings: int) -> Case:
        sized = dataclasses.replace(transfer, nbytes=nbytes)
        return Case(sized, samples=2, variant=variant, **settings)  # type: ignore[arg-type]  # whole numbers alone

    cases = [
        case("rotated", 128 * KIB + 20, rotate_bytes=600 * KIB),
        case("alone", 64 * KIB + 4, rotate_bytes=0, byte_offset=12),
        case("passes", 96 * KIB + 8, rotate_bytes=400 * KIB, sub_iterations=3, byte_offset=4),
    ]
    ends = (*transfer.sources, *transfer.destinations)
    return cases[-1:] if any(memory.on == "host" for memory in ends) else cases


TRANSFERS = [
    made
    for executor in ("gfx", "dma")
    for made in (
        Transfer.pull("G1", "G0", MIB, executor),
        Transfer.push("G0", "G1", MIB, executor),
        Transfer.pull("G0", "G0", MIB, executor),
        Transfer.pull("C0", "G0", MIB, executor),
        Transfer.push("G0", "C0", MIB, executor),
    )
]
CASES = [case for transfer in TRANSFERS for case in _cases(transfer)]


def _slices(case: Case) -> int:
    budget = rotation_budget(case.transfer, case.rotate_bytes)
    return RotationPlan.make(case.transfer.nbytes, budget, memory_bytes=2**40).slices


BROKEN = [Broken(case, mutant) for case in CASES for mutant in mutants.ALL if mutant.breaks(case, _slices(case))]
"""The one table: emulated and real GPUs run the same."""


def skip_unless_possible(case: Case, bench: Bench) -> None:
    reason = unsupported(case.transfer, bench.node, case.sub_iterations)
    if reason is not None:
        pytest.skip(reason)


def assert_whole(bench: Bench, case: Case) -> None:
    """The case itself is right: what the mutants show is theirs."""
    skip_unless_possible(case, bench)
    with bench.lease(case) as lease:
        measurement = bench.measure(lease, key=f"test/{case.name}")
    assert (measurement.faults, measurement.wrong_words, measurement.wrong_bytes) == ((), 0, 0)
    assert [check.what for check in measurement.checks] == ["cold", "warm", "steady"]


def assert_caught(bench: Bench, broken: Broken) -> Measurement:
    """Run one mutant: arm, counts, places, mask and name are those of what it broke, and the verdict says them."""
    skip_unless_possible(broken.case, bench)
    with bench.lease(broken.case) as lease:
        mutant = broken.mutant(lease)
        measurement = bench.measure(lease, key=f"test/{broken.case.name}")
        assert measurement.faults == ()
        seen = corrupt_check(measurement)
        differs = mutant.differs(seen)
        found, guard_found = mutant.found(seen), mutant.guard_found(seen)
    wrong = np.flatnonzero(differs)
    assert seen.what == mutant.arm
    assert (seen.wrong_words, seen.wrong_bytes) == (wrong.size, np.count_nonzero(differs.view(np.uint8)))
    assert (seen.first, seen.last) == ((wrong[0], wrong[-1]) if wrong.size else (-1, -1))
    assert seen.xor_mask == np.bitwise_or.reduce(differs)
    assert found in seen.found
    assert bool(found) == bool(seen.found)
    assert seen.guard_found == guard_found
    assert (seen.guard_words, seen.guard_bytes) == ((1, 1) if guard_found else (0, 0))
    assert seen.reread_agrees
    (finding,) = judge(measurement, ceiling=None)
    assert finding.verdict == "CORRUPT"
    in_bytes = seen.wrong_bytes or seen.guard_bytes
    for said in (f"({in_bytes} byte{'s' * (in_bytes > 1)})", found, guard_found, f"in {mutant.arm}"):
        assert said in finding.detail
    return measurement


REMOTE_PAIRS = [
    (Transfer.push("G0", "G1", 64 * MIB), Transfer.pull("G1", "G0", 64 * MIB)),
    (Transfer.push("G0", "C0", 64 * MIB), Transfer.pull("C0", "G0", 64 * MIB)),
]
"""A push and its mirror pull: the same two ends, and the same executor."""


def assert_only_the_push_is_corrupt(bench: Bench, push: Transfer, pull: Transfer) -> None:
    """A remote write that spoils some of 64 MiB is counted to the byte; the mirror pull is right."""
    push_case, pull_case = (Case(transfer, samples=1, rotate_bytes=128 * MIB) for transfer in (push, pull))
    skip_unless_possible(push_case, bench)
    spoilt = assert_caught(bench, Broken(push_case, mutants.RemoteWritesCorrupt))
    assert (spoilt.wrong_words, spoilt.wrong_bytes) == (1_541_905, 2_055_873)
    with bench.lease(pull_case) as lease:
        mutants.RemoteWritesCorrupt(lease)
        whole = bench.measure(lease, key="test/mirror")
    assert (whole.wrong_words, whole.wrong_bytes, whole.faults) == (0, 0, ())
    assert [finding.verdict for finding in judge(whole, ceiling=None)] == ["NEW"]


STUCK_SECONDS = 4.47e-3


def event_clock_stuck(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench.runtime, "elapsed_seconds", lambda start, stop: STUCK_SECONDS)


def stamp_clock_stuck(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    stamps = Lease.stamps
    patch.setattr(Lease, "stamps", lambda lease, launches: np.full_like(stamps(lease, launches), 10**15))


def stamp_rate_zero(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bench.runtime, "stamp_hz", lambda device: 0.0)


def all_rates_zero(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    """On ROCm one wall-clock rate is behind both the stamps and the deadline of the gate."""
    stamp_rate_zero(bench, patch)
    patch.setattr(bench.runtime, "deadline_hz", lambda device: 0.0)


BrokenClock = tuple[Callable[[Bench, pytest.MonkeyPatch], None], str, str]
"""What breaks it, the executor that is timed, and what the objection must say."""
US = r"\d+\.\d us"
BROKEN_CLOCKS: list[BrokenClock] = [
    (event_clock_stuck, "gfx", f"event clock shows 4470.0 us, kernel clock {US}"),
    (event_clock_stuck, "dma", f"event clock shows 4470.0 us, host clock {US}"),
    (stamp_clock_stuck, "gfx", f"event clock shows {US}, kernel clock 0.0 us"),
    (stamp_rate_zero, "gfx", f"event clock shows {US}, kernel clock nothing: its rate is 0 Hz"),
    (all_rates_zero, "gfx", f"event clock shows {US}, kernel clock nothing: its rate is 0 Hz"),
]
SIZES = [4 * KIB, 64 * MIB]
"""A stuck clock shows the same whatever the size."""


def clock_id(broken: BrokenClock) -> str:
    return f"{broken[0].__name__}-{broken[1]}"


def assert_invalid_naming_both_clocks(
    bench: Bench, patch: pytest.MonkeyPatch, broken: BrokenClock, nbytes: int
) -> None:
    """Break a clock before anything is timed with it: all samples are rejected, and why names both clocks."""
    break_clock, executor, said = broken
    case = Case(Transfer.pull("G0", "G0", nbytes, executor), samples=1, rotate_bytes=0)
    patch.setattr(bench, "_clock_facts", {})
    patch.setattr(bench, "_gated", {})
    break_clock(bench, patch)
    with bench.lease(case) as lease:
        measurement = bench.measure(lease, key="test/clock")
    assert measurement.faults == ()
    first = judge(measurement, ceiling=None)[0]
    assert first.verdict == "INVALID"
    assert re.search(f"the first because cold sample 0: {said}$", first.detail), first.detail

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytest_transferbench
from pytest_transferbench.judge import (
    FAILING,
    NEW,
    Ceiling,
    Contaminated,
    Corrupt,
    Impossible,
    Limits,
    Slow,
    TransferFailure,
    exception_for,
    judge,
    limits_for,
)
from pytest_transferbench.measurement import Arm, Check, Fault, Finding, Measurement

from ..refusals import refusal
from .measurements import GOOD_CHECK, MIB, at_gbps, measured

CEILING = Ceiling(478.1, "NVLink, NVML 18 x 26.562")
TWO_BITS = Check(
    "destination G0",
    16777216,
    wrong_words=2055873,
    wrong_bytes=2055874,
    first=17,
    last=16777215,
    xor_mask=0x110,
    found="poison (nothing was written)",
    reread_agrees=True,
)


def verdicts(measurement: Measurement, **keywords: Any) -> list[tuple[str, str]]:
    findings = judge(measurement, **{"ceiling": None, **keywords})
    return [(finding.verdict, finding.detail) for finding in findings]


def words(measurement: Measurement, **keywords: Any) -> list[str]:
    return [verdict for verdict, _ in verdicts(measurement, **keywords)]


def test_a_healthy_measurement_is_new() -> None:
    assert judge(measured(), ceiling=CEILING, floor_gbps=360.0) == (NEW,)
    assert not NEW.fails


# What each kind of trouble looks like, most important first.
TROUBLE: dict[str, dict[str, Any]] = {
    "DEVICE_ERROR": {"faults": (Fault("DEVICE_ERROR", "hipMemcpyAsync on GPU 0 failed: hipErrorLaunchFailure"),)},
    "TIMEOUT": {"faults": (Fault("TIMEOUT", "gate kernel on GPU 0 passed its deadline of 2 s"),)},
    "CORRUPT": {"checks": (TWO_BITS,)},
    "INVALID": {"arms": (at_gbps("steady", 371.2), Arm("cold", 1, (math.nan,)))},
    "IMPOSSIBLE": {"arms": (at_gbps("steady", 4763.0),)},
    "CONTAMINATED": {"arms": (at_gbps("steady", 300.0), at_gbps("warm", 400.0), at_gbps("cold", 200.0))},
    "SLOW": {"arms": (at_gbps("steady", 100.0),)},
}


def test_every_failing_verdict_has_its_exception_and_its_trouble_here() -> None:
    assert list(TROUBLE) == list(FAILING)
    assert len(set(FAILING.values())) == len(FAILING)


@pytest.mark.parametrize("verdict", FAILING)
def test_each_trouble_alone_gives_its_verdict_alone(verdict: str) -> None:
    measurement = measured(**TROUBLE[verdict])
    findings = judge(measurement, ceiling=CEILING, floor_gbps=200.0)
    assert [finding.verdict for finding in findings] == [verdict]
    assert all(finding.fails for finding in findings)


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(FAILING, 2)))
def test_of_two_troubles_the_more_important_is_first(first: str, second: str) -> None:
    one, other = TROUBLE[first], TROUBLE[second]
    both = {**other, **one}
    if one.keys() == other.keys() == {"faults"}:
        both = {"faults": other["faults"] + one["faults"]}
    if one.keys() == other.keys() == {"arms"}:
        arms = {arm.name: arm for fields in (other, one) for arm in fields["arms"] if isinstance(arm, Arm)}
        both = {"arms": tuple(arms.values())}
    measurement = measured(**both)
    assert words(measurement, ceiling=CEILING, floor_gbps=200.0)[0] == first


def test_bandwidth_verdicts_come_together_in_order() -> None:
    measurement = measured(gbps={"steady": 300.0, "warm": 600.0, "cold": 200.0})
    assert words(measurement, ceiling=CEILING, floor_gbps=360.0) == ["IMPOSSIBLE", "CONTAMINATED", "SLOW"]


@given(st.permutations(["TIMEOUT", "INVALID", "DEVICE_ERROR", "INVALID"]))
def test_the_order_of_faults_does_not_matter(order: list[str]) -> None:
    measurement = measured(faults=tuple(Fault(verdict, "x") for verdict in order), checks=(TWO_BITS,))
    assert words(measurement) == ["DEVICE_ERROR", "TIMEOUT", "CORRUPT", "INVALID", "INVALID"]


def test_a_fault_nobody_can_judge_is_a_mistake() -> None:
    assert "unknown verdict 'ODD'" in refusal(judge, measured(faults=(Fault("ODD", "x"),)), ceiling=None)


def test_faults_need_no_samples_to_fail() -> None:
    measurement = measured(gbps={}, checks=(), faults=(Fault("DEVICE_ERROR", "lost"),))
    assert verdicts(measurement) == [("DEVICE_ERROR", "lost")]


# CORRUPT


def test_corruption_is_counted_and_located() -> None:
    assert verdicts(measured(checks=(GOOD_CHECK, TWO_BITS))) == [
        (
            "CORRUPT",
            "2055873 of 16777216 words wrong (2055874 bytes), first 17, last 16777215, mask 0x00000110, "
            "found: poison (nothing was written), in destination G0, a DMA read-back agrees",
        )
    ]


def test_a_wrong_checksum_claims_no_place() -> None:
    check = Check.of_sum("steady", GOOD_CHECK.words, "checksum 0x5 instead of 0x6")
    assert verdicts(measured("(G1->G0->N 0 64M)", checks=(check,))) == [
        (
            "CORRUPT",
            "at least 1 of 16777216 words wrong, found: checksum 0x5 instead of 0x6, in steady",
        )
    ]


def test_an_overwritten_guard_is_corruption() -> None:
    where = "behind the data: first 16777216, last 16777218, mask 0x000000ff"
    check = dataclasses.replace(GOOD_CHECK, guard_words=3, guard_bytes=5, guard_found=where, reread_agrees=False)
    assert verdicts(measured(checks=(check,))) == [
        (
            "CORRUPT",
            "3 words of the guard zones overwritten (5 bytes), "
            "behind the data: first 16777216, last 16777218, mask 0x000000ff, in destination G0, "
            "a DMA read-back disagrees: suspect the way of checking",
        )
    ]


def test_a_corrupt_transfer_has_no_bandwidth() -> None:
    measurement = measured(gbps={"steady": 4763.0}, checks=(TWO_BITS,))
    findings = judge(measurement, ceiling=CEILING, floor_gbps=5000.0)
    failure = exception_for(findings[0], dataclasses.replace(measurement, verdicts=findings))
    assert [finding.verdict for finding in findings] == ["CORRUPT"]
    assert "GB/s" not in str(failure)


# INVALID


@pytest.mark.parametrize("seconds", [0.0, -1e-3, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["steady", "warm", "cold"])
def test_a_sample_that_is_no_time_is_invalid(name: str, seconds: float) -> None:
    good = at_gbps(name, 300.0)
    bad = dataclasses.replace(good, seconds=(*good.seconds[:7], seconds, *good.seconds[8:]))
    others = tuple(at_gbps(other, 300.0) for other in ("steady", "warm", "cold") if other != name)
    assert verdicts(measured(arms=(*others, bad)), ceiling=CEILING, floor_gbps=1.0) == [
        ("INVALID", f"{name} sample 7 took {seconds} s")
    ]


@pytest.mark.parametrize(("kept", "rejected", "invalid"), [(25, 2, False), (9, 1, False), (25, 3, True), (1, 1, True)])
def test_up_to_a_tenth_of_the_samples_may_be_rejected(kept: int, rejected: int, invalid: bool) -> None:
    arm = at_gbps("steady", 300.0, samples=kept, rejected=("event and kernel\ndisagree",) * rejected)
    expected = (
        "INVALID",
        f"{rejected} of {kept + rejected} samples rejected, more than 10 %, "
        "the first because steady event and kernel disagree",
    )
    assert verdicts(measured(arms=(arm,))) == ([expected] if invalid else [("NEW", "no baseline")])


def test_rejected_samples_are_counted_over_all_arms() -> None:
    cold = at_gbps("cold", 300.0, samples=9, rejected=("late", "late"))
    assert words(measured(arms=(at_gbps("steady", 300.0), cold))) == ["NEW"]
    cold = at_gbps("cold", 300.0, samples=9, rejected=("late",) * 4)
    assert words(measured(arms=(at_gbps("steady", 300.0), cold))) == ["INVALID"]


@pytest.mark.parametrize("name", ["steady", "warm", "cold"])
def test_an_arm_that_lost_all_its_samples_is_invalid_however_many_the_others_have(name: str) -> None:
    others = tuple(at_gbps(other, 300.0) for other in ("steady", "warm", "cold") if other != name)
    measurement = measured(arms=(Arm(name, 1, (), rejected=("late",)), *others))
    assert verdicts(measurement, floor_gbps=1.0) == [("INVALID", f"no {name} samples")]


def test_no_samples_are_invalid() -> None:
    assert verdicts(measured(gbps={"cold": 300.0})) == [("INVALID", "no steady samples")]
    assert verdicts(measured(arms=(at_gbps("steady", 300.0), Arm("cold", 1, ())))) == [("INVALID", "no cold samples")]


@pytest.mark.parametrize("checks", [(), (Check("destination G0", words=0),)])
def test_a_check_that_looked_at_nothing_proves_nothing(checks: tuple[Check, ...]) -> None:
    assert verdicts(measured(checks=checks)) == [("INVALID", "validation was asked for and no word was checked")]
    assert words(measured(checks=checks, validated=False)) == ["NEW"]


# IMPOSSIBLE


@pytest.mark.parametrize("arm", ["steady", "warm", "cold"])
def test_more_than_the_way_carries_is_impossible_in_any_arm(arm: str) -> None:
    figures = {"steady": 371.2, "warm": 371.2, "cold": 371.2, arm: 500.0}
    measurement = measured("(G0->G0->G1 0 64M)", gbps=figures)
    assert verdicts(measurement, ceiling=CEILING) == [
        ("IMPOSSIBLE", f"{arm} 500.0 GB/s is above the ceiling of 478.1 GB/s (NVLink, NVML 18 x 26.562)")
    ]
    assert words(measurement, ceiling=None) == ["NEW"]


def test_exactly_the_ceiling_is_possible_and_a_hair_more_is_not() -> None:
    measurement = measured(gbps={"steady": 450.0})
    assert words(measurement, ceiling=Ceiling(float(measurement.gbps), "x")) == ["NEW"]
    below = math.nextafter(float(measurement.gbps), 0.0)
    assert words(measurement, ceiling=Ceiling(below, "x")) == ["IMPOSSIBLE"]
    assert "449.9999 GB/s" in verdicts(measurement, ceiling=Ceiling(449.9999, "x"))[0][1]


# CONTAMINATED


def contaminated(text: str = "(G1->G0->G0 0 64M)", warm: float = 300.0, cold: float = 200.0, **method: int) -> bool:
    measurement = measured(text, gbps={"steady": 250.0, "warm": warm, "cold": cold}, method=method)
    found = "CONTAMINATED" in words(measurement)
    assert found == (measurement.warm_cold > limits_for(measurement))
    return found


def test_a_warm_pull_that_outruns_a_cold_one_is_contaminated() -> None:
    measurement = measured(gbps={"steady": 300.0, "warm": 300.0, "cold": 200.0})
    assert verdicts(measurement) == [
        (
            "CONTAMINATED",
            "warm 300.0 GB/s is 1.500 x cold 200.0 GB/s, above the limit of 1.15: "
            "a cache serves part of the bytes (4 source slices)",
        )
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(G1->G0->G0 0 64M)", True),
        ("(G1->D0->G0 0 64M)", True),
        ("(G0->G0->G1 0 64M)", False),
        ("(G0->G0->G0 0 64M)", False),
        ("(G0->G2->G1 0 64M)", False),
    ],
)
def test_only_pulls_are_contaminated(text: str, expected: bool) -> None:
    assert contaminated(text) == expected


@pytest.mark.parametrize(("nbytes", "expected"), [(4 * MIB - 4, False), (4 * MIB, True)])
def test_only_from_4m_on(nbytes: int, expected: bool) -> None:
    assert contaminated(f"(G1->G0->G0 0 {nbytes})") == expected


@pytest.mark.parametrize(("microseconds", "expected"), [(4.9, False), (5.1, True)])
def test_only_when_the_copies_are_more_than_5_us_apart(microseconds: float, expected: bool) -> None:
    warm_seconds = 20e-6
    warm = 4 * MIB / warm_seconds / 1e9
    cold = 4 * MIB / (warm_seconds + microseconds * 1e-6) / 1e9
    assert contaminated("(G1->G0->G0 0 4M)", warm, cold) == expected


@pytest.mark.parametrize(
    ("ratio", "rotate_bytes", "rotated", "expected"),
    [
        (1.149, 256 * MIB, True, False),
        (1.151, 256 * MIB, True, True),
        (1.30, 0, False, False),
        (1.349, 0, False, False),
        (1.351, 0, False, True),
        (2.48, 0, False, True),
        (1.349, 64 * MIB, False, False),
        (1.351, 64 * MIB, False, True),
    ],
)
def test_the_limit_is_wider_where_caches_can_hold_the_slices(
    ratio: float, rotate_bytes: int, rotated: bool, expected: bool
) -> None:
    method = {"rotate_bytes": rotate_bytes, "rotated": rotated, "slices": 1}
    assert contaminated(warm=200.0 * ratio, cold=200.0, **method) == expected


def test_one_slice_because_the_transfer_is_large_is_still_rotation() -> None:
    assert contaminated("(G1->G0->G0 0 512M)", 240.0, 200.0, rotate_bytes=256 * MIB, slices=1)


def test_limits_can_be_moved_and_a_wider_one_also_holds_with_rotation_off() -> None:
    measurement = measured(gbps={"steady": 250.0, "warm": 260.0, "cold": 200.0})
    off = {"rotated": False, "rotate_bytes": 0}
    unrotated = dataclasses.replace(measurement, method={**measurement.method, **off})
    assert limits_for(measurement, Limits(warm_cold=1.5)) == limits_for(unrotated, Limits(warm_cold=1.5)) == 1.5
    assert limits_for(unrotated, Limits(warm_cold=1.05)) == 1.35
    assert words(measurement, limits=Limits(warm_cold=1.5)) == ["NEW"]
    assert words(measurement, limits=Limits(warm_cold=1.25)) == ["CONTAMINATED"]
    strict = Limits(warm_cold_unrotated=1.2)
    assert "(4 source slices, rotation off)" in verdicts(unrotated, limits=strict)[0][1]
    too_little = dataclasses.replace(measurement, method={**measurement.method, "rotated": False})
    assert "(4 source slices, too few for rotation)" in verdicts(too_little, limits=strict)[0][1]


@pytest.mark.parametrize("missing", ["cold", "warm"])
def test_without_both_arms_there_is_no_ratio_to_limit(missing: str) -> None:
    figures = {name: 300.0 for name in ("steady", "cold", "warm") if name != missing}
    assert limits_for(measured(gbps=figures)) == math.inf
    assert words(measured(gbps=figures)) == ["NEW"]


# SLOW


def test_a_floor_is_named_with_the_distance() -> None:
    assert verdicts(measured(), floor_gbps=500.0) == [("SLOW", "371.2 GB/s is 25.8 % under the floor of 500.0 GB/s")]


def test_exactly_the_floor_is_not_slow_and_a_hair_less_is_shown_to_be_less() -> None:
    measurement = measured(gbps={"steady": 499.9996})
    assert words(measurement, floor_gbps=float(measurement.gbps)) == ["NEW"]
    assert verdicts(measurement, floor_gbps=500.0) == [
        ("SLOW", "499.9996 GB/s is 0.0 % under the floor of 500.0000 GB/s")
    ]


@pytest.mark.parametrize("floor", [0.0, -1.0, math.nan, math.inf])
def test_a_floor_that_is_none_is_refused(floor: float) -> None:
    assert f"bad floor {floor}" in refusal(judge, measured(), ceiling=None, floor_gbps=floor)


# The exceptions


@pytest.mark.parametrize("verdict", FAILING)
def test_a_failing_verdict_fails_a_test_with_one_line_first(verdict: str) -> None:
    measurement = measured(**TROUBLE[verdict])
    findings = judge(measurement, ceiling=CEILING, floor_gbps=200.0)
    failure = exception_for(findings[0], dataclasses.replace(measurement, verdicts=findings))
    assert type(failure) is FAILING[verdict]
    assert isinstance(failure, AssertionError)
    first = str(failure).splitlines()[0]
    assert first == f"{verdict}: {findings[0].detail}"
    assert failure.finding == findings[0]
    assert failure.measurement.key == measurement.key


@pytest.mark.parametrize("verdict", FAILING)
def test_failures_survive_pickling_and_copying(verdict: str) -> None:
    failure = exception_for(Finding(verdict, "why", fails=True), measured(gbps={"steady": 300.0}))
    for again in (pickle.loads(pickle.dumps(failure)), copy.copy(failure), copy.deepcopy(failure)):
        assert type(again) is type(failure)
        assert again.finding == failure.finding
        assert again.measurement.arms == failure.measurement.arms
        assert str(again) == str(failure)


def test_a_detail_of_several_lines_becomes_one() -> None:
    measurement = measured(faults=(Fault("DEVICE_ERROR", "first\n  second\tthird"),))
    assert verdicts(measurement) == [("DEVICE_ERROR", "first second third")]
    failure = exception_for(Finding("SLOW", "a\nb", fails=True), measurement)
    assert str(failure).splitlines()[0].endswith(": a b")


def test_the_other_verdicts_and_the_figures_follow_the_first_line() -> None:
    measurement = measured(gbps={"steady": 300.0, "warm": 600.0, "cold": 200.0})
    findings = judge(measurement, ceiling=CEILING, floor_gbps=360.0)
    failure = exception_for(findings[0], dataclasses.replace(measurement, verdicts=findings))
    lines = str(failure).splitlines()
    assert [line.split(":")[0] for line in lines] == ["IMPOSSIBLE", "also CONTAMINATED", "also SLOW", "measured"]
    assert lines[-1] == (f"measured: steady 300.0 GB/s, warm 600.0 GB/s, cold 200.0 GB/s; method {measurement.digest}")


def test_a_passing_verdict_cannot_be_raised() -> None:
    assert "NEW is no failing verdict" in refusal(exception_for, NEW, measured())


@pytest.mark.parametrize("failure", [TransferFailure, *FAILING.values()])
def test_failures_are_public_under_the_name_reports_print(failure: type[TransferFailure]) -> None:
    assert failure.__module__ == "pytest_transferbench"
    assert getattr(pytest_transferbench, failure.__name__) is failure
    assert failure.__name__ in pytest_transferbench.__all__


def test_users_can_expect_a_failure() -> None:
    for verdict, failure in {"IMPOSSIBLE": Impossible, "CONTAMINATED": Contaminated, "SLOW": Slow}.items():
        with pytest.raises(failure, match=verdict):
            raise exception_for(Finding(verdict, "why", fails=True), measured())
    with pytest.raises(AssertionError, match="CORRUPT"):
        raise Corrupt(Finding("CORRUPT", "why", fails=True), measured())


def test_the_pure_layers_import_the_standard_library_alone() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import pytest_transferbench as package\n"
        "assert not [name for name in sys.modules if name.startswith('pytest_transferbench.')]\n"
        "[getattr(package, name) for name in package.__all__]\n"
        "import pytest_transferbench.judge, pytest_transferbench.journal\n"
        "added = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(added - set(sys.stdlib_module_names)))"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "['pytest_transferbench']"


def test_the_package_has_no_other_names() -> None:
    assert set(pytest_transferbench.__all__) <= set(dir(pytest_transferbench))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = pytest_transferbench.nonsense


def test_a_floor_says_where_it_comes_from() -> None:
    findings = judge(measured(), ceiling=None, floor_gbps=500.0, floor_source="a paper")
    assert findings[0].detail == "371.2 GB/s is 25.8 % under the floor of 500.0 GB/s (a paper)"

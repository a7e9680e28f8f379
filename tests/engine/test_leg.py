"""Several Transfers at the same time: measured in one launch, each proved by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.emulator import activate
from pytest_transferbench.engine import Bench, pattern
from pytest_transferbench.judge import ceiling_for, judge
from pytest_transferbench.transfer import Case, Test, parse_transfers, together
from tests.engine import mutants
from tests.engine.conftest import MODEL
from tests.engine.leg_mutants import LeavesALastWord, LeavesOneLegOut, SwapsTwoDestinations, wrong_checks
from tests.engine.proof import measured

KIB, MIB = 1 << 10, 1 << 20
SMALL = {"rotate_bytes": 4 * MIB}
WORDS = MIB // 4


@pytest.fixture(params=["pull", "push"])
def peers(request: pytest.FixtureRequest) -> Test:
    """GPU 0 with three others, two blocks a Transfer."""
    make = Test.pull_from_peers if request.param == "pull" else Test.push_to_peers
    return make(0, range(4), MIB, 2)


def test_a_test_is_measured_in_its_steady_arm_alone(bench: Bench, peers: Test) -> None:
    measurement = measured(bench, peers, **SMALL)
    assert [finding.verdict for finding in judge(measurement, ceiling=ceiling_for(peers, bench.node))] == ["NEW"]
    (arm,) = measurement.arms
    assert arm.name == "steady"
    assert np.isnan(measurement.warm_cold)
    assert [(check.what, check.words) for check in measurement.checks] == [
        (f"steady of {transfer.notation()}", WORDS) for transfer in peers.transfers
    ]
    assert float(measurement.gbps) == pytest.approx(3 * MIB / arm.median_seconds / 1e9)
    assert (measurement.method["transfers"], measurement.method["subexecutors"]) == (3, 2)
    owners = measurement.context["source_owner"], measurement.context["destination_owner"]
    assert owners == (([1, 2, 3], 0) if peers.op == "pull" else (0, [1, 2, 3]))


def test_all_ways_carry_bytes_at_the_same_time(bench: Bench) -> None:
    """Each of three equal ways carries what one alone does, so that the sum is three times as much."""
    pull = Test.pull_from_peers(0, range(4), 16 * MIB, 8)
    alone = measured(bench, pull.transfers[0], rotate_bytes=0, samples=1)
    all_three = measured(bench, pull, rotate_bytes=0, samples=1)
    assert float(all_three.gbps) == pytest.approx(3 * float(alone.gbps), rel=0.01)


def test_a_test_of_one_peer_is_enough(bench: Bench) -> None:
    measurement = measured(bench, Test.pull_from_peers(1, (0, 1), MIB, 4), **SMALL)
    assert measurement.faults == ()
    assert measurement.wrong_words == 0
    assert [check.what for check in measurement.checks] == ["steady"]


@pytest.mark.parametrize(
    ("text", "nbytes", "settings"),
    [
        ("(G1->G0->G0 3 0) (U1->G0->F0 3 0) (C0->G0->G0 3 0)", MIB + 4, {}),
        ("(G0->G0->G1) (G0->G0->C0)", 20, {"byte_offset": 12}),
        ("(G0->G0->G0) (G0->G0->U0)", 64 * KIB, {"sub_iterations": 3, "validate": "each"}),
        ("(G1->G0->G2) (G2->G0->G1)", 4, {"sub_iterations": 5}),
    ],
)
def test_any_memories_sizes_and_passes_arrive_whole(
    bench: Bench, text: str, nbytes: int, settings: dict[str, object]
) -> None:
    test = together(parse_transfers(text, nbytes))
    measurement = measured(bench, test, **{"rotate_bytes": 256 * KIB, **settings})
    assert measurement.faults == ()
    assert measurement.wrong_words == 0
    assert [check.words for check in measurement.checks] == [nbytes // 4] * len(test.transfers)


def test_own_data_goes_every_way(bench: Bench, peers: Test) -> None:
    data = np.arange(WORDS, dtype=np.uint32)
    with bench.lease(Case(peers, samples=1, rotate_bytes=2 * MIB)) as lease:
        measurement = bench.measure(lease, key="test/own", data=data)
        assert all(np.array_equal(leg.peer.get(), data) for leg in lease.legs)
    assert measurement.wrong_words == 0
    assert not measurement.slice_identity_proved


def test_every_leg_has_words_of_its_own(bench: Bench, peers: Test) -> None:
    with bench.lease(Case(peers, samples=1, **SMALL)) as lease:
        for leg in lease.legs:
            for index, words in enumerate(leg.slices):
                assert pattern.check("slice", words.get(), 1, (pattern.key_of(index, leg.nonce),)).passed
        assert len({leg.nonce for leg in lease.legs}) == 3
        with pytest.raises(ValueError, match=r"^(push|pull)[^\n]* has 3 Transfers: ask \.legs for \.peer of each$"):
            _ = lease.peer


@given(nonce=st.integers(0, 2**16), legs=st.integers(1, 16), slices=st.integers(1, 512))
def test_no_two_legs_share_a_key(nonce: int, legs: int, slices: int) -> None:
    keys = {pattern.key_of(index, nonce + leg) for leg in range(legs) for index in range(slices)}
    assert len(keys) == legs * slices


def test_memory_is_that_of_sources_and_destinations_alone(bench: Bench) -> None:
    """No eviction buffers; and everything goes back."""
    node = activate(MODEL)
    for index in range(4):
        bench.clock_facts(index)  # devices and gate stay open: their pages are no case's
    bench.arena.clear()
    before = node.counters()
    with bench.lease(Case(Test.pull_from_peers(0, range(4), MIB, 2), samples=1, **SMALL)) as lease:
        assert lease.evictor is None
        assert node.counters().bytes_allocated - before.bytes_allocated < 3 * (4 + 1) * MIB + MIB
    bench.arena.clear()
    assert node.counters().allocations == before.allocations


def test_sources_on_one_gpu_share_its_memory(bench: Bench) -> None:
    total = bench.node.device(0).memory_bytes
    with bench.lease(Case(Test.push_to_peers(0, range(8), MIB, 2), samples=1, rotate_bytes=total // 4)) as lease:
        assert lease.plan.slices == int(0.6 * total) // 7 // MIB
        assert lease.plan.warning is not None
        assert "slices of 7 sources may take 60 % of the device's" in lease.plan.warning
    bench.arena.clear()


def test_two_swapped_destinations_are_caught_and_both_named(bench: Bench, peers: Test) -> None:
    first, second, _ = (transfer.notation() for transfer in peers.transfers)
    measurement = measured(bench, peers, SwapsTwoDestinations, **SMALL)
    swapped = wrong_checks(measurement)
    assert [(check.what, check.wrong_words, check.first, check.last) for check in swapped] == [
        (f"steady of {name}", WORDS, 0, WORDS - 1) for name in (first, second)
    ]
    for check, other in zip(swapped, (second, first), strict=True):
        assert check.found.startswith("slice ")
        assert f" of {other} instead of slice " in check.found
        assert check.found.endswith(f" in {WORDS} words")
        assert check.reread_agrees
    said = [finding.detail for finding in judge(measurement, ceiling=None)]
    assert len(said) == 2
    assert f"in steady of {first}" in said[0]


def test_a_leg_that_is_not_copied_is_named(bench: Bench, peers: Test) -> None:
    (nothing,) = wrong_checks(measured(bench, peers, LeavesOneLegOut, **SMALL))
    assert nothing.what == f"steady of {peers.transfers[1].notation()}"
    assert (nothing.wrong_words, nothing.xor_mask) == (WORDS, 0xFFFFFFFF)
    assert nothing.found == f"poison (nothing was written) in {WORDS} words"


def test_a_leg_one_word_short_is_named_with_its_place(bench: Bench, peers: Test) -> None:
    (short,) = wrong_checks(measured(bench, peers, LeavesALastWord, **SMALL))
    assert short.what == f"steady of {peers.transfers[1].notation()}"
    assert (short.wrong_words, short.first, short.last) == (1, WORDS - 1, WORDS - 1)


def test_a_slice_too_far_is_named_in_every_leg(bench: Bench, peers: Test) -> None:
    shifted = wrong_checks(measured(bench, peers, mutants.ReadsTheNextSlice, **SMALL))
    assert len(shifted) == 3
    for check in shifted:
        assert check.found.startswith("slice ")
        assert " of (" not in check.found


def test_a_source_that_still_holds_the_case_before_is_named(bench: Bench, peers: Test) -> None:
    with bench.lease(Case(peers, samples=1, **SMALL)) as lease:
        assert bench.measure(lease, key="test/before").wrong_words == 0
        lease.legs[1].fill = lambda nonce: None  # type: ignore[method-assign]  # this once
        (stale,) = wrong_checks(bench.measure(lease, key="test/after"))
    assert stale.what == f"steady of {peers.transfers[1].notation()}"
    assert stale.found.startswith("slice ")
    assert " of the case before instead of slice " in stale.found

"""Broken transfers on the emulated node: each is caught, counted, placed and named."""

from __future__ import annotations

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.judge import judge
from pytest_transferbench.transfer import Case, Transfer
from tests.engine import mutants, proof


@pytest.mark.parametrize("case", proof.CASES, ids=lambda case: case.name)
def test_the_cases_are_whole(bench: Bench, case: Case) -> None:
    proof.assert_whole(bench, case)


@pytest.mark.parametrize("broken", proof.BROKEN, ids=str)
def test_a_mutation_is_caught_and_named(bench: Bench, broken: proof.Broken) -> None:
    proof.assert_caught(bench, broken)


@pytest.mark.parametrize(("push", "pull"), proof.REMOTE_PAIRS[:1], ids=Transfer.case_name)
def test_a_remote_write_that_corrupts_is_counted_and_its_mirror_pull_is_right(
    bench: Bench, push: Transfer, pull: Transfer
) -> None:
    proof.assert_only_the_push_is_corrupt(bench, push, pull)


@pytest.mark.parametrize("nbytes", proof.SIZES)
@pytest.mark.parametrize("broken", proof.BROKEN_CLOCKS, ids=proof.clock_id)
def test_a_broken_clock_is_invalid_and_both_are_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, broken: proof.BrokenClock, nbytes: int
) -> None:
    proof.assert_invalid_naming_both_clocks(bench, monkeypatch, broken, nbytes)


def test_links_that_seem_to_wake_for_longer_than_all_took_leave_no_negative_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An H200 wakes and copies 4 KiB in less than waking may take: a stuck clock then claims all of that for waking."""
    monkeypatch.setattr("pytest_transferbench.engine.run.WAKING_COPY_SECONDS", 1.0)
    broken = proof.event_clock_stuck, "dma", "event clock shows 4470.0 us, host clock 0.0 us"
    proof.assert_invalid_naming_both_clocks(bench, monkeypatch, broken, 4096)


def test_a_source_that_still_holds_the_case_before_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(Transfer.pull("G1", "G0", 64 * 1024), samples=1, rotate_bytes=256 * 1024)
    with bench.lease(case) as lease:
        assert bench.measure(lease, key="test/before").wrong_words == 0
        monkeypatch.setattr(lease, "fill", lambda nonce: None)
        stale = proof.corrupt_check(bench.measure(lease, key="test/after"))
    assert (stale.wrong_words, stale.first, stale.last) == (16384, 0, 16383)
    assert stale.found == "slice 0 of the case before instead of slice 0 in 16384 words"


def test_a_lost_copy_of_an_only_slice_is_told_by_its_missing_stamps(bench: Bench) -> None:
    """The copies before it leave the same words."""
    case = Case(Transfer.push("G0", "G1", 64 * 1024), samples=2, rotate_bytes=0)
    with bench.lease(case) as lease:
        mutants.LosesTheLastCopy(lease)
        measurement = bench.measure(lease, key="test/lost")
    assert measurement.wrong_words == 0
    first = judge(measurement, ceiling=None)[0]
    assert first.verdict == "INVALID"
    assert "kernel clock nothing: a block left no stamp, it did not run" in first.detail

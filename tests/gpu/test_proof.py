"""Broken transfers on real GPUs: each is caught, counted, placed and named.

One GPU is enough for local copies and for those to and from the host; a second adds its own.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.transfer import Case, Transfer
from tests.engine import proof


@pytest.mark.parametrize("case", proof.CASES, ids=lambda case: case.name)
def test_the_cases_are_whole(any_bench: Bench, case: Case) -> None:
    proof.assert_whole(any_bench, case)


@pytest.mark.parametrize("broken", proof.BROKEN, ids=str)
def test_a_mutation_is_caught_and_named(any_bench: Bench, broken: proof.Broken) -> None:
    proof.assert_caught(any_bench, broken)


@pytest.mark.parametrize(("push", "pull"), proof.REMOTE_PAIRS, ids=Transfer.case_name)
def test_a_remote_write_that_corrupts_is_counted_and_its_mirror_pull_is_right(
    any_bench: Bench, push: Transfer, pull: Transfer
) -> None:
    proof.assert_only_the_push_is_corrupt(any_bench, push, pull)


@pytest.mark.parametrize("nbytes", proof.SIZES)
@pytest.mark.parametrize("broken", proof.BROKEN_CLOCKS, ids=proof.clock_id)
def test_a_broken_clock_is_invalid_and_both_are_named(
    any_bench: Bench, monkeypatch: pytest.MonkeyPatch, broken: proof.BrokenClock, nbytes: int
) -> None:
    proof.assert_invalid_naming_both_clocks(any_bench, monkeypatch, broken, nbytes)

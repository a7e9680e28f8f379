"""Transfers at the same time on real GPUs: two is enough of them, the second source is the host."""

from __future__ import annotations

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.transfer import Test, parse_transfers, together
from tests.engine.leg_mutants import LeavesALastWord, LeavesOneLegOut, SwapsTwoDestinations, wrong_checks
from tests.engine.mutants import Mutant
from tests.engine.proof import measured

BOTH = together(parse_transfers("(G1->G0->G0 8 4M) (C0->G0->G0 8 4M)"))
WORDS = 1 << 20


def test_a_test_of_one_peer_and_one_of_two_sources_are_whole(bench: Bench) -> None:
    for test in (Test.pull_from_peers(0, (0, 1), 64 << 20), Test.push_to_peers(0, (0, 1), 64 << 20), BOTH):
        measurement = measured(bench, test)
        assert measurement.faults == ()
        assert measurement.wrong_words == 0
        assert measurement.gbps > 0


@pytest.mark.parametrize(
    ("mutant", "wrong_words"),
    [(SwapsTwoDestinations, [WORDS, WORDS]), (LeavesOneLegOut, [WORDS]), (LeavesALastWord, [1])],
)
def test_a_broken_leg_is_caught_and_named(bench: Bench, mutant: type[Mutant], wrong_words: list[int]) -> None:
    found = wrong_checks(measured(bench, BOTH, mutant))
    assert [check.wrong_words for check in found] == wrong_words
    broken = BOTH.transfers if len(found) == 2 else BOTH.transfers[1:]
    assert [check.what for check in found] == [f"steady of {transfer.notation()}" for transfer in broken]

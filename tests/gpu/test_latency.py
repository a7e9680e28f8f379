"""Messages on real GPUs: between two, or within the one there is."""

from __future__ import annotations

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.transfer import LL, PROTOCOLS, Protocol
from tests.latency import proof
from tests.latency.test_measure import EVERY_SIZE, ONE_OF_EACH_KIND, size_id


@pytest.mark.parametrize(("protocol", "nbytes"), EVERY_SIZE, ids=size_id)
def test_every_size_around_a_line_is_whole(any_bench: Bench, protocol: Protocol, nbytes: int) -> None:
    proof.assert_whole(any_bench, proof.message_case(any_bench, protocol, nbytes))


@pytest.mark.parametrize("validate", ["end", "each", "off"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=size_id)
def test_many_blocks_are_whole(any_bench: Bench, protocol: Protocol, validate: str) -> None:
    proof.assert_whole(any_bench, proof.message_case(any_bench, protocol, 16 << 20, validate=validate))


def test_a_ping_pong(any_bench: Bench) -> None:
    proof.assert_whole(any_bench, proof.ping_pong_case(any_bench, samples=1000))


def test_5000_iterations_are_no_limit(any_bench: Bench) -> None:
    proof.assert_whole(any_bench, proof.message_case(any_bench, LL, 8, samples=5000))


@pytest.mark.parametrize(("broken", "said"), proof.LOST, ids=[str(broken) for broken, _ in proof.LOST])
def test_what_is_lost_is_a_timeout_that_names_it(any_bench: Bench, broken: proof.Broken, said: str) -> None:
    proof.assert_timeout(any_bench, broken, said)


@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=size_id)
def test_a_flipped_word_is_corrupt_with_its_count(any_bench: Bench, protocol: Protocol) -> None:
    proof.assert_flipped_word_is_counted(any_bench, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=size_id)
def test_a_word_flipped_while_time_counts_is_corrupt_with_its_count(any_bench: Bench, protocol: Protocol) -> None:
    proof.assert_flipped_timed_word_is_counted(any_bench, protocol)


@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=size_id)
def test_words_swapped_while_time_counts_are_corrupt(any_bench: Bench, protocol: Protocol) -> None:
    proof.assert_swapped_timed_words_are_counted(any_bench, protocol)


@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=size_id)
def test_a_word_that_nobody_took_is_noticed(any_bench: Bench, protocol: Protocol) -> None:
    proof.assert_word_left_out_is_noticed(any_bench, protocol)


def test_what_comes_back_wrong_is_counted(any_bench: Bench) -> None:
    proof.assert_wrong_lap_is_counted(any_bench)


def test_what_comes_back_is_what_was_sent(any_bench: Bench) -> None:
    proof.assert_answer_made_up_is_wrong(any_bench)


def test_a_lap_that_nobody_compared_is_noticed(any_bench: Bench) -> None:
    proof.assert_lap_left_out_is_noticed(any_bench)

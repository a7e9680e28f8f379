"""Words of a list of pairs, and the GPUs they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer.pairs import WORDS, pairs_named
from tests.refusals import refusal, refuses


def pairs(text: str, *gpus: int, named: bool = True) -> list[str]:
    return ["-".join("+".join(end) for end in ends) for ends in pairs_named(text, gpus, named=named)]


@pytest.mark.parametrize(
    ("text", "gpus", "got"),
    [
        ("G0-G1", (0, 1), ["G0-G1"]),
        ("first-second", (2, 5, 7), ["G2-G5"]),
        ("first-second", (2,), []),
        ("first-C0", (), []),
        ("each-C0", (2, 5), ["G2-C0", "G5-C0"]),
        ("C0-each", (2, 5), ["C0-G2", "C0-G5"]),
        ("each-N", (0, 1), ["G0-N", "G1-N"]),
        ("each-itself", (0, 3), ["G0-G0", "G3-G3"]),
        ("itself-each", (0, 3), ["G0-G0", "G3-G3"]),
        ("each-next", (1, 4, 6), ["G1-G4", "G4-G6", "G6-G1"]),
        ("next-each", (1, 4), ["G4-G1", "G1-G4"]),
        ("each-next", (1,), []),
        ("first-others", (1, 4, 6), ["G1-G4", "G1-G6"]),
        ("others-second", (1, 4, 6), ["G1-G4", "G6-G4"]),
        ("G4-others", (1, 4, 6), ["G4-G1", "G4-G6"]),
        ("others-third", (), None),
        ("first-first+second", (3, 1), ["G3-G3+G1"]),
        ("first+second-first", (3,), []),
        ("each-itself+next", (0, 1), ["G0-G0+G1", "G1-G1+G0"]),
        ("U0+C0-peers", (0,), ["U0+C0-peers"]),
    ],
)
def test_what_words_stand_for(text: str, gpus: tuple[int, ...], got: list[str] | None) -> None:
    if got is None:
        assert "are seen from the GPU at the other end, as in first-others" in refusal(pairs, text, *gpus)
    else:
        assert pairs(text, *gpus) == got


def test_others_that_nobody_named_are_the_next_one_alone() -> None:
    assert pairs("first-others", *range(8), named=False) == ["G0-G1"]
    assert pairs("each-others", 0, 1, 2, named=False) == ["G0-G1", "G1-G2", "G2-G0"]


@pytest.mark.parametrize("text", ["others-others", "next-itself", "C0-others", "peers-next", "others-"])
def test_words_that_are_seen_from_nowhere(text: str) -> None:
    assert "are seen from the GPU at the other end" in refusal(pairs, text, 0, 1)


def test_no_dash_is_no_pair() -> None:
    assert refusal(pairs, "first").startswith("bad pair 'first': use gpu, host, all, peers, config, local, or SOURCE-")


@given(st.lists(st.sampled_from([*WORDS, "G0", "C0", "N", "+", "-", "x"]), max_size=6), st.sets(st.integers(0, 9)))
def test_no_text_does_anything_but_name_pairs_or_be_refused(words: list[str], gpus: set[int]) -> None:
    refuses(pairs, "".join(words), *sorted(gpus))


@given(st.sets(st.integers(0, 20), min_size=2, max_size=8))
def test_a_ring_passes_every_gpu_once(gpus: set[int]) -> None:
    ring = dict(pair.split("-") for pair in pairs("each-next", *sorted(gpus)))
    at, seen = f"G{min(gpus)}", []
    while at not in seen:
        seen.append(at)
        at = ring[at]
    assert sorted(seen) == sorted(f"G{gpu}" for gpu in gpus)

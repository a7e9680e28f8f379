from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import Case, Test, Transfer, parse_transfer, parse_transfers, together

from ..refusals import refusal
from .strategies import indices, sizes, transfers, variants, whole_tests

MIB = 2**20


def made_test(text: str, nbytes: int | None = None) -> Test:
    made = together(parse_transfers(text, nbytes))
    assert isinstance(made, Test)
    return made


@given(whole_tests())
def test_a_test_survives_writing_and_reading(test: Test) -> None:
    assert together(parse_transfers(test.notation())) == test


@given(transfers())
def test_one_transfer_is_itself(transfer: Transfer) -> None:
    assert together(parse_transfers(transfer.notation())) == transfer
    assert transfer.transfers == (transfer,)
    assert transfer.total_bytes == transfer.nbytes


@given(whole_tests())
def test_bytes_are_those_of_one_and_of_all(test: Test) -> None:
    assert test.total_bytes == len(test.transfers) * test.nbytes
    assert {(t.nbytes, t.op, t.executor, t.subexecutors) for t in test.transfers} == {
        (test.nbytes, test.op, test.executor, test.subexecutors)
    }
    assert len(test.sources) == len(test.destinations) == len(test.transfers)
    assert {test.owner_of(memory) for memory in test.sources} == {memory.owner for memory in test.sources}


@given(whole_tests(), variants, whole_tests() | transfers(), variants)
def test_two_cases_share_a_name_only_when_they_are_equal(
    one: Test, variant: str, other: Test | Transfer, other_variant: str
) -> None:
    same = (one, variant) == (other, other_variant)
    assert (one.case_name(variant) == other.case_name(other_variant)) == same


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(G1->G0->G0 8 64M) (G2->G0->G0 8 64M)", "pull-gfx8-G1+G2-G0-64M"),
        ("(G0->G0->G1 0 4K)(G0->G0->G2 0 4K)(G0->G0->U1 0 4K)", "push-gfx-G0-G1+G2+U1-4K"),
        ("(G1->G0->G0 0 4M) (G1->G0->U0 0 4M)", "pull-gfx-G1-G0+U0-4M"),
        ("(G1->G0->G0 0 4M) (C0->G0->U0 0 4M)", "pull-gfx-G1+C0-G0+U0-4M"),
        ("(G1->G0->G0 0 4M) (C0->G0->U0 0 4M) (G2->G0->G0 0 4M)", "pull-gfx-G1+C0+G2-G0+U0+G0-4M"),
        ("(G0->G2->G1 0 4M) (G1->G2->G0 0 4M)", "relay-gfx-G0+G1-G1+G0-4M-at-G2"),
    ],
)
def test_names(text: str, name: str) -> None:
    test = made_test(text)
    assert test.case_name() == Case(test).name == name
    assert test.case_name("r0") == f"{name}-r0"


@given(indices, st.sets(indices, min_size=1), sizes, st.integers(0, 999))
def test_peers_are_all_the_others(gpu: int, gpus: set[int], nbytes: int, subexecutors: int) -> None:
    others = sorted(gpus - {gpu})
    if not others:
        assert f"GPU {gpu} has no peers" in refusal(Test.pull_from_peers, gpu, gpus, nbytes, subexecutors)
        return
    pull = Test.pull_from_peers(gpu, sorted(gpus), nbytes, subexecutors)
    push = Test.push_to_peers(gpu, sorted(gpus), nbytes, subexecutors)
    assert pull.transfers == tuple(Transfer.pull(peer, gpu, nbytes, "gfx", subexecutors) for peer in others)
    assert push.transfers == tuple(Transfer.push(gpu, peer, nbytes, "gfx", subexecutors) for peer in others)
    assert (pull.op, push.op) == ("pull", "push")


def test_peers_have_a_name_of_their_own_and_are_what_they_are_without_it() -> None:
    pull = Test.pull_from_peers(0, range(8), 64 * MIB, 8)
    assert pull.case_name() == "pull-gfx8-peers-G0-64M"
    assert Test.push_to_peers(0, range(8), 64 * MIB, 8).case_name("r0") == "push-gfx8-G0-peers-64M-r0"
    assert Test.push_to_peers(1, (0, 1), 64 * MIB).case_name() == "push-gfx-G1-peers-64M"
    listed = made_test(pull.notation())
    assert listed == pull
    assert hash(listed) == hash(pull)
    assert listed.case_name() == "pull-gfx8-G1+G2+G3+G4+G5+G6+G7-G0-64M"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "a Test of 0 Transfers: give two or more"),
        (["G1->G0->G0"], "a Test of 1 Transfers: give two or more, or a Transfer by itself"),
        (["G1->G0->G0", "G1->G0->G0"], "(G1->G0->G0 0 1M) is twice in a Test: give every Transfer once"),
        (["G0->D0->G1", "G0->D0->G2"], "(G0->D0->G1 0 1M) in a Test: use gfx, and memory at both ends"),
        (["G1->G0->G0", "G2->G0->N"], "(G2->G0->N 0 1M) in a Test: use gfx, and memory at both ends"),
        (["G1->G0->G0", "G0->G1->G1"], "in a Test: executor G0 and G1, give all Transfers the same"),
        (["G1->G0->G0", "G0->G0->G2"], "in a Test: op pull and push, give all Transfers the same"),
        (["G1->G0->G0", "(G2->G0->G0 0 2M)"], "in a Test: bytes 1048576 and 2097152, give all Transfers the same"),
        (["G1->G0->G0", "(G2->G0->G0 8 1M)"], "in a Test: subexecutors 0 and 8, give all Transfers the same"),
    ],
)
def test_what_makes_no_test_is_refused(texts: list[str], said: str) -> None:
    assert said in refusal(Test, tuple(parse_transfer(text, MIB) for text in texts))


PULL = Transfer.pull(1, 0, MIB)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Test([PULL, Transfer.pull(2, 0, MIB)]), "bad Test [<Transfer (G1->G0->G0 0 1M)>, "),
        (lambda: Test(PULL), "bad Test <Transfer (G1->G0->G0 0 1M)>: give a tuple of Transfers"),
        (lambda: Test(("G1->G0->G0", PULL)), "bad Transfer 'G1->G0->G0' in a Test: give Transfers, or write their"),
        (lambda: Test((Test((PULL, Transfer.pull(2, 0, MIB))), PULL)), "bad Transfer <Test (G1->G0->G0 0 1M) (G2->"),
        (lambda: Test.pull_from_peers(0, 3, 4), "bad gpus 3: give the indices of GPUs, such as range(8)"),
        (lambda: Test.push_to_peers(0, None, 4), "bad gpus None: give the indices of GPUs, such as range(8)"),
        (lambda: Test.push_to_peers(0, [0, "x"], 4), "bad memory 'x'"),
        (lambda: parse_transfers(7), "bad Transfer 7: write SRC->EXE->DST"),
    ],
)
def test_what_is_of_another_type_is_refused_in_one_line(make: Callable[[], object], said: str) -> None:
    assert said in refusal(make)


def test_peers_of_any_librarys_numbers() -> None:
    made = Test.pull_from_peers(np.int64(0), np.arange(3), np.int64(MIB))
    assert made == Test.pull_from_peers(0, range(3), MIB)


@pytest.mark.parametrize(
    "text", ["(G1->G0->G0) x (G2->G0->G0)", "(G1->G0->G0) G2->G0->G0", "((G1->G0->G0) (G1->G0->G0))"]
)
def test_only_brackets_side_by_side_are_several(text: str) -> None:
    assert "bad Transfer" in refusal(parse_transfers, text, MIB)


def test_sizes_and_subexecutors_serve_every_bracket_without_them() -> None:
    both = parse_transfers("(G1->G0->G0) (G2->G0->G0 8 0)", 4096, 5)
    assert [(t.subexecutors, t.nbytes) for t in both] == [(5, 4096), (8, 4096)]

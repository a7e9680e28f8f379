from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from _pytest.mark.expression import Expression
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import Case, Test, Transfer, parse_line, parse_transfer, parse_transfers, together
from pytest_transferbench.transfer.test import Direction

from ..refusals import refusal
from .strategies import cases, indices, nearly_equal, sizes, transfers, variants, whole_tests

MIB = 2**20


def made_test(text: str, nbytes: int | None = None) -> Test:
    made = together(parse_transfers(text, nbytes))
    assert isinstance(made, Test)
    return made


@given(cases)
def test_whatever_is_measured_survives_writing_and_reading(case: Test | Transfer) -> None:
    assert together(parse_transfers(case.notation())) == case


@given(cases)
def test_whatever_is_measured_can_be_written_as_a_line_and_read_back(case: Test | Transfer) -> None:
    assert together(parse_line(case.line())) == case


@given(transfers())
def test_one_transfer_is_itself(transfer: Transfer) -> None:
    assert together(parse_transfers(transfer.notation())) == transfer
    assert transfer.transfers == (transfer,)
    assert transfer.total_bytes == transfer.nbytes


@given(whole_tests)
def test_bytes_are_those_of_one_and_of_all(test: Test) -> None:
    assert test.total_bytes == sum(transfer.nbytes for transfer in test.transfers)
    assert test.nbytes == max(transfer.nbytes for transfer in test.transfers)


@given(whole_tests)
def test_what_holds_of_all_and_what_of_each(test: Test) -> None:
    assert {*test.executors} == {transfer.executor for transfer in test.transfers}
    assert test.owners == {owner for transfer in test.transfers for owner in transfer.owners}
    assert (test.op == "mixed") == (len({transfer.op for transfer in test.transfers}) > 1)
    assert test.op == "mixed" or {transfer.op for transfer in test.transfers} == {test.op}
    assert list(test.sources) == [memory for transfer in test.transfers for memory in transfer.sources]
    assert list(test.destinations) == [memory for transfer in test.transfers for memory in transfer.destinations]
    if len(test.executors) == 1:
        assert test.executor == test.transfers[0].executor
    else:
        assert "ask each Transfer for its executor" in refusal(lambda: test.executor)


@given(whole_tests, variants, whole_tests | transfers(), variants)
def test_two_cases_share_a_name_only_when_they_are_equal(
    one: Test, variant: str, other: Test | Transfer, other_variant: str
) -> None:
    same = (one, variant) == (other, other_variant)
    assert (one.case_name(variant) == other.case_name(other_variant)) == same


@given(nearly_equal())
def test_tests_of_the_same_transfers_share_a_name_only_when_they_are_equal(tests: tuple[Test, Test]) -> None:
    assert (tests[0].case_name() == tests[1].case_name()) == (tests[0] == tests[1])


def test_all_small_tests_have_names_of_their_own() -> None:
    brackets = [
        f"({source}->{executor}->{destination} {count} {size})"
        for source, executor, destination in itertools.product(["G0", "G1", "C0"], ["G0", "G1", "C0"], ["G0", "G1"])
        for count, size in ((0, "1M"), (8, "1M"), (8, "2M"))
    ]
    brackets += ["(G0G1->G0->G0 8 1M)", "(G1->G0.1->G0 8 1M)", "(G1->G0.2->G0 8 1M)", "(G0->D0->G1 0 1M)"]
    made = [made_test(f"{one}{other}") for one, other in itertools.product(brackets, repeat=2)]
    singles = [parse_transfer(text) for text in ("(G0G1->G0->G0 8 1M)", "(G1G0->G0->G0 8 1M)", *brackets[:9])]
    names = [each.case_name() for each in (*made, *singles)]
    assert len(made) > 3000
    assert len(set(names)) == len(names)


@given(whole_tests, variants)
def test_pytest_selects_a_test_by_its_whole_name(test: Test, variant: str) -> None:
    name = test.case_name(variant)

    def is_name(word: str, /, **_: object) -> bool:
        return word == name

    assert Expression.compile(name).evaluate(is_name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(G1->G0->G0 8 64M) (G2->G0->G0 8 64M)", "pull-gfx8-G1+G2-G0-64M"),
        ("(G0->G0->G1 0 4K)(G0->G0->G2 0 4K)(G0->G0->U1 0 4K)", "push-gfx-G0-G1+G2+U1-4K"),
        ("(G1->G0->G0 0 4M) (G1->G0->U0 0 4M)", "pull-gfx-G1-G0+U0-4M"),
        ("(G1->G0->G0 0 4M) (C0->G0->U0 0 4M)", "pull-gfx-G1+C0-G0+U0-4M"),
        ("(G1->G0->G0 0 4M) (C0->G0->U0 0 4M) (G2->G0->G0 0 4M)", "pull-gfx-G1+C0+G2-G0+U0+G0-4M"),
        ("(G0->G2->G1 0 4M) (G1->G2->G0 0 4M)", "relay-gfx-G0+G1-G1+G0-4M-at-G2"),
        ("(G0->G0->G1 8 4M) (G1->G1->G0 8 4M)", "push-gfx8-G0+G1-G1+G0-4M"),
        ("(G0->D0->G1 0 4M) (G0->D0->G2 0 4M)", "push-dma-G0-G1+G2-4M"),
        ("(G0G1->G2->G2 0 4M) (G0->G2->G2 0 4M)", "pull-gfx-G0G1+G0-G2-4M"),
        ("(G1->G0.2->G0 0 4M) (G2->G0.2->G0 0 4M)", "pull-gfx-G1+G2-G0-4M-at-G0.2"),
        ("(N->G0->G1 0 4M) (N->G0->G2 0 4M)", "push-gfx-N-G1+G2-4M-at-G0"),
    ],
)
def test_names(text: str, name: str) -> None:
    test = made_test(text)
    assert test.case_name() == Case(test).name == name
    assert test.case_name("r0") == f"{name}-r0"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(G1->G0->G0 0 4M) (G1->G0->G0 0 4M)", "pull-gfx-G1-G0-4M-x"),
        ("(G1->G0->G0 0 4M) (G0->G0->G1 0 4M)", "mixed-gfx-G1+G0-G0+G1-4M-x"),
        ("(G1->G0->G0 0 4M) (G0->D0->G1 0 1M)", "mixed-gfx+dma-G1+G0-G0+G1-4M-x"),
        ("(G0->G0->G1 4 1M) (G0->G0->G2 8 4M)", "push-gfx4+gfx8-G0-G1+G2-4M-x"),
        ("(G0->G0->G1 8 1M) (G0->G0->G2 8 4M)", "push-gfx8-G0-G1+G2-4M-x"),
        ("(G0->G2->G1 0 4M) (G1->G3->G0 0 4M)", "relay-gfx-G0+G1-G1+G0-4M-x"),
        ("(G1->G0.1->G0 0 4M) (G2->G0.2->G0 0 4M)", "pull-gfx-G1+G2-G0-4M-x"),
        ("(G0->G0->G1 0 4M)" * 9, "push-gfx-G0-G1-4M-x"),
        ("".join(f"(G{i}->G{i}->G{9 - i} 0 4M)" for i in range(9)), "push-gfx-G0+G1+G2+G3+G4+G5+G6+G7+G8-G9+"),
    ],
)
def test_a_hash_tells_what_a_name_leaves_open(text: str, name: str) -> None:
    test = made_test(text)
    assert test.case_name().startswith(name)
    assert re.fullmatch(r".*-x[0-9a-f]{8}", test.case_name())
    assert test.case_name("r0") == f"{test.case_name()}-r0"
    assert test.case_name() == made_test(test.notation()).case_name()


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


def test_any_transfers_make_a_test() -> None:
    made = made_test("(G0->G0->G1 8 1M) (G0->G0->G1 8 1M) (G1->D1->C0 0 64M) (C0->C0->C0 4 4) (N->G2->G2 0 1K)")
    assert (made.op, made.by, made.by_in_name) == ("mixed", "gfx+dma+cpu", "gfx8+dma+cpu4+gfx")
    assert (made.nbytes, made.total_bytes, made.subexecutors) == (64 * MIB, 66 * MIB + 1028, 0)
    assert made.end_names == ("G0+G0+G1+C0+N", "G1+G1+C0+C0+G2")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "a Test of 0 Transfers: give two or more"),
        (["G1->G0->G0"], "a Test of 1 Transfers: give two or more, or a Transfer by itself"),
    ],
)
def test_what_makes_no_test_is_refused(texts: list[str], said: str) -> None:
    assert said in refusal(Test, tuple(parse_transfer(text, MIB) for text in texts))


@given(st.lists(indices, min_size=2, unique=True), sizes, st.sampled_from(["push", "pull"]), st.booleans())
def test_all_to_all_is_every_pair_once(gpus: list[int], nbytes: int, op: Direction, local: bool) -> None:
    made = Test.all_to_all(gpus, nbytes, op, "gfx", 8, local)
    pairs = [(transfer.sources[0].index, transfer.destinations[0].index) for transfer in made.transfers]
    assert sorted(pairs) == sorted((a, b) for a in gpus for b in gpus if local or a != b)
    assert {transfer.op for transfer in made.transfers} == {op, *(["local"] if local else [])}
    assert {(transfer.nbytes, transfer.subexecutors) for transfer in made.transfers} == {(nbytes, 8)}


def test_all_to_all_has_a_name_of_its_own() -> None:
    assert Test.all_to_all(range(8), 64 * MIB, "push", "gfx", 8).case_name() == "push-gfx8-all-all-64M"
    assert Test.all_to_all(range(8), 64 * MIB, "pull").case_name() == "pull-gfx-all-all-64M"
    assert Test.all_to_all((0, 1), 64 * MIB, "push", "dma").case_name("r0") == "push-dma-all-all-64M-r0"
    assert Test.all_to_all((0, 1), 64 * MIB, memory="U").case_name() == "push-gfx-Uall-Uall-64M"
    local = [Test.all_to_all(range(3), MIB, op, local=True).case_name() for op in ("push", "pull")]
    assert [name.rpartition("-")[0] for name in local] == ["mixed-gfx-all-all-1M"] * 2
    assert len({*local}) == 2


def test_one_with_several_others_lists_them() -> None:
    assert made(Test.one_to_all(0, (1, 3), MIB, "push", "dma")) == "push-dma-G0-G1+G3-1M"
    assert made(Test.one_to_all(0, range(4), MIB, "pull", "gfx", 8)) == "pull-gfx8-G0-G1+G2+G3-1M"
    assert made(Test.all_to_one((1, 3), 0, MIB)) == "pull-gfx-G1+G3-G0-1M"
    assert made(Test.all_to_one((1, 3), 0, MIB, "push", "dma", memory="fine")) == "push-dma-F1+F3-F0-1M"
    assert Test.one_to_all(0, (1,), MIB) == Transfer.push(0, 1, MIB)
    assert Test.all_to_one((0, 1), 0, MIB) == Transfer.pull(1, 0, MIB)


def made(test: Test | Transfer) -> str:
    return test.case_name()


def test_both_ways() -> None:
    assert Test.both_ways(0, 1, MIB) == made_test("(G0->G0->G1 0 1M)(G1->G1->G0 0 1M)")
    assert Test.both_ways("U0", "U1", MIB, "pull", "dma") == made_test("(U0->D1->U1 0 1M)(U1->D0->U0 0 1M)")
    assert Test.both_ways("G0", "G1", MIB, "push", "gfx", 8).case_name() == "push-gfx8-G0+G1-G1+G0-1M"
    assert "push from C0 by gfx" in refusal(Test.both_ways, 0, "C0", MIB)


def test_peers_by_another_executor_and_in_other_memory() -> None:
    assert Test.push_to_peers(0, range(3), MIB, executor="dma").case_name() == "push-dma-G0-peers-1M"
    pull = Test.pull_from_peers(0, range(3), MIB, 4, memory="uncached")
    assert pull == made_test("(U1->G0->U0 4 1M)(U2->G0->U0 4 1M)")
    assert pull.case_name() == "pull-gfx4-Upeers-U0-1M"


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
        (lambda: Test.push_to_peers(0, [0, "x"], 4), "bad memory index 'x' after G"),
        (lambda: Test.all_to_all([0], 4), "all-to-all among G0: name two GPUs at least"),
        (lambda: Test.all_to_all([], 4), "all-to-all among no GPU: name two GPUs at least"),
        (lambda: Test.all_to_all(range(2), 4, "local"), "bad op 'local' of a Test: use push or pull"),
        (lambda: Test.all_to_all(range(2), 4, memory="C"), "bad memory 'C' of GPUs: use G or device, F or fine"),
        (lambda: Test.one_to_all(0, [0], 4), "GPU 0 has no peers"),
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

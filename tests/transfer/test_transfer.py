from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from _pytest.mark.expression import Expression
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import HOST, Executor, Memory, Transfer, parse_executor, parse_memory, parse_transfer

from ..refusals import refusal
from .strategies import indices, transfers, variants

MIB = 2**20


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("G0->G0->G0", "local"),
        ("G0->G0->F0", "local"),
        ("C0->C0->C1", "local"),
        ("G0->G0->G1", "push"),
        ("G0->D0->C0", "push"),
        ("C0->C0->G1", "push"),
        ("G1->G0->G0", "pull"),
        ("C0->D0->G0", "pull"),
        ("G1->C0->C0", "pull"),
        ("G0->G2->G1", "relay"),
        ("G0->C0->G1", "relay"),
        ("C0->G0->C0", "relay"),
        ("N->G0->G0", "local"),
        ("G0->G0->N", "local"),
        ("N->G1->G0", "push"),
        ("G1->G0->N", "pull"),
        ("G0G0->G0->F0U0", "local"),
        ("G0->G0->G0G1", "push"),
        ("G0->D0->G1G2", "push"),
        ("C0C1->C0->C0G1", "push"),
        ("G0G1->G2->G2", "pull"),
        ("G0G1->G0->G0F0", "pull"),
        ("G0G1->G0->G1", "relay"),
        ("G0G1->G0->G0G1", "relay"),
    ],
)
def test_op_follows_from_who_owns_the_ends(text: str, op: str) -> None:
    assert parse_transfer(text, MIB).op == op


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(G1->G0->G0 0 64M)", "pull-gfx-G1-G0-64M"),
        ("(G1->G0->G0 8 64M)", "pull-gfx8-G1-G0-64M"),
        ("(G0->D0->G1 0 4K)", "push-dma-G0-G1-4K"),
        ("(C0->G0->G0 0 1000)", "pull-gfx-C0-G0-1000"),
        ("(G0->G0->G0 0 4M)", "local-gfx-G0-G0-4M"),
        ("(C0->C0->G1 4 1G)", "push-cpu4-C0-G1-1G"),
        ("(G0->G2->G1 0 64M)", "relay-gfx-G0-G1-64M-at-G2"),
        ("(G0->C0->G1 0 64M)", "relay-cpu-G0-G1-64M-at-C0"),
        ("(N->G1->G0 0 64M)", "push-gfx-N-G0-64M-at-G1"),
        ("(G1->G0->N 0 64M)", "pull-gfx-G1-N-64M-at-G0"),
        ("(G0->G0->N 0 64M)", "local-gfx-G0-N-64M"),
        ("(C0->C1->C1 0 64M)", "local-cpu-C0-C1-64M-at-C1"),
        ("(C0->C0->C1 0 64M)", "local-cpu-C0-C1-64M"),
        ("(H1->C1->B0 0 64M)", "local-cpu-H1-B0-64M"),
        ("(P1->C1->C0 0 64M)", "local-cpu-P1-C0-64M-at-C1"),
        ("(U1->G0->F0 0 64M)", "pull-gfx-U1-F0-64M"),
        ("(G0G1->G2->G2 8 64M)", "pull-gfx8-G0G1-G2-64M"),
        ("(G0->D0->G1C0 0 64M)", "push-dma-G0-G1C0-64M"),
        ("(G0G1->G0->G2 0 64M)", "relay-gfx-G0G1-G2-64M-at-G0"),
        ("(G1->G0.2->G0 8 64M)", "pull-gfx8-G1-G0-64M-at-G0.2"),
        ("(G0->D0.3->G1 0 64M)", "push-dma-G0-G1-64M-at-D0.3"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert parse_transfer(text).case_name() == name
    assert parse_transfer(text).case_name("r0") == f"{name}-r0"


@given(transfers(), variants, transfers(), variants)
def test_two_cases_share_a_name_only_when_they_are_equal(
    one: Transfer, variant: str, other: Transfer, other_variant: str
) -> None:
    same = (one, variant) == (other, other_variant)
    assert (one.case_name(variant) == other.case_name(other_variant)) == same


def test_all_small_transfers_have_names_of_their_own() -> None:
    memories = [Memory(kind, index) for kind in "CGU" for index in range(3)] + [Memory("N")]
    executors = [Executor(kind, index) for kind in "CGD" for index in range(3)]
    names = []
    for source in memories:
        for executor in executors:
            for destination in memories:
                try:
                    names.append(Transfer((source,), executor, (destination,), MIB).case_name())
                except ValueError:
                    continue
    assert len(names) > 600
    assert len(set(names)) == len(names)


@given(transfers(), variants)
def test_pytest_selects_a_case_by_its_whole_name(transfer: Transfer, variant: str) -> None:
    name = transfer.case_name(variant)

    def is_name(word: str, /, **_: object) -> bool:
        return word == name

    assert Expression.compile(name).evaluate(is_name)
    assert not Expression.compile(f"not {name}").evaluate(is_name)


@pytest.mark.parametrize("variant", ["a b", "a+b", "a/b", "[x]", "ä", "at-G0", "a\nb"])
def test_a_variant_that_would_spoil_the_name_is_refused(variant: str) -> None:
    assert f"bad variant {variant!r}" in refusal(Transfer.pull(1, 0, MIB).case_name, variant)


@given(indices, indices)
def test_push_sits_with_the_source_and_pull_with_the_destination(source: int, destination: int) -> None:
    for executor, letter in (("gfx", "G"), ("dma", "D"), ("G", "G"), ("d", "D")):
        push = Transfer.push(source, f"G{destination}", MIB, executor, 3)
        pull = Transfer.pull(Memory("G", source), destination, MIB, executor)
        assert push.executor == Executor(letter, source)
        assert pull.executor == Executor(letter, destination)
        assert push.sources == pull.sources == (Memory("G", source),)
        assert push.destinations == pull.destinations == (Memory("G", destination),)
        assert (push.subexecutors, pull.subexecutors) == (3 if letter == "G" else 0, 0)
        assert {push.op, pull.op} == ({"local"} if source == destination else {"push", "pull"})


def test_host_memory_is_pushed_and_pulled_by_whoever_can_sit_there() -> None:
    assert Transfer.pull("C0", 1, MIB).notation() == "(C0->G1->G1 0 1M)"
    assert Transfer.push(1, "C0", MIB, "dma").notation() == "(G1->D1->C0 0 1M)"
    assert Transfer.push("C0", 1, MIB, "cpu").notation() == "(C0->C0->G1 0 1M)"
    assert Transfer.pull(1, "C0", MIB, "cpu").notation() == "(G1->C0->C0 0 1M)"


def test_several_ends_are_pushed_and_pulled_by_one_executor() -> None:
    assert Transfer.push(0, (1, "C0", Memory("F", 2)), MIB, "dma").notation() == "(G0->D0->G1C0F2 0 1M)"
    assert Transfer.pull("G1G2", 0, MIB).notation() == "(G1G2->G0->G0 0 1M)"
    assert Transfer.pull("G1", "G0F0U0", MIB).notation() == "(G1->G0->G0F0U0 0 1M)"


def test_who_shares_no_work_has_no_subexecutors() -> None:
    assert parse_transfer("(G0->D0->G1 8 1M)") == parse_transfer("(G0->D0->G1 0 1M)")
    assert parse_transfer("(G0->D0->G1 8 1M)").case_name() == "push-dma-G0-G1-1M"


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        ("G0->G2->G1", {0, 1, 2}),
        ("N->G1->G1", {1}),
        ("C0->G1->G1", {HOST, 1}),
        ("C0->C0->C1", {HOST}),
        ("G3F4->G1->U2", {1, 2, 3, 4}),
    ],
)
def test_who_takes_part(text: str, owners: set[int]) -> None:
    assert parse_transfer(text, MIB).owners == owners


@pytest.mark.parametrize(
    ("make", "ends", "executor", "said"),
    [
        (Transfer.push, ("C0", "G0"), "gfx", "push from C0 by gfx, which runs on GPUs: use pull or cpu"),
        (Transfer.push, ("C0", "G0"), "dma", "push from C0 by dma, which runs on GPUs: use pull or cpu"),
        (Transfer.pull, ("G0", "C0"), "gfx", "pull into C0 by gfx, which runs on GPUs: use push or cpu"),
        (Transfer.push, ("C0", "C1"), "gfx", "push from C0 by gfx, which runs on GPUs: use cpu"),
        (Transfer.push, ("P3", "G3"), "cpu", "push from P3 by cpu: only the machine knows its NUMA node; name it"),
        (Transfer.push, ("G0", "G1"), "cpu", "push from G0 by cpu, which runs on the host: use gfx or dma or batch"),
        (
            Transfer.push,
            ("G0", "C0"),
            "cpu",
            "by cpu, which runs on the host: use pull or gfx or dma or batch",
        ),
        (Transfer.push, ("N", "G0"), "gfx", "push from N: null memory is nowhere"),
        (Transfer.pull, ("G0", "N"), "gfx", "pull into N: null memory is nowhere"),
        (Transfer.push, ("G0", "G1"), "warp", "unknown executor 'warp'"),
        (Transfer.push, ("Q0", "G1"), "gfx", "bad memory 'Q0'"),
        (Transfer.push, (-1, "G1"), "gfx", "bad memory index -1"),
        (Transfer.push, ("G0G1", "G2"), "gfx", "push from G0G1: give memory of one place, where the executor can sit"),
        (Transfer.pull, ("G0", ("C0", "G0")), "gfx", "pull into C0G0: give memory of one place"),
        (Transfer.push, ((), "G0"), "gfx", "push from nothing: give memory of one place"),
        (Transfer.push, ("C0", ("G0", "C1")), "gfx", "push from C0 by gfx, which runs on GPUs: use cpu"),
    ],
)
def test_an_executor_that_cannot_sit_there_is_refused_with_what_to_use(
    make: Callable[..., Transfer], ends: tuple[str, str], executor: str, said: str
) -> None:
    assert said in refusal(make, *ends, MIB, executor)


@pytest.mark.parametrize(
    ("sources", "executor", "destinations", "nbytes", "subexecutors", "said"),
    [
        ("G0", "G0", "G1", 0, 0, "bad size 0 of G0->G0->G1"),
        ("G0", "G0", "G1", -4, 0, "bad size -4"),
        ("G0", "G0", "G1", 6, 0, "bad size 6"),
        ("G0", "G0", "G1", 64e6, 0, "bad size 64000000.0"),
        ("G0", "G0", "G1", 2**63, 0, "bad size"),
        ("G0", "G0", "G1", 4, -1, "bad subexecutors -1"),
        ("G0", "G0", "G1", 4, 10**6, "bad subexecutors 1000000"),
        ("G0", "G0", "G1", 4, 1.5, "bad subexecutors 1.5"),
        ("G0", "D2", "G1", 4, 0, "G0->D2->G1: dma has to own the source or the destination"),
        ("C0", "D0", "C0", 4, 0, "C0->D0->C0: dma has to own"),
        ("N", "D0", "G0", 4, 0, "N->D0->G0: dma needs memory at both ends; use gfx for N"),
        ("C0", "C0", "N", 4, 0, "C0->C0->N: cpu needs memory at both ends; use gfx for N"),
        ("G0", "D0", "N", 4, 0, "dma needs memory at both ends"),
        ("N", "G0", "N", 4, 0, "N->G0->N moves nothing"),
        ("G0 G1", "D0", "G1", 4, 0, "G0G1->D0->G1: dma takes exactly one source, not 2"),
        ("G1", "D0", "G0 G2", 4, 0, "G1->D0->G0G2: dma has to own all sources or all destinations"),
        ("G0", "G0", "", 4, 0, "G0->G0->: gfx takes 1 to 8 destinations, not 0"),
        ("", "C0", "C0", 4, 0, "cpu takes 1 to 8 sources, not 0"),
        (" ".join(["G0"] * 9), "G0", "G0", 4, 0, "gfx takes 1 to 8 sources, not 9"),
        ("G0", "G0", " ".join(["G0"] * 99), 4, 0, "gfx takes 1 to 8 destinations, not 99"),
        ("G0 N", "G0", "G0", 4, 0, "G0N->G0->G0: null memory (N) stands alone, not among other sources"),
        ("G0", "G0", "N N", 4, 0, "null memory (N) stands alone, not among other destinations"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    sources: str, executor: str, destinations: str, nbytes: int, subexecutors: int, said: str
) -> None:
    ends = [tuple(map(parse_memory, text.split())) for text in (sources, destinations)]
    assert said in refusal(Transfer, ends[0], parse_executor(executor), ends[1], nbytes, subexecutors)


G0, G1, BY = Memory("G", 0), Memory("G", 1), Executor("G", 0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Transfer(("G1",), BY, (G0,), 4), "bad source 'G1': give a tuple of Memory, such as (Memory('G', 1),)"),
        (lambda: Transfer([G1], BY, (G0,), 4), "bad sources [Memory(kind='G', index=1)]: give a tuple of Memory"),
        (lambda: Transfer(G1, BY, (G0,), 4), "bad sources Memory(kind='G', index=1): give a tuple of Memory"),
        (lambda: Transfer((G1,), BY, None, 4), "bad destinations None: give a tuple of Memory"),
        (lambda: Transfer((G1,), "G0", (G0,), 4), "bad executor 'G0': give an Executor, such as Executor('G', 0)"),
        (lambda: Transfer((G1,), BY, (G0,), "4"), "bad size '4' of G1->G0->G0"),
        (lambda: Transfer((G1,), BY, (G0,), True), "bad size True of G1->G0->G0"),
        (lambda: Transfer((G1,), BY, (G0,), np.float32(4)), "bad size np.float32(4.0) of G1->G0->G0"),
        (lambda: Transfer((G1,), BY, (G0,), 4, True), "bad subexecutors True of G1->G0->G0"),
        (lambda: Transfer((G1,), BY, (G0,), 4, None), "bad subexecutors None of G1->G0->G0"),
        (lambda: Transfer.pull(None, 0, 4), "bad end None: give 'G0', a Memory, or a GPU's index"),
        (lambda: Transfer.pull(1.0, 0, 4), "bad end 1.0: give 'G0', a Memory, or a GPU's index"),
        (lambda: Transfer.push(0, True, 4), "bad end True: give 'G0', a Memory, or a GPU's index"),
        (lambda: Transfer.pull(1, 0, 4, 7), "unknown executor 7: use C or cpu, G or gfx, D or dma, B or batch"),
        (lambda: Transfer.pull(1, 0, None), "bad size None of G1->G0->G0"),
        (lambda: Memory("G", "0"), "bad memory index '0' after G: use 0 to 9999"),
        (lambda: Memory("G", 1.0), "bad memory index 1.0 after G"),
        (lambda: Memory("G", True), "bad memory index True after G"),
        (lambda: Memory(["G"], 0), "bad memory letter ['G']"),
        (lambda: Executor("G", None), "bad executor index None after G"),
        (lambda: Executor("G", 0, "2"), "bad XCC index '2' after G0."),
        (lambda: Executor("D", 1, -1), "bad DMA engine index -1 after D1."),
        (lambda: Executor("C", 0, 1), "cpu has no parts to choose from, write 'C0'"),
        (lambda: parse_transfer(None), "bad Transfer None: write SRC->EXE->DST"),
        (lambda: parse_transfer("G1->G0->G0", "64M"), "bad size '64M' of G1->G0->G0"),
    ],
)
def test_what_is_of_another_type_is_refused_in_one_line(make: Callable[[], object], said: str) -> None:
    assert said in refusal(make)


def test_whole_numbers_of_any_library_are_taken() -> None:
    made = Transfer.pull(np.int64(1), np.uint8(0), np.int32(1024), "gfx", np.int16(8))
    assert made == parse_transfer("(G1->G0->G0 8 1K)")
    assert hash(made) == hash(parse_transfer("(G1->G0->G0 8 1K)"))
    numbers = [made.nbytes, made.subexecutors, made.sources[0].index, made.executor.index]
    assert [type(number) for number in numbers] == [int] * 4
    assert type(Memory("G", np.int64(3)).index) is type(Executor("G", np.int64(3)).index) is int


@pytest.mark.parametrize("letter", ["C", "G", "D"])
def test_who_owns_an_executor(letter: str) -> None:
    assert Executor(letter, 5).owner == (HOST if letter == "C" else 5)
    assert Executor(letter, 5).on == ("host" if letter == "C" else "device")
    assert str(Executor(letter, 5)) == f"{letter}5"


def test_who_owns_memory() -> None:
    assert [Memory(letter, 2).owner for letter in "CPBDKH"] == [HOST] * 6
    assert [Memory(letter, 2).owner for letter in "GFUM"] == [2, 2, 2, 2]
    assert "ask Transfer.owner_of" in refusal(lambda: Memory("N").owner)
    assert parse_transfer("N->G1->G0", 4).owner_of(Memory("N")) == 1
    assert parse_transfer("C0->G1->N", 4).owner_of(Memory("N")) == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Memory("g", 0), "bad memory letter 'g'"),
        (lambda: Memory("X", 0), "use one of C P B D K H G F U M N"),
        (lambda: Memory("G", -1), "bad memory index -1"),
        (lambda: Memory("G", 10000), "use 0 to 9999"),
        (lambda: Memory("N", 1), "write N, not N1"),
        (lambda: Executor("gfx", 0), "bad executor letter 'gfx': use one of C G D B"),
        (lambda: Executor("G", -1), "bad executor index -1"),
    ],
)
def test_a_place_that_cannot_be_is_refused(make: Callable[[], object], said: str) -> None:
    assert said in refusal(make)


@given(st.lists(transfers(), max_size=5))
def test_transfers_are_values(some: list[Transfer]) -> None:
    assert len({*some, *(parse_transfer(transfer.notation()) for transfer in some)}) == len(set(some))

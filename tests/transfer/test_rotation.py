from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import RotationPlan, parse_size, parse_transfer, rotation_budget

from ..refusals import refusal

KIB, MIB, GIB = 2**10, 2**20, 2**30
plans = st.builds(
    RotationPlan.make,
    st.integers(1, 2**30).map(lambda words: 4 * words),
    st.none() | st.integers(0, 2**36),
    memory_bytes=st.integers(0, 2**40),
    byte_offset=st.integers(0, 2**20).map(lambda words: 4 * words),
    caches=st.lists(st.none() | st.integers(0, 2**30), max_size=2),
)


def make(
    nbytes: int = 4 * MIB, budget: int | None = 256 * MIB, memory_bytes: int = 192 * GIB, **more: object
) -> RotationPlan:
    return RotationPlan.make(nbytes, budget, memory_bytes=memory_bytes, **more)  # type: ignore[arg-type] # test's own keywords


def test_four_mebibytes_with_the_default_budget_span_exactly_256_mebibytes() -> None:
    plan = make(budget=None)
    assert (plan.slices, plan.pitch, plan.span_bytes, plan.warning) == (64, 4 * MIB, 268_435_456, None)
    assert plan.describe() == "K=64 x 4M (pitch 4194304) = 256M"


def test_a_budget_is_twice_the_larger_cache() -> None:
    plan = make(budget=None, caches=[256 * MIB, 64 * MIB])
    assert (plan.budget, plan.slices) == (512 * MIB, 128)
    assert make(budget=None, caches=[None, 50 * MIB]).budget == 256 * MIB
    assert make(budget=None, caches=[None, None]).budget == 256 * MIB
    assert make(budget=8 * MIB, caches=[256 * MIB]).slices == 2


@pytest.mark.parametrize(
    ("nbytes", "budget", "caches", "rotated"),
    [
        (32 * MIB, 64 * MIB, [96 * MIB, 96 * MIB], False),
        (32 * MIB, 191 * MIB, [96 * MIB, 64 * MIB], True),  # six slices
        (16 * MIB, 176 * MIB, [96 * MIB, 64 * MIB], False),
        (256 * MIB, 1, [96 * MIB], True),  # one slice, larger than any cache
        (64 * MIB, 1, [96 * MIB], False),
        (64 * MIB, None, [256 * MIB], True),
        (256 * MIB, 0, [4 * MIB], False),
        (4 * MIB, 252 * MIB, [None, 8 * MIB], False),
        (4 * MIB, 256 * MIB, [None, 8 * MIB], True),
        (4 * MIB, 256 * MIB, [], True),
        (4 * MIB, 256 * MIB, [None, 192 * MIB], False),
    ],
)
def test_rotated_means_that_no_cache_holds_the_slices(
    nbytes: int, budget: int | None, caches: list[int | None], rotated: bool
) -> None:
    plan = make(nbytes, budget, caches=caches)
    assert plan.rotated == rotated
    assert (plan.warning is None) == (rotated or budget == 0)
    assert ("too little" in plan.describe()) == (plan.warning is not None)


def test_a_budget_that_caches_can_hold_is_said() -> None:
    assert make(32 * MIB, 64 * MIB, caches=[96 * MIB, None]).warning == (
        "rotation over 64M (2 slices of 32M) is too little: below 256M the caches of the two ends may answer reads; "
        "use --transfer-rotate=auto"
    )
    assert make(32 * MIB, None, caches=[96 * MIB], memory_bytes=160 * MIB).warning == (
        "rotation asked for 256M (8 slices of 32M) and got 3: slices may take 60 % of the device's 160M; below 192M "
        "the caches of the two ends may answer reads"
    )


def test_a_transfer_as_large_as_the_budget_is_not_copied() -> None:
    assert make(256 * MIB).slices == make(512 * MIB).slices == 1
    assert make(256 * MIB).span_bytes == 256 * MIB
    assert make(256 * MIB).prefix_doubling() == ()


@given(st.integers(1, 2**40), st.integers(0, 2**40), st.integers(0, 2**20))
def test_zero_is_exactly_the_allocation_without_rotation(nbytes: int, memory_bytes: int, words: int) -> None:
    plan = RotationPlan.make(nbytes, 0, memory_bytes=memory_bytes, byte_offset=4 * words, caches=[256 * MIB])
    assert (plan.slices, plan.pitch, plan.span_bytes, plan.warning) == (1, nbytes, nbytes, None)
    assert plan.allocation_bytes == nbytes + 4 * words
    assert "off" in plan.describe()


@given(plans)
def test_every_slice_starts_at_the_same_place_in_its_line_as_the_first(plan: RotationPlan) -> None:
    if plan.budget:
        assert plan.pitch % 256 == 0
        assert plan.nbytes <= plan.pitch < plan.nbytes + 256
    for index in {0, plan.slices // 2, plan.slices - 1}:
        assert plan.offset_of(index) % 256 == plan.byte_offset % 256
    assert plan.offset_of(plan.slices - 1) + plan.pitch == plan.allocation_bytes


def test_a_transfer_of_odd_length_is_padded() -> None:
    plan = make(4 * MIB + 4, byte_offset=12)
    assert plan.pitch == 4 * MIB + 256
    assert [plan.offset_of(index) for index in range(3)] == [12, 12 + plan.pitch, 12 + 2 * plan.pitch]
    assert plan.slices == math.ceil(256 * MIB / plan.pitch)


def test_a_tiny_transfer_does_not_give_a_slice_for_every_word() -> None:
    assert make(4).slices == 256 * MIB // 256


@given(plans, st.data())
def test_slices_fill_the_budget_or_the_memory_and_say_which(plan: RotationPlan, data: st.DataObject) -> None:
    if plan.budget == 0:
        return
    wanted = -(-plan.budget // plan.pitch)
    assert 1 <= plan.slices <= wanted
    assert (plan.warning is not None) == (plan.slices < wanted or not plan.rotated)
    if plan.warning:
        assert len(plan.warning.splitlines()) == 1
    if plan.slices < wanted:
        bounded = re.search(r"got (\d+): .* the device's (\w+)", str(plan.warning))
        assert bounded
        assert int(bounded[1]) == plan.slices
        memory_bytes = data.draw(st.just(parse_size(bounded[2])))
        if plan.slices > 1:
            assert plan.allocation_bytes <= memory_bytes * 0.6
        assert (plan.slices + 1) * plan.pitch + plan.byte_offset > memory_bytes * 0.6


@pytest.mark.parametrize(("budget", "slices"), [("4G", 1024), ("8G", 2048)])
def test_budgets_past_32_bits_work(budget: str, slices: int) -> None:
    plan = make(budget=parse_size(budget))
    assert (plan.slices, plan.warning) == (slices, None)


def test_a_budget_larger_than_the_memory_is_bounded_and_says_so() -> None:
    plan = make(budget=8 * GIB, memory_bytes=4 * GIB)
    assert plan.slices == 614
    assert plan.span_bytes <= 0.6 * 4 * GIB < plan.span_bytes + plan.pitch
    assert plan.warning == (
        "rotation asked for 8G (2048 slices of 4M) and got 614: slices may take 60 % of the device's 4G"
    )


def test_a_transfer_larger_than_the_memory_still_has_its_one_slice() -> None:
    plan = make(8 * GIB, budget=16 * GIB, memory_bytes=4 * GIB)
    assert plan.slices == 1
    assert plan.warning is not None


def test_sources_in_one_memory_share_it() -> None:
    plan = make(64 * MIB, budget=512 * MIB, memory_bytes=4 * GIB, sources=7)
    assert plan.slices == 5
    assert plan.warning == (
        "rotation asked for 512M (8 slices of 64M) and got 5: slices of 7 sources may take 60 % of the device's 4G"
    )
    assert make(64 * MIB, memory_bytes=4 * GIB, sources=7).warning is None


@given(plans)
def test_the_plan_follows_from_its_inputs_alone(plan: RotationPlan) -> None:
    again = RotationPlan.make(
        plan.nbytes, plan.budget, memory_bytes=2**62, byte_offset=plan.byte_offset, caches=[2**40]
    )
    assert again.pitch == plan.pitch
    assert again.slices >= plan.slices
    if plan.warning is None:
        assert (again.slices, again.budget) == (plan.slices, plan.budget)


@given(plans, st.integers(-10_000, 10_000), st.integers(1, 50))
def test_every_pass_reads_the_next_slice(plan: RotationPlan, iteration: int, sub_iterations: int) -> None:
    passes = [
        plan.slice_of(at, sub, sub_iterations) for at in (iteration, iteration + 1) for sub in range(sub_iterations)
    ]
    assert all(0 <= index < plan.slices for index in passes)
    assert all((earlier + 1) % plan.slices == later for earlier, later in itertools.pairwise(passes))
    assert plan.slice_of(0, 0, sub_iterations) == 0


def test_warm_ups_count_up_to_the_first_slice() -> None:
    plan = make(budget=16 * MIB)
    assert [plan.slice_of(iteration) for iteration in range(-3, 3)] == [1, 2, 3, 0, 1, 2]
    assert [plan.slice_of(-1, sub, 3) for sub in range(3)] == [1, 2, 3]


@given(st.integers(1, 3000))
def test_prefix_doubling_fills_every_slice_once_from_filled_ones(slices: int) -> None:
    plan = RotationPlan(nbytes=256, byte_offset=0, pitch=256, slices=slices, budget=256 * slices)
    copies = plan.prefix_doubling()
    assert len(copies) == math.ceil(math.log2(slices))
    filled = {0}
    for copy in copies:
        read = set(range(copy.source_slice, copy.source_slice + copy.slices))
        written = set(range(copy.destination_slice, copy.destination_slice + copy.slices))
        assert read <= filled
        assert not written & filled
        filled |= written
    assert filled == set(range(slices))


@pytest.mark.parametrize(("nbytes", "copies"), [(KIB, 18), (4 * KIB, 16), (64 * KIB, 12), (4 * MIB, 6)])
def test_preparation_takes_few_copies(nbytes: int, copies: int) -> None:
    assert len(make(nbytes).prefix_doubling()) == copies


@pytest.mark.parametrize(
    ("text", "rotates"),
    [
        ("G1->G0->G0", True),
        ("U1->D0->G0", True),
        ("G0->G0->C0", True),
        ("G0->G0->N", True),
        ("C0->G0->G0", False),
        ("C0->D0->G0", False),
        ("G0->C0->C0", False),
        ("N->G0->G0", False),
    ],
)
def test_only_gpu_memory_read_by_a_gpu_is_rotated(text: str, rotates: bool) -> None:
    transfer = parse_transfer(text, 4 * MIB)
    assert rotation_budget(transfer, 3 * MIB) == (3 * MIB if rotates else 0)
    assert rotation_budget(transfer, None) == (None if rotates else 0)
    assert rotation_budget(transfer, 0) == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: make(0), "bad size 0"),
        (lambda: make(-4), "bad size -4"),
        (lambda: make(2**63), "bad size"),
        (lambda: make(budget=-1), "bad rotation budget -1"),
        (lambda: make(budget=2**63), "bad rotation budget"),
        (lambda: make(byte_offset=-4), "bad byte offset -4"),
        (lambda: make(byte_offset=3), "bad byte offset 3"),
        (lambda: make().offset_of(64), "no slice 64: this plan has 64"),
        (lambda: make().offset_of(-1), "no slice -1"),
        (lambda: make().slice_of(0, 1, 1), "bad pass 1 of 1"),
        (lambda: make().slice_of(0, 0, 0), "bad pass 0 of 0"),
        (lambda: make().slice_of(0, -1, 2), "bad pass -1 of 2"),
    ],
)
def test_refusals(call: Callable[[], object], said: str) -> None:
    assert said in refusal(call)

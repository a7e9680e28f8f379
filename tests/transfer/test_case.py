from __future__ import annotations

import dataclasses
import enum
import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.isolation.deadlines import SEARCHED
from pytest_transferbench.node import LinkClass
from pytest_transferbench.transfer import (
    NOMINAL_GBPS,
    Case,
    Method,
    Transfer,
    copies_per_sample,
    parse_transfers,
    together,
)
from pytest_transferbench.transfer.case import candidate_subexecutors

from ..refusals import refusal

TRANSFER = Transfer.pull(1, 0, 64 * 2**20)
METHOD = Method(
    samples=25,
    copies=6,
    sub_iterations=1,
    warmups=3,
    rotate_bytes=2**28,
    rotated=True,
    slices=4,
    pitch=2**26,
    byte_offset=0,
    subexecutors=64,
    block_threads=512,
    unroll=8,
    source_kind="G",
    destination_kind="G",
    gate="kernel",
    link_class="NVLink",
)


@given(st.integers(1, 2**50), st.sampled_from(sorted(NOMINAL_GBPS)))
def test_a_sample_holds_a_millisecond_of_copies_within_bounds(nbytes: int, link_class: str) -> None:
    copies = copies_per_sample(nbytes, link_class)
    assert 4 <= copies <= 250
    milliseconds = copies * nbytes / (NOMINAL_GBPS[link_class] * 1e6)
    assert milliseconds >= 1 or copies == 250
    assert copies == 4 or (copies - 1) * nbytes < NOMINAL_GBPS[link_class] * 1e6


@given(st.integers(1, 2**50), st.sampled_from(sorted(NOMINAL_GBPS)))
def test_larger_transfers_never_take_more_copies(nbytes: int, link_class: str) -> None:
    assert copies_per_sample(2 * nbytes, link_class) <= copies_per_sample(nbytes, link_class)


@given(st.integers(1, 2**50), st.sampled_from(sorted(NOMINAL_GBPS)))
def test_on_a_virtual_clock_a_sample_is_about_two_gibibytes(nbytes: int, link_class: str) -> None:
    copies = copies_per_sample(nbytes, link_class, virtual_clock=True)
    assert 2 <= copies <= 16
    assert copies in (2, 16) or (copies - 1) * nbytes < 2**31 <= copies * nbytes


def test_every_link_class_has_a_rate_to_size_samples_by() -> None:
    assert set(NOMINAL_GBPS) == {str(link_class) for link_class in LinkClass}
    assert [copies_per_sample(size * 2**20, LinkClass.NVLINK) for size in (1, 4, 64, 256)] == [250, 96, 6, 4]


def test_copies_of_nothing_or_over_an_unknown_link_are_refused() -> None:
    assert "bad size 0" in refusal(copies_per_sample, 0, "PCIe")
    assert "unknown link class 'pigeon': use local, on-die, xGMI" in refusal(copies_per_sample, 4, "pigeon")


def test_a_case_is_named_after_its_transfer_and_variant() -> None:
    assert Case(TRANSFER).name == "pull-gfx-G1-G0-64M"
    assert Case(TRANSFER, variant="rotate0").name == "pull-gfx-G1-G0-64M-rotate0"
    assert len({Case(TRANSFER), Case(TRANSFER), Case(TRANSFER, samples=3)}) == 2


def test_a_case_is_named_after_a_kernels_shape_too() -> None:
    assert Case(TRANSFER, block_threads=512).name == "pull-gfx-G1-G0-64M-b512"
    assert Case(TRANSFER, unroll=8, variant="x", best=True).name == "pull-gfx-G1-G0-64M-u8-best-x"


@pytest.mark.parametrize("text", ["(G1->G0->G0 8 64M)", "(G0->D0->G1 0 64M)", "(G1->G0->G0) (C0->C0->C0)"])
def test_best_is_a_kernels_that_leaves_its_number_open(text: str) -> None:
    says = refusal(Case, together(parse_transfers(text, 4096)), best=True)
    assert says.endswith("is searched for where all is gfx and leaves it open (0)")


@given(st.integers(1, 4000))
def test_a_search_tries_two_numbers_in_every_doubling_and_the_most(most: int) -> None:
    tried = candidate_subexecutors(most)
    assert (tried[0], tried[-1]) == (1, most)
    assert list(tried) == sorted(set(tried))
    assert all(after <= 2 * before for before, after in itertools.pairwise(tried))
    assert len(tried) <= 2 * most.bit_length()
    assert len(tried) < SEARCHED or most > 2048


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples": 0}, "bad samples 0: use 1 or more"),
        ({"samples": 2.0}, "bad samples 2.0: use 1 or more"),
        ({"samples": True}, "bad samples True: use 1 or more"),
        ({"sub_iterations": "8"}, "bad sub_iterations '8': use 1 or more"),
        ({"warmups": None}, "bad warmups None: use 0 or more"),
        ({"byte_offset": 4.0}, "bad byte_offset 4.0: use 0 or more"),
        ({"rotate_bytes": "4M"}, "bad rotate_bytes '4M': use 0 (off) or more"),
        ({"rotate_bytes": True}, "bad rotate_bytes True: use 0 (off) or more"),
        ({"variant": None}, "bad variant None"),
        ({"sub_iterations": 0}, "bad sub_iterations 0: use 1 or more"),
        ({"warmups": -1}, "bad warmups -1: use 0 or more"),
        ({"byte_offset": -4}, "bad byte_offset -4"),
        ({"byte_offset": 2}, "bad byte_offset 2: use a multiple of 4"),
        ({"rotate_bytes": -1}, "bad rotate_bytes -1"),
        ({"validate": "never"}, "bad validate 'never': use end, each or off"),
        ({"floor_gbps": 0.0}, "bad floor_gbps 0.0"),
        ({"floor_gbps": float("nan")}, "bad floor_gbps nan"),
        ({"floor_gbps": "fast"}, "bad floor_gbps 'fast'"),
        ({"warm_cold_limit": (1, 2)}, "bad warm_cold_limit"),
        ({"warm_cold_limit": float("inf")}, "bad warm_cold_limit inf"),
        ({"variant": "a b"}, "bad variant 'a b'"),
        ({"block_threads": 32}, "bad block_threads 32: use a multiple of 64 up to 1024, or 0 (chosen)"),
        ({"block_threads": 2048}, "bad block_threads 2048"),
        ({"block_threads": -64}, "bad block_threads -64: use 0 or more"),
        ({"unroll": 33}, "bad unroll 33: use 1 to 32, or 0 (chosen)"),
        ({"unroll": "8"}, "bad unroll '8': use 0 or more"),
    ],
)
def test_a_case_that_cannot_be_measured_is_refused_in_one_line(change: dict[str, Any], said: str) -> None:
    assert said in refusal(Case, TRANSFER, **change)


def test_whole_numbers_of_any_library_are_taken() -> None:
    made = Case(TRANSFER, samples=np.int64(3), rotate_bytes=np.uint32(4096), byte_offset=np.int8(4))
    assert made == Case(TRANSFER, samples=3, rotate_bytes=4096, byte_offset=4)
    assert type(made.samples) is type(made.rotate_bytes) is int


def test_the_digest_never_changes_by_itself() -> None:
    assert METHOD.digest() == "c92689b29aa3"
    program = (
        f"from pytest_transferbench.transfer import Method; print(Method.from_json({METHOD.to_json()!r}).digest())"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        child = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert child.stdout.strip() == METHOD.digest()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Method)])
def test_every_field_changes_the_digest_and_is_named(name: str) -> None:
    old = getattr(METHOD, name)
    new: Any = {"gate": "none", "rotated": False}.get(name, f"{old}x" if isinstance(old, str) else old + 1)
    other = dataclasses.replace(METHOD, **{name: new})
    assert other.digest() != METHOD.digest()
    assert METHOD.differences(other) == (f"{name} {old} -> {new}",)
    assert other.differences(METHOD) == (f"{name} {new} -> {old}",)


def test_equal_methods_do_not_differ_however_their_values_are_typed() -> None:
    enum_typed = dataclasses.replace(METHOD, link_class=LinkClass.NVLINK)
    assert METHOD.differences(enum_typed) == ()
    assert enum_typed.digest() == METHOD.digest()
    assert not any(isinstance(value, enum.Enum) for value in enum_typed.to_json().values())
    assert Method.from_json(enum_typed.to_json()) == METHOD

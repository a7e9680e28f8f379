from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import MAX_BYTES, format_size, parse_size, parse_sizes

from ..refusals import refusal, refuses

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@given(st.integers(0, MAX_BYTES))
def test_every_byte_count_survives_writing_and_reading(nbytes: int) -> None:
    assert parse_size(format_size(nbytes)) == nbytes


@given(st.integers(1, 10**6), st.sampled_from("KMG"))
def test_a_size_is_written_with_the_largest_suffix_that_is_exact(count: int, suffix: str) -> None:
    text = format_size(count * UNITS[suffix])
    digits = text.rstrip("KMG")
    assert int(digits) % 1024 or text.endswith("G")
    assert int(digits) * UNITS[text[len(digits) :]] == count * UNITS[suffix]


@given(st.integers(0, 2**33 - 1), st.sampled_from(["", "K", "M", "G", "k", "m", "g"]))
def test_suffixes_are_binary_in_either_case(count: int, suffix: str) -> None:
    assert parse_size(f"{count}{suffix}") == count * UNITS[suffix.upper()]


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (64 * 2**20, "64M"),
        (4096, "4K"),
        (1000, "1000"),
        (1536, "1536"),
        (3 * 2**29, "1536M"),
        (2**43, "8192G"),
        (0, "0"),
    ],
)
def test_sizes_as_they_stand_in_names(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


def test_blanks_around_a_size_and_leading_zeros_mean_nothing() -> None:
    assert parse_size(" 4M ") == parse_size("004m") == 4 * 2**20


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+4M",
        "1e9",
        "12Q",
        "4Q",
        "4 M",
        "4MB",
        "4MiB",
        "M",
        "1.5M",
        "0x10",
        "4M,8M",
        "8M..16M",
        "٤M",
        "4_0",
        "K4",
    ],
)
def test_what_is_no_size_is_refused_by_name_in_one_line(text: str) -> None:
    assert f"bad size {text!r}" in refusal(parse_size, text)


@pytest.mark.parametrize(
    "text", ["99999999999G", "8589934592G", "9223372036854775808", "1" + "0" * 5000, "9" * 25 + "K"]
)
def test_what_does_not_fit_63_bits_is_refused_in_one_short_line(text: str) -> None:
    assert "too large" in refusal(parse_size, text)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("9223372036854775807", MAX_BYTES), ("8589934591G", MAX_BYTES + 1 - 2**30)]
)
def test_the_largest_sizes_fit(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    ("text", "nbytes"), [("2G", 2**31), ("3G", 3 * 2**30), ("4G", 2**32), ("5G", 5 * 2**30), ("8G", 2**33)]
)
def test_sizes_past_32_bits_do_not_wrap(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@given(st.text(alphabet="0123456789KMGkmgQe+-. _", max_size=12))
def test_a_text_is_a_size_or_a_one_line_refusal(text: str) -> None:
    if not refuses(parse_size, text):
        nbytes = parse_size(text)
        assert 0 <= nbytes <= MAX_BYTES
        assert parse_size(format_size(nbytes)) == nbytes


def test_a_negative_count_has_no_text() -> None:
    assert "not negative" in refusal(format_size, -4)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4M", ["4M"]),
        ("1M,4M", ["1M", "4M"]),
        ("4M, 1M", ["4M", "1M"]),
        ("8M..512M", ["8M", "16M", "32M", "64M", "128M", "256M", "512M"]),
        ("1K..512M:4", ["1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M"]),
        ("8M..20M", ["8M", "16M"]),
        ("4M..4M", ["4M"]),
        ("1M..4M,64M", ["1M", "2M", "4M", "64M"]),
    ],
)
def test_lists_and_ranges(text: str, sizes: list[str]) -> None:
    assert [format_size(size) for size in parse_sizes(text)] == sizes


@given(st.integers(1, 2**40), st.integers(1, 2**40), st.integers(2, 1000))
def test_a_range_multiplies_up_to_its_end_and_not_past_it(first: int, second: int, factor: int) -> None:
    start, end = sorted((4 * first, 4 * second))
    sizes = parse_sizes(f"{start}..{end}:{factor}")
    assert sizes[0] == start
    assert sizes[-1] <= end < sizes[-1] * factor
    assert all(later == earlier * factor for earlier, later in itertools.pairwise(sizes))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("512M..8M", "'512M..8M': its end is below its start"),
        ("1K..1M:1", "bad factor 1"),
        ("1K..1M:0", "bad factor 0"),
        ("1K..1M:-2", "bad factor '-2'"),
        ("1K..1M:2.5", "bad factor '2.5'"),
        ("1K..1M:", "bad factor ''"),
        ("1K..", "bad size ''"),
        ("..1M", "bad size ''"),
        ("1K..4K..8K", "bad size '4K..8K'"),
        ("4Q", "bad size '4Q'"),
        ("", "bad size ''"),
        ("1M,", "bad size ''"),
        ("1M,1024K", "size 1M comes up twice"),
        ("1M..8M,4M", "size 4M comes up twice"),
        ("0", "bad size '0'"),
        ("0..4M", "bad size '0'"),
        ("1M:4", "bad size '1M:4'"),
        ("99999999999G", "too large"),
        ("-1", "bad size '-1'"),
    ],
)
def test_refused_lists_name_the_part_that_is_wrong(text: str, said: str) -> None:
    assert said in refusal(parse_sizes, text)

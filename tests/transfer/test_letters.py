from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import EXECUTORS, MEMORIES, ExecutorKind, MemoryKind, executor_kind, memory_kind

from ..refusals import refusal


@pytest.mark.parametrize("row", EXECUTORS, ids=lambda row: row.word)
def test_an_executor_is_found_by_letter_and_word_in_either_case(row: ExecutorKind) -> None:
    for name in (row.letter, row.word):
        assert executor_kind(name) is executor_kind(name.lower()) is executor_kind(name.upper()) is row


@pytest.mark.parametrize("row", MEMORIES, ids=lambda row: row.word)
def test_a_memory_kind_is_found_by_letter_and_word_in_either_case(row: MemoryKind) -> None:
    for name in (row.letter, row.word):
        assert memory_kind(name) is memory_kind(name.lower()) is memory_kind(name.upper()) is row


@pytest.mark.parametrize("table", [EXECUTORS, MEMORIES], ids=["executors", "memories"])
def test_no_two_rows_share_a_spelling(table: tuple[ExecutorKind, ...] | tuple[MemoryKind, ...]) -> None:
    spellings = [name.casefold() for row in table for name in (row.letter, row.word)]
    assert len(set(spellings)) == len(spellings)


def test_what_each_executor_may_do() -> None:
    assert {
        row.letter: (row.on, row.relays, row.reaches_null, row.shares_work, row.sub_index) for row in EXECUTORS
    } == {
        "C": ("host", True, False, True, ""),
        "G": ("device", True, True, True, "XCC"),
        "D": ("device", False, False, False, "DMA engine"),
        "B": ("device", False, False, True, ""),
    }
    assert {row.letter: (row.many_sources, row.many_destinations) for row in EXECUTORS} == {
        "C": (True, True),
        "G": (True, True),
        "D": (False, True),
        "B": (False, True),
    }


def test_where_each_memory_kind_lies_in_the_order_of_transferbench() -> None:
    lies = {on: "".join(row.letter for row in MEMORIES if row.on == on) for on in ("host", "device", "none")}
    assert "".join(row.letter for row in MEMORIES) == "CPBDKHGFUMN"
    assert lies == {"host": "CPBDKH", "device": "GFUM", "none": "N"}
    assert "".join(row.letter for row in MEMORIES if row.by_gpu) == "P"
    assert "".join(row.letter for row in MEMORIES if not row.pinned) == "HM"
    assert "".join(row.letter for row in MEMORIES if row.amd_only) == "BDKFU"


@given(st.text(max_size=6))
def test_any_other_name_is_refused_in_one_line_listing_all_there_are(name: str) -> None:
    for find, what, table in ((executor_kind, "executor", EXECUTORS), (memory_kind, "memory kind", MEMORIES)):
        if name.casefold() in {spelling.casefold() for row in table for spelling in (row.letter, row.word)}:
            continue
        message = refusal(find, name)
        assert f"unknown {what} {name!r}" in message
        assert all(f"{row.letter} or {row.word}" in message for row in table)

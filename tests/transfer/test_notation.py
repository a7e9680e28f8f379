from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import (
    Executor,
    Memory,
    Transfer,
    executor_kind,
    format_size,
    memory_kind,
    parse_memory,
    parse_transfer,
)

from ..refusals import refusal, refuses
from .strategies import transfers

PULL = Transfer((Memory("G", 1),), Executor("G", 0), (Memory("G", 0),), 64 * 2**20)


@given(transfers())
def test_a_transfer_survives_writing_and_reading(transfer: Transfer) -> None:
    assert parse_transfer(transfer.notation()) == transfer


@given(transfers(), st.booleans(), st.booleans(), st.sampled_from(["->", " -> ", " ", "  "]), st.data())
def test_every_spelling_reads_alike(
    transfer: Transfer, words: bool, brackets: bool, arrow: str, data: st.DataObject
) -> None:
    def spell(name: str, index: str) -> str:
        return data.draw(st.sampled_from([name, name.lower(), name.upper(), name.title()])) + index

    parts = []
    for place in (transfer.sources[0], transfer.executor, transfer.destinations[0]):
        row = executor_kind(place.kind) if isinstance(place, Executor) else memory_kind(place.kind)
        parts.append(spell(row.word if words else row.letter, str(place)[1:]))
    text = f"{arrow.join(parts)} {transfer.subexecutors} {format_size(transfer.nbytes)}"
    assert parse_transfer(f" ({text}) " if brackets else text) == transfer


@pytest.mark.parametrize(
    "text",
    [
        "G1->G0->G0",
        "G1 G0 G0",
        "(G1 G0 G0)",
        "g1->gfx0->g0",
        "device1->GFX0->Device0",
        "G1 G0 G0 0 64M",
        "(G1->G0->G0 0 0)",
    ],
)
def test_the_arguments_serve_where_the_text_says_nothing(text: str) -> None:
    assert parse_transfer(text, 64 * 2**20) == PULL


def test_what_the_text_says_wins() -> None:
    assert parse_transfer("(G1 G0 G0 8 64M)", 4096, 2) == Transfer(
        PULL.sources, PULL.executor, PULL.destinations, PULL.nbytes, 8
    )
    assert parse_transfer("G1 G0 G0", PULL.nbytes, 2).subexecutors == 2


def test_the_index_of_null_memory_means_nothing() -> None:
    assert parse_memory("N7") == parse_memory("n") == parse_memory("null3") == Memory("N")


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("", "''"),
        ("()", "'()'"),
        ("G1->G0", "'G1->G0'"),
        ("G1->G0->G0 8", "'G1->G0->G0 8'"),
        ("G1->G0->G0 8 64M 3", "'G1->G0->G0 8 64M 3'"),
        ("(G1->G0->G0", "'(G1->G0->G0'"),
        ("G1->G0->G0)", "'G1->G0->G0)'"),
        ("((G1->G0->G0))", "'((G1->G0->G0))'"),
        ("(G1->G0->G0) 8 64M", "'(G1->G0->G0) 8 64M'"),
        ("X1->G0->G0", "'X1'"),
        ("G1->X0->G0", "'X0'"),
        ("G1->N0->G0", "'N0'"),
        ("G1->G0->warp0", "'warp0'"),
        ("G->G0->G0", "'G'"),
        ("G1->gfx->G0", "'gfx'"),
        ("G1->G0->0", "'0'"),
        ("G1->G0->G-1", "'G-1'"),
        ("G1->G0->G1.5", "'G1.5'"),
        ("G1->G0->G99999", "'G99999'"),
        ("G1->G0->G\N{ARABIC-INDIC DIGIT ZERO}", "'G\N{ARABIC-INDIC DIGIT ZERO}'"),
        ("G1>G0>G0", "'G1>G0>G0'"),
        ("G1G2->G0->G0", "'G1G2'"),
        ("G1->G0->G0 x 64M", "'x'"),
        ("G1->G0->G0 -1 64M", "'-1'"),
        ("G1->G0->G0 1.5 64M", "bad subexecutors '1.5'"),
        ("G1->G0->G0 1000000 64M", "bad subexecutors '1000000'"),
        ("G1->G0->G0 8 64Q", "'64Q'"),
        ("G1->G0->G0 8 -64M", "'-64M'"),
        ("G1->G0->G0 8 99999999999G", "'99999999999G'"),
    ],
)
def test_a_malformed_transfer_is_refused_in_one_line_naming_the_token(text: str, token: str) -> None:
    assert token in refusal(parse_transfer, text, 4096)


@pytest.mark.parametrize("text", ["1 8 (G1->G0->G0)", "-1 (G1->G0->G0 8 64M)", "(G1->G0->G0", "((G1->G0->G0))"])
def test_brackets_go_around_all_or_nothing(text: str) -> None:
    # The first two are whole lines of TransferBench's, whose brackets do match.
    assert "one pair of brackets, if any, goes around all of it" in refusal(parse_transfer, text)


@pytest.mark.parametrize("text", ["G1->G0->G0", "(G1->G0->G0 8 0)"])
def test_a_size_has_to_come_from_somewhere(text: str) -> None:
    assert f"no bytes in Transfer {text!r}" in refusal(parse_transfer, text)


@given(st.text(alphabet="GCDNgfxdma019->() MKQ\n", max_size=30))
def test_any_text_is_a_transfer_or_a_one_line_refusal(text: str) -> None:
    if not refuses(parse_transfer, text, 4096):
        transfer = parse_transfer(text, 4096)
        assert parse_transfer(transfer.notation()) == transfer

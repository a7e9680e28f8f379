from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import Places, Test, Transfer, parse_config

from ..refusals import refusal
from .strategies import cases

MIB = 2**20


@given(st.lists(cases, min_size=1, max_size=6), st.data())
def test_a_file_of_lines_written_reads_back(some: list[Test | Transfer], data: st.DataObject) -> None:
    between = st.sampled_from(["", "\n", "\r\n", "# note\n", "  # 1 8 (G0->G0->G1)\n"])
    text = "\n".join(f"{data.draw(between)}{case.line()}" for case in some)
    assert parse_config(text, "moves.cfg", (MIB,)).tests == tuple(dict.fromkeys(some))


def test_a_line_that_names_its_bytes_is_there_once_and_another_at_every_size() -> None:
    config = parse_config("1 8 (G0->G0->G1)\n-2 (G0 G0 G1 8 0)(G1 G1 G0 8 1M)\n-1 (G0 G0 G1 4 4K)", "m", (4 * MIB, MIB))
    assert [test.case_name().partition("-x")[0] for test in config.tests] == [
        "push-gfx8-G0-G1-4M",
        "push-gfx8-G0-G1-1M",
        "push-gfx8-G0+G1-G1+G0-4M",
        "push-gfx8-G0+G1-G1+G0-1M",
        "push-gfx4-G0-G1-4K",
    ]


def test_comments_that_are_echoed_and_lines_that_are_repeated() -> None:
    text = "## Both ways\n2 8 (G0->G0->G1) (G1->G1->G0)\n# quiet\n ## Again \n-1 (G0 G0 G1 8 1M)\n\n1 8 G0 G0 G1"
    text = f"\N{BYTE ORDER MARK}{text}"
    config = parse_config(text, "moves.cfg", (MIB,))
    assert len(config.tests) == 2
    assert config.notes == (
        "moves.cfg:1: ## Both ways",
        "moves.cfg:4: ## Again",
        "moves.cfg:7: push-gfx8-G0-G1-1M is in line 5 already, and run once",
    )


def test_what_transferbench_writes_is_read() -> None:
    dumped = "-2 (R0G0->R0G0->R0G1 8 67108864)(R0G1->R0G1->R0G0 8 67108864)\n-1 (R0G0->R0D0->R0C0 1 1048576)\n"
    swept = "# Test 1\n-1 (G0->G0->G1 4 268435456)\n# Test 2\n-2 (C0->C0->G0 4 268435456) (G0->D0->G1 4 4)\n"
    names = [[test.case_name() for test in parse_config(text, "dump.cfg", (MIB,)).tests] for text in (dumped, swept)]
    assert names[0] == ["push-gfx8-G0+G1-G1+G0-64M", "push-dma-G0-C0-1M"]
    assert names[1][0] == "push-gfx4-G0-G1-256M"
    assert names[1][1].startswith("push-cpu4+dma-C0+G0-G0+G1-256M-x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# ok\n\n1 8 (G0->G0->Q1)", "moves.cfg:3: bad memory 'Q1': unknown memory kind 'Q'"),
        ("1 8 (G0->G0->G1)\nG0->G0->G1", "moves.cfg:2: bad line 'G0->G0->G1': it begins with its number of Transfers"),
        ("1 8 (G*->C0->C0)", "moves.cfg:1: bad Transfer '1 8 (G*->C0->C0)': it names none on this machine"),
        ("-1 (G0 G0 G1 8 3)", "moves.cfg:1: bad size 3 of G0->G0->G1"),
        ("", "moves.cfg: it has no line with Transfers"),
        ("# 1 8 (G0->G0->G1)\n\n", "moves.cfg: it has no line with Transfers"),
    ],
)
def test_a_refusal_begins_with_the_line(text: str, said: str) -> None:
    assert refusal(parse_config, text, "moves.cfg", (MIB,), Places(gpus=())).startswith(said)

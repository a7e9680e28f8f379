"""What a healthy GPU reaches: published figures, each with source and date, and else a share of the raw rate."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import pytest

import pytest_transferbench.suites
from pytest_transferbench.emulator import node_models
from pytest_transferbench.judge.published import CEILING_SHARE, Floor, Reference, floor_for, read_references
from pytest_transferbench.transfer import Transfer, parse_transfer
from tests.plugin.fake_machine import FakeMachine
from tests.refusals import refusal

SHIPPED = Path(pytest_transferbench.suites.__file__).with_name("healthcheck.toml").read_text(encoding="utf-8")
NODE = FakeMachine().node()
REFERENCE = Reference("gfx942", 304, "", "push", "G->G->G", 40.0, 64 << 20, "a paper", "2026-11-30")


def floor(text: str, *references: Reference, **node: Any) -> Floor | None:
    transfer = parse_transfer(text)
    assert isinstance(transfer, Transfer)
    return floor_for(transfer, dataclasses.replace(NODE, **node), references)


def test_a_published_figure_comes_before_a_share_of_the_ceiling() -> None:
    assert floor("(G0->G0->G1 0 64M)", REFERENCE) == Floor(
        pytest.approx(38.8), "0.97 x 40.0 GB/s: a paper, read 2026-11-30"
    )
    assert floor("(G0->G0->G1 0 64M)") == Floor(200.0, "0.5 x 400.0 GB/s: xGMI, a fake table")
    assert floor("(G0->G0->G0 0 64M)") == Floor(
        CEILING_SHARE * 2650, "0.5 x 2650.0 GB/s: GPU 0's memory, 5300.0 GB/s for reads and writes together"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"arch": "gfx950"},
        {"compute_units": 64},
        {"name": "H200"},
        {"op": "pull"},
        {"transfer": "G->D->G"},
        {"from_bytes": 128 << 20},
    ],
)
def test_what_a_figure_is_not_about_is_held_against_the_ceiling(change: dict[str, Any]) -> None:
    found = floor("(G0->G0->G1 0 64M)", dataclasses.replace(REFERENCE, **change))
    assert found is not None
    assert found.source.startswith("0.5 x 400.0 GB/s")


def test_a_name_is_part_of_the_gpus() -> None:
    found = floor("(G0->G0->G1 0 64M)", dataclasses.replace(REFERENCE, name="Fake"))
    assert found is not None
    assert found.gbps == pytest.approx(38.8)


def test_nothing_is_held_against_what_nobody_knows_or_against_a_short_transfer() -> None:
    assert floor("(G0->G0->G1 0 64M)", links=()) is None
    assert floor("(G0->G0->G1 0 1M)") is None
    assert floor("(C0->C0->C0 0 64M)", REFERENCE) is None


def test_every_shipped_figure_has_a_source_and_a_date() -> None:
    references = read_references(SHIPPED)
    assert len(references) == SHIPPED.count("[[reference]]") >= 10
    for reference in references:
        assert datetime.date.fromisoformat(reference.read) <= datetime.date.fromisoformat("2026-12-31")
        assert len(reference.source) > 20
    about = [(r.arch, r.compute_units, r.name, r.op, r.transfer) for r in references]
    assert len(set(about)) == len(about), "two figures of one thing: only the first would count"
    assert {"mi300x-8", "mi355x-8", "mi210-pcie-2"} <= set(node_models())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[reference]]\narch = "x"', "reference 1: "),
        (
            SHIPPED.replace("gbps = 50\n", "gbps = -1\n", 1),
            "reference 1: it needs gbps above 0, a source, and the date",
        ),
        (SHIPPED.replace("read = 2026-11-30", "", 1), "reference 1: it needs gbps above 0, a source, and the date"),
        (SHIPPED.replace("compute_units", "units", 1), "reference 1: "),
        (SHIPPED.replace('"64M"', '"64Q"', 1), "bad size '64Q'"),
    ],
)
def test_a_table_that_is_none_is_refused(text: str, says: str) -> None:
    assert refusal(read_references, text).startswith(says)

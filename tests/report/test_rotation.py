"""The rotation study: off and on in one row, and nothing of it twice."""

from __future__ import annotations

from typing import Any

from pytest_transferbench.measurement import Finding, Measurement
from pytest_transferbench.report import transport
from pytest_transferbench.report.rotation import Study
from tests.judge.measurements import measured
from tests.report.test_terminal import results

OFF = {"rotate_bytes": 0, "slices": 1, "rotated": False}
TOO_LITTLE = {"rotate_bytes": 1, "slices": 1, "rotated": False}
IMPOSSIBLE = (Finding("IMPOSSIBLE", "above the link", True),)


def off(text: str, cold: float, warm: float, steady: float, **fields: Any) -> Measurement:
    gbps = {"cold": cold, "warm": warm, "steady": steady}
    return measured(text, gbps=gbps, method=OFF, judged=False, **fields)


def study(*measurements: Measurement) -> Study:
    return Study(map(transport.Record, transport.carry(measurements)))


def test_a_transfer_measured_both_ways_is_one_row() -> None:
    texts = ["(G1->G0->G0 0 64M)", "(G1->G0->G0 0 8M)"]
    made = [off(texts[0], 925, 3226, 4763, verdicts=IMPOSSIBLE), off(texts[1], 256, 637, 640), *map(measured, texts)]
    assert list(study(*made).lines()) == [
        "pull-gfx-G1-G0 (NVLink), GB/s without and with source rotation (w/c is warm over cold)",
        "             off                              on",
        "  size      cold    warm   w/c  steady      cold    warm   w/c  steady",
        "    8M     256.0   637.0  2.49   640.0     354.0   357.0  1.01   371.2",
        "   64M     925.0  3226.0  3.49  4763.0     354.0   357.0  1.01   371.2  off IMPOSSIBLE",
        "",
    ]


def test_what_was_not_measured_both_ways_has_no_row() -> None:
    assert list(study(measured(), off("(G1->G0->G0 0 8M)", 1, 1, 1)).lines()) == []
    passes = measured(method={"sub_iterations": 64})
    assert list(study(passes, off("(G1->G0->G0 0 64M)", 1, 1, 1)).lines()) == []


def test_what_caches_can_hold_is_neither_on_nor_off() -> None:
    too_little = measured(method=TOO_LITTLE)
    assert list(study(too_little, off("(G1->G0->G0 0 64M)", 1, 1, 1)).lines()) == []
    assert list(study(too_little, measured()).lines()) == []


def test_a_figure_that_means_nothing_is_a_dash() -> None:
    corrupt = measured(verdicts=(Finding("CORRUPT", "3 words wrong", True),))
    rows = list(study(corrupt, off("(G1->G0->G0 0 64M)", 925, 3226, 4763)).lines())
    assert rows[3] == "   64M     925.0  3226.0  3.49  4763.0         -       -     -       -  on CORRUPT"


def test_the_summary_shows_a_row_once() -> None:
    lines = results(measured(), off("(G1->G0->G0 0 64M)", 925, 3226, 4763), measured("(G1->G0->G0 0 1M)")).lines(0)
    assert sum("925.0" in line for line in lines) == 1
    assert not any(line.startswith("not judged") for line in lines)
    assert any(line.startswith("pull gfx 1M") for line in lines)
    assert not any(line.startswith("pull gfx 64M") for line in lines)

"""The rotation study: off and on in one row, and nothing of it twice."""

from __future__ import annotations

import dataclasses
from typing import Any

from pytest_transferbench.measurement import Finding, Measurement
from pytest_transferbench.report import transport
from pytest_transferbench.report.rotation import Study
from tests.judge.measurements import measured
from tests.report.test_terminal import results

OFF = {"rotate_bytes": 0, "slices": 1, "rotated": False}
TOO_LITTLE = {"rotate_bytes": 1, "slices": 1, "rotated": False}
TEXT = "(G1->G0->G0 0 64M)"
IMPOSSIBLE = (Finding("IMPOSSIBLE", "above the link", True),)


def off(text: str, cold: float, warm: float, steady: float, **fields: Any) -> Measurement:
    gbps = {"cold": cold, "warm": warm, "steady": steady}
    return measured(text, gbps=gbps, method=OFF, judged=False, **fields)


def counted(received: int, sent: int = 0) -> dict[str, Any]:
    """What the links' counters saw of 1000 bytes claimed."""
    return {"link_bytes": {"received": received, "sent": sent, "claimed": 1000}}


def study(*measurements: Measurement) -> Study:
    return Study(map(transport.Record, transport.carry(measurements)))


def test_a_transfer_measured_both_ways_is_one_row() -> None:
    texts = ["(G1->G0->G0 0 64M)", "(G1->G0->G0 0 8M)"]
    made = [off(texts[0], 925, 3226, 4763, verdicts=IMPOSSIBLE), off(texts[1], 256, 637, 640), *map(measured, texts)]
    assert list(study(*made).lines()) == [
        "pull-gfx-G1-G0 (NVLink), GB/s (w/c: warm over cold)",
        "                 rotation off                    rotation on",
        "  size      cold    warm   w/c  steady      cold    warm   w/c  steady",
        "    8M     256.0   637.0  2.49   640.0     354.0   357.0  1.01   371.2",
        "   64M     925.0  3226.0  3.49  4763.0     354.0   357.0  1.01   371.2  off IMPOSSIBLE",
        "",
    ]


def test_a_table_fits_a_narrow_terminal() -> None:
    passes = {"sub_iterations": 64}
    made = [off(TEXT, 9252.0, 3226.0, 47630.0, link_class="on-die"), measured(link_class="on-die")]
    made = [dataclasses.replace(each, method={**each.method, **passes}) for each in made]
    lines = list(study(*made).lines())
    assert "64 passes in one launch" in lines[0]
    assert max(map(len, lines)) <= 80


def test_controls_are_explained_below_the_tables() -> None:
    def control(text: str, cache_bytes: int | None) -> Measurement:
        return off(text, 925, 3226, 4763, control=True, context={"last_level_cache_bytes": cache_bytes})

    other = "(G0->G1->G1 0 64M)"

    def said(caches: str) -> str:
        where = f"where a cache ({caches} here) answers what is read again"
        return f"off: 2 controls, not judged; they are to be inflated {where}"

    for caches, here in (((96, 96), "96M"), ((96, 50), "50M and 96M"), ((96, None), "96M")):
        offs = [control(text, mib and mib << 20) for text, mib in zip((TEXT, other), caches, strict=True)]
        assert list(study(*offs, measured(), measured(other)).lines())[-2] == said(here)
    offs = [control(TEXT, None), control(other, None)]
    assert list(study(*offs, measured(), measured(other)).lines())[-2] == said("of unknown size")


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


def test_a_row_says_what_the_links_saw_of_both() -> None:
    seen = " ".join(study(off(TEXT, 1, 1, 1, context=counted(149)), measured(context=counted(1002))).lines())
    assert "371.2  links received off 14.9 %, on 100.2 % of the bytes claimed" in seen
    push = "(G0->G0->G1 0 64M)"
    made = off(push, 1, 1, 1, context=counted(0, 1000), verdicts=IMPOSSIBLE), measured(push, context=counted(0, 999))
    assert "  off IMPOSSIBLE; links sent off 100.0 %, on 99.9 % of the bytes claimed" in " ".join(study(*made).lines())


def test_a_row_says_what_only_one_of_both_has_seen_and_nothing_of_ways_without_links() -> None:
    rows = list(study(off(TEXT, 1, 1, 1), measured(context=counted(1000))).lines())
    assert rows[3].endswith("  links received on 100.0 % of the bytes claimed")
    local = [off(TEXT, 1, 1, 1, context=counted(0), link_class="local"), measured(link_class="local")]
    assert "links" not in " ".join(study(*local).lines())
    idle = {"link_bytes": {"received": 0, "sent": 0, "claimed": 0}}
    assert "links" not in " ".join(study(off(TEXT, 1, 1, 1, context=idle), measured(context=idle)).lines())


def test_details_are_those_of_controls_too() -> None:
    made = results(measured(), off(TEXT, 925, 3226, 4763, context=counted(149)))
    (line,) = [line for line in made.lines(1) if line.startswith("not judged: ")]
    assert "no rotation" in line
    assert "links received 14.9 % of the bytes claimed" in line


def test_a_transfer_measured_twice_the_same_way_has_a_row_each() -> None:
    key = "s/pull-gfx-G1-G0-64M-"
    made = [off(TEXT, 900, 900, gbps, key=key + name) for name, gbps in (("a", 901), ("b", 902))]
    made += [measured(TEXT, key=key + name, gbps={"steady": gbps}) for name, gbps in (("c", 301), ("d", 302))]
    rows = list(study(*made).lines())[3:5]
    assert [row.split(maxsplit=9)[4:] for row in rows] == [
        ["901.0", "-", "-", "-", "301.0", f"{key}a and {key}c".replace("s/", "")],
        ["902.0", "-", "-", "-", "302.0", f"{key}b and {key}d".replace("s/", "")],
    ]


def test_what_was_measured_once_more_than_the_other_way_is_not_lost() -> None:
    again = {"steady": 333.3}
    made = [off(TEXT, 925, 3226, 4763), measured(), measured(gbps=again)]
    lines = results(*made).lines(0)
    assert sum("4763.0" in line for line in lines) == 1
    assert sum("371.2" in line for line in lines) == 1
    assert sum("333.3" in line for line in lines) == 1
    more_off = results(off(TEXT, 925, 3226, 4763), off(TEXT, 925, 3226, 4444), measured()).lines(0)
    assert sum("4763.0" in line for line in more_off) == 1
    assert any(line.startswith("not judged: ") and "4444.0" in line for line in more_off)

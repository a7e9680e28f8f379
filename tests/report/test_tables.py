"""Tables shaped like TransferBench's presets: what stands where, and what of a figure that means nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_transferbench import options
from pytest_transferbench.measurement import Check, Finding, Measurement
from pytest_transferbench.report.tables import TABLES
from pytest_transferbench.transfer import Test, parse_transfers
from tests.judge.measurements import at_gbps, measured
from tests.report.test_terminal import results

SLOW = (Finding("SLOW", "too slow", True),)
CORRUPT = (Finding("CORRUPT", "3 words wrong", True),)
SIDE = "(G0->G0->G1 0 64M)"


def made(table: str, text: str, gbps: float = 100.0, tail: str = "", **fields: Any) -> Measurement:
    """Return a measurement that asks for a table."""
    plain = measured(text)
    context = {"table": table, **fields.pop("context", {})}
    key = f"test_{table}/{plain.transfer.case_name()}{tail}"
    return measured(text, gbps={"steady": gbps}, key=key, context=context, link_class="xGMI", **fields)


def screen(*measurements: Measurement) -> list[str]:
    lines = results(*measurements).lines(0)
    assert lines[-1].startswith("verdicts: ")
    return lines[:-1]


def test_every_table_that_a_mark_may_name_is_made() -> None:
    assert tuple(TABLES) == options.TABLES


def test_nothing_stands_in_a_table_and_in_a_matrix() -> None:
    lines = screen(made("scaling", "(G0->G0->G1 4 64M)"), measured(SIDE, gbps={"steady": 333.3}))
    assert sum("100.00" in line for line in lines) == 2  # and as the best
    assert sum("333.3" in line for line in lines) == 1
    assert any("rows SRC, columns DST" in line for line in lines)


def test_two_suites_never_share_a_table() -> None:
    one, other = made("scaling", "(G0->G0->G1 4 64M)"), made("scaling", "(G0->G0->G1 8 64M)")
    lines = screen(one, measured("(G0->G0->G1 8 64M)", key="test_mine/x", context=other.context))
    assert sum(line.startswith("SubExecutors") for line in lines) == 2


def bmasweep(nbytes: int, figures: list[float]) -> list[Measurement]:
    columns = ["D0", "B0", "B0", "B0"]
    counts = [0, 1, 2, 8]
    return [
        made("bmasweep", f"(G0->{executor}->G1 {count} {nbytes})", gbps)
        for executor, count, gbps in zip(columns, counts, figures, strict=True)
    ]


def test_bmasweep_is_a_row_a_size_with_the_efficiency_of_batches() -> None:
    assert screen(*bmasweep(2 << 20, [48.18, 47.85, 49.76, 34.69]), *bmasweep(4096, [0.67, 0.70, 0.36, 0.09])) == [
        "push G0 -> G1 (xGMI), GB/s (steady median); T(k)/T(1): batch efficiency",
        "  Bytes |      DMA |  BMA (1)  BMA (2)  BMA (8) | T(2)/T(1) T(8)/T(1)",
        "   4096 |     0.67 |     0.70     0.36     0.09 |     0.514     0.129",
        "2097152 |    48.18 |    47.85    49.76    34.69 |     1.040     0.725",
        "",
    ]


def test_bmasweep_has_a_table_for_each_pair_and_no_efficiency_of_nothing() -> None:
    alone = [made("bmasweep", f"(G0->B0->G{gpu} 2 4K)", 1.5) for gpu in (1, 2)]
    lines = screen(*alone)
    assert [line for line in lines if line.startswith("push")] == [
        f"push G0 -> G{gpu} (xGMI), GB/s (steady median); T(k)/T(1): batch efficiency" for gpu in (1, 2)
    ]
    assert lines[1:3] == ["Bytes |  BMA (2)", " 4096 |     1.50"]
    one, _, two, eight = bmasweep(4096, [1.0, 1.0, 1.0, 1.0])
    broken = made("bmasweep", "(G0->B0->G1 1 4K)", verdicts=CORRUPT)
    assert screen(one, broken, two, eight)[2] == " 4096 |     1.00 |  CORRUPT     1.00     1.00 |         -         -"


def test_bmasweep_by_one_executor_alone() -> None:
    assert screen(made("bmasweep", "(G0->D0->G1 0 4K)", 1.5))[1:] == ["Bytes |      DMA", " 4096 |     1.50", ""]
    with_kernel = made("bmasweep", "(G0->G0->G1 4 4K)", 2.5), made("bmasweep", "(G0->D0->G1 0 4K)", 1.5)
    assert screen(*with_kernel)[1] == "Bytes |      DMA |  GFX (4)"


def test_scaling_is_a_row_a_count_and_names_the_best() -> None:
    figures = {("G1", 1): 26.0, ("G1", 2): 48.6, ("G1", 12): 48.5, ("C0", 1): 20.0, ("C0", 12): 57.15}
    ran = [
        made("scaling", f"(G0->G0->{end} {count} 64M)", gbps, method={"subexecutors": count})
        for (end, count), gbps in figures.items()
    ]
    assert screen(*ran) == [
        "gfx of G0 64M, GB/s (steady median); rows SubExecutors, columns the far ends",
        "SubExecutors |      to C0      to G1",
        "           1 |      20.00      26.00",
        "           2 |          -      48.60",
        "          12 |      57.15      48.50",
        "        best | 57.15( 12) 48.60(  2)",
        "",
    ]


def test_scaling_takes_nothing_that_fails_for_the_best() -> None:
    ran = made("scaling", "(G1->G0->G0 4 64M)", 90.0, verdicts=SLOW), made("scaling", "(G1->G0->G0 0 64M)", 80.0)
    lines = screen(*ran)
    assert lines[1:4] == ["SubExecutors |    from G1", "      chosen |      80.00", "           4 | 90.00 SLOW"]
    assert lines[4] == "        best | 80.00( 64)"
    assert screen(ran[0])[3] == "        best |          -"


def sweep(count: int, threads: int, unroll: int, gbps: float) -> Measurement:
    shape = {"subexecutors": count, "block_threads": threads, "unroll": unroll}
    return made("gfxsweep", f"(G0->G0->G1 {count} 1M)", gbps, f"-b{threads}-u{unroll}", method=shape)


def test_gfxsweep_is_a_table_for_each_block_size_and_one_best() -> None:
    ran = [sweep(4, 256, 1, 10.0), sweep(4, 256, 8, 20.0), sweep(16, 256, 8, 30.0), sweep(4, 512, 1, 40.5)]
    assert screen(*ran) == [
        "push gfx G0 -> G1 (xGMI) 1M, 256 threads a block, GB/s (steady median)",
        "SubExecutors\\unroll |        1        8",
        "                  4 |    10.00    20.00",
        "                 16 |        -    30.00",
        "push gfx G0 -> G1 (xGMI) 1M, 512 threads a block, GB/s (steady median)",
        "SubExecutors\\unroll |        1",
        "                  4 |    40.50",
        "best: 40.50 GB/s, 4 SubExecutors x 512 threads, unroll 1",
        "",
    ]


def test_gfxsweep_of_nothing_that_can_be_believed_has_no_best() -> None:
    broken = made("gfxsweep", "(G0->G0->G1 4 1M)", tail="-u8", verdicts=CORRUPT, method={"unroll": 8})
    lines = screen(broken)
    assert lines[2] == "                  4 |  CORRUPT"
    assert not any(line.startswith("best") for line in lines)


def test_hbm_is_a_row_a_gpu() -> None:
    ran = [
        made("hbm", text, gbps, context={"ceiling_gbps": ceiling})
        for text, gbps, ceiling in (
            ("(G10->G10->N 0 1G)", 4100.0, 5300.0),
            ("(N->G10->G10 0 1G)", 3000.0, 5300.0),
            ("(G10->G10->G10 0 1G)", 2120.0, 2650.0),
            ("(G2->G2->N 0 1G)", 4000.0, None),
        )
    ]
    assert screen(*ran) == [
        "local memory by gfx 1G, GB/s (steady median); r+w: what a copy reads and writes together",
        "GPU |     read    write     copy |      r+w of the memory's rate",
        " G2 |   4000.0        -        - |        -                    -",
        "G10 |   4100.0   3000.0   2120.0 |   4240.0               80.0 %",
        "",
    ]


def test_hbm_tells_numbers_of_subexecutors_apart_and_a_rate_that_nobody_knows() -> None:
    ran = made("hbm", "(G0->G0->G0 8 1G)", 200.0), made("hbm", "(G0->G0->G0 16 1G)", verdicts=CORRUPT)
    lines = screen(*ran)
    assert lines[0].startswith("local memory by gfx 1G, 8 SubExecutors, GB/s")
    assert lines[2] == " G0 |        -        -    200.0 |    400.0                    -"
    assert lines[6] == " G0 |        -        -  CORRUPT |        -                    -"


SMOKE = [
    ("(C0->D0->G0 0 4)", "Copy (H2D)"),
    ("(G0->D0->C0 0 4)", "Copy (D2H)"),
    ("(G0->D0->G1 0 4)", "Copy (D2D) (Remote Write)"),
    ("(G1->G0->G0 0 4)", "Copy (D2D) (Remote Read)"),
    ("(G0->G0->G0 0 4)", "Copy (Local)"),
    ("(G0->G0->G0G1 0 4)", "Broadcast (One to All)"),
    ("(G0G1->G0->G0 0 4)", "Reduce (Sum)"),
]


@pytest.mark.parametrize(("text", "row"), SMOKE)
def test_smoketest_calls_copies_by_transferbenchs_names(text: str, row: str) -> None:
    assert screen(made("smoketest", text))[2].split("|")[0].strip() == row


def test_smoketest_gathers_and_broadcasts_at_the_same_time() -> None:
    for test, row in (
        (Test.pull_from_peers(0, (0, 1, 2), 4), "Gather (All to One)"),
        (Test.push_to_peers(0, (0, 1, 2), 4), "Broadcast (One to All)"),
    ):
        assert test == Test(parse_transfers(test.notation()))
        ran = measured(SIDE, gbps={}, context={"table": "smoketest"})
        many = measured(
            SIDE,
            transfer=test,
            op=test.op,
            nbytes=4,
            key="test_smoketest/x",
            context=ran.context,
            arms=(at_gbps("steady", 1.0, 4),),
        )
        assert screen(many)[2].split("|")[0].strip() == row


def test_smoketest_has_a_mark_for_each_size() -> None:
    ran = [
        made("smoketest", "(G0->D0->G1 0 4)"),
        made("smoketest", "(G0->D0->G1 0 1K)", verdicts=CORRUPT, checks=(Check("steady", 256, 3),)),
        made("smoketest", "(G1->D1->G0 0 1K)"),  # one that passes does not hide the other
        made("smoketest", "(G0->G0->G1 1 1K)"),
        made("smoketest", "(G1->G1->G0 1 1K)"),
        made("smoketest", "(C0->G0->G0 0 4)"),
    ]
    assert screen(*ran) == [
        "smoketest, a mark for each of 4 1K: * right, F failed, . not run",
        "Name                      |   DMA |   GFX | GFX 1",
        "Copy (H2D)                |    .. |    *. |    ..",
        "Copy (D2D) (Remote Write) |    *F |    .. |    .*",
        "1 of 6 failed",
        "",
    ]
    assert screen(ran[0])[-2] == "all 1 passed"


def test_healthcheck_sets_figures_beside_floors_and_says_once_where_those_come_from() -> None:
    floor = {"floor_gbps": 50.0, "floor": "0.97 x 51.5 GB/s: a paper, read 2026-11-30"}
    ran = [
        made("healthcheck", SIDE, 60.0, context=floor),
        made("healthcheck", "(G1->G1->G0 0 64M)", 40.0, verdicts=SLOW, context=floor),
        made("healthcheck", "(G0->G0->G0 0 64M)", 30.0),
        made("healthcheck", "(G1->G1->G1 0 64M)", verdicts=CORRUPT, context={"floor_gbps": 1.0, "floor": "mine"}),
    ]
    assert screen(*ran) == [
        "healthcheck         | GB/s floor of the floor           by",
        "push-gfx-G0-G1-64M  | 60.0  50.0        120 %    PASS  [1]",
        "push-gfx-G1-G0-64M  | 40.0  50.0         80 %    FAIL  [1]",
        "local-gfx-G0-G0-64M | 30.0     -            -   shown",
        "local-gfx-G1-G1-64M |    -   1.0            - CORRUPT  [2]",
        "[1] 0.97 x 51.5 GB/s: a paper, read 2026-11-30",
        "[2] mine",
        "",
    ]


def test_the_best_numbers_of_subexecutors_share_a_matrix_and_are_named() -> None:
    ran = [
        measured(
            f"({source}->{source}->{target} {count} 64M)",
            gbps={"steady": gbps},
            key=f"test_p2p/push-gfx-{source}-{target}-64M-best",
            context={"best_subexecutors": count},
            method={"subexecutors": count},
        )
        for source, target, count, gbps in (("G0", "G1", 12, 48.1), ("G1", "G0", 24, 48.2))
    ]
    lines = screen(*ran)
    assert lines[0].startswith("push gfx 64M best, GB/s")
    assert "12 blocks x 512 threads, G1: 24 blocks x 512 threads" in lines[1]
    assert [line.split()[0] for line in lines[3:5]] == ["G0", "G1"]


def test_a_variant_tells_two_functions_apart() -> None:
    for table in ("bmasweep", "scaling", "gfxsweep", "hbm"):
        text = "(G0->G0->G1 4 1M)" if table != "hbm" else "(G0->G0->G0 4 1M)"
        lines = screen(made(table, text, tail="-mine"), made(table, text, 200.0))
        assert sum(" mine" in line for line in lines) == 1
        assert any("200.0" in line for line in lines), table

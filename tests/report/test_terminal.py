from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_transferbench.measurement import Finding, Measurement
from pytest_transferbench.report import transport
from pytest_transferbench.report.terminal import Results, blocks_text, live_status, rotation_text
from pytest_transferbench.transfer import Test
from tests.judge.measurements import at_gbps, measured

MIB = 2**20
GRAPH = {"graph_gbps": 296.7}
VARIANTS = {"": 301.0, "-64x": 302.0, "-a-b": 303.0}


def report(*measurements: Measurement, nodeid: str = "t.py::t", outcome: str = "passed", **more: Any) -> Any:
    data = transport.carry(measurements)
    return SimpleNamespace(
        transferbench=data, nodeid=nodeid, when="call", outcome=outcome, passed=outcome == "passed", **more
    )


def results(*measurements: Measurement) -> Results:
    made = Results()
    for index, measurement in enumerate(measurements):
        made.add(report(measurement, nodeid=str(index)))
    return made


def record(**fields: Any) -> transport.Record:
    return transport.Record(transport.carry([measured(**fields)])[0])


def test_a_passed_item_shows_its_bandwidth() -> None:
    assert live_status(report(measured())) == ("passed", ".", ("PASSED    371.2 GB/s", {"green": True}))


def test_a_passed_control_shows_its_bandwidth_and_what_it_is() -> None:
    control = measured(judged=False, control=True)
    assert live_status(report(control)) == ("passed", ".", ("PASSED    371.2 GB/s control", {"green": True}))
    corrupt = dataclasses.replace(control, verdicts=(Finding("CORRUPT", "3 words wrong", True),))
    assert live_status(report(corrupt)) == ("passed", ".", ("PASSED CORRUPT control", {"green": True}))


@pytest.mark.parametrize(
    "other",
    [
        report(measured(), outcome="failed"),
        report(measured(judged=False)),
        report(measured(), wasxfail="expected"),
        SimpleNamespace(when="call", passed=True),
    ],
)
def test_other_reports_are_left_to_pytest(other: Any) -> None:
    assert live_status(other) is None


def test_rotation_and_blocks() -> None:
    assert rotation_text(record()) == "rotation K=4 x 64M (pitch 67108864) = 256M"
    assert rotation_text(record(method={"rotate_bytes": 0})) == "no rotation"
    too_little = {"rotate_bytes": 128 * MIB, "slices": 2, "rotated": False}
    assert rotation_text(record(method=too_little)) == "rotation too little, K=2 x 64M (pitch 67108864) = 128M"
    assert blocks_text(record()) == "64 blocks x 512 threads"
    assert blocks_text(record(method={"block_threads": 0})) == ""
    assert blocks_text(record(method={"block_threads": 0, "gate": "host", "subexecutors": 4})) == "4 threads"
    assert blocks_text(record(method={"block_threads": 0, "gate": "host", "subexecutors": 1, "part": 3})) == ""


def test_a_repeated_item_counts_once_with_its_last_result() -> None:
    made = results(measured())
    made.add(report(measured(gbps={"steady": 200.0}), nodeid="0"))
    lines = made.lines(0)
    assert "     G1  200.0" in lines
    assert lines[-1] == "verdicts: 1 NEW"


def test_each_op_executor_and_size_has_a_matrix_of_its_own() -> None:
    texts = ("(G1->G0->G0 0 64M)", "(G1->G1->G0 0 64M)", "(G1->D1->G0 0 64M)", "(G1->G0->G0 8 64M)")
    titles = [line for line in results(*map(measured, texts)).lines(0) if "steady median" in line]
    assert [title.partition(",")[0] for title in titles] == [
        "pull gfx 64M",
        "push gfx 64M",
        "push dma 64M",
        "pull gfx8 64M",
    ]


def test_a_test_has_a_matrix_of_its_own_and_no_ratio() -> None:
    pulls = [Test.pull_from_peers(gpu, range(3), 64 * MIB) for gpu in range(3)]
    found = [
        dataclasses.replace(measured(gbps={"steady": 300.0 + gpu}), transfer=pull, key=f"t/{pull.case_name()}")
        for gpu, pull in enumerate(pulls)
    ]
    lines = results(*found, measured()).lines(1)
    start = lines.index("pull gfx 64M x 2 at the same time, GB/s (steady median; rows SRC, columns DST)")
    assert lines[start + 1].endswith("; 64 blocks x 512 threads each")
    # Of two Transfers at the same time, each as long as one at 300 GB/s.
    assert lines[start + 2 : start + 4] == ["SRC\\DST     G0     G1     G2", "  peers  600.0  602.0  604.0"]
    assert "pull gfx 64M, GB/s (steady median; rows SRC, columns DST)" in lines
    assert any(line.startswith("pull-gfx-peers-G0-64M: 600.0 GB/s (p10 600.0; warm/cold -); ") for line in lines)


def test_suites_do_not_share_a_matrix() -> None:
    lines = results(measured(key="one/x"), measured(key="two/x")).lines(0)
    assert len([line for line in lines if "steady median" in line]) == 2


def test_variants_do_not_share_a_matrix() -> None:
    key = "t/pull-gfx-G1-G0-64M"
    lines = results(*(measured(key=key + end, gbps={"steady": gbps}) for end, gbps in VARIANTS.items())).lines(0)
    titles = [line.partition(", GB/s")[0] for line in lines if "steady median" in line]
    assert titles == ["pull gfx 64M", "pull gfx 64M 64x", "pull gfx 64M a-b"]
    assert [line.split()[-1] for line in lines if line.startswith("     G1 ")] == ["301.0", "302.0", "303.0"]


def test_executors_elsewhere_share_a_matrix_and_no_cell() -> None:
    texts = ("(G1->G0->G2 0 64M)", "(G2->G0->G1 0 64M)", "(G1->G3->G2 0 64M)")
    lines = results(*(measured(text, gbps={"steady": 301.0 + i}) for i, text in enumerate(texts))).lines(0)
    cells = [line.split()[1:] for line in lines if line.startswith("     G")]
    assert cells == [["-", "301.0"], ["302.0", "-"], ["303.0"]]


def test_what_was_measured_twice_is_shown_twice() -> None:
    lines = results(measured(), measured(gbps={"steady": 300.0})).lines(0)
    assert [line.split()[-1] for line in lines if line.startswith("     G1 ")] == ["371.2", "300.0"]


def test_the_caption_gives_the_range_where_items_differ() -> None:
    slower = {"steady": 371.2, "warm": 400.0, "cold": 354.0}
    made = results(measured(), measured("(G0->G1->G1 0 64M)", gbps=slower, method={"slices": 8}))
    (caption,) = [line for line in made.lines(0) if "warm/cold" in line]
    assert caption == (
        "rotation K=4 x 64M (pitch 67108864) = 256M, G0: rotation K=8 x 64M (pitch 67108864) = 512M; "
        "64 blocks x 512 threads; warm/cold 1.008 to 1.130"
    )


def test_the_caption_names_the_rows_that_differ_from_most() -> None:
    off = {"rotate_bytes": 0}
    rows = [measured(f"(C0->G{i}->G{i} 0 64M)", method=off) for i in range(2)]
    rows += [measured(f"(G{i}->G{1 - i}->G{1 - i} 0 64M)") for i in range(2)]
    rows += [measured(f"(G2->G{i}->G{i} 0 64M)") for i in range(2)]
    (caption,) = [line for line in results(*rows).lines(0) if "warm/cold" in line]
    assert caption.startswith("rotation K=4 x 64M (pitch 67108864) = 256M, C0: no rotation; 64 blocks")


def test_the_caption_names_pairs_where_a_row_is_mixed() -> None:
    rows = [measured(f"(G0->G{i}->G{i} 0 64M)") for i in (1, 2)]
    rows.append(measured("(G0->G3->G3 0 64M)", method={"subexecutors": 8}))
    (caption,) = [line for line in results(*rows).lines(0) if "warm/cold" in line]
    assert "; 64 blocks x 512 threads, G0-G3: 8 blocks x 512 threads; " in caption


def test_what_was_not_judged_is_shown_and_not_counted() -> None:
    lines = results(measured(judged=False)).lines(0)
    (line,) = lines
    assert line.startswith("not judged: pull-gfx-G1-G0-64M: 371.2 GB/s")


def test_verdicts_are_counted_by_the_most_important_one() -> None:
    both = (Finding("IMPOSSIBLE", "", fails=True), Finding("SLOW", "", fails=True))
    lines = results(measured(), measured("(G0->G1->G1 0 64M)", verdicts=both)).lines(-1)
    assert lines == ["verdicts: 1 IMPOSSIBLE, 1 NEW"]


def test_controls_are_counted_beside_the_verdicts() -> None:
    control = measured(judged=False, control=True)
    assert results(measured(), control, control, measured(judged=False)).lines(-1)[-1] == (
        "verdicts: 1 NEW; 2 controls, not judged"
    )
    assert results(control).lines(-1)[-1] == "verdicts: none; 1 control, not judged"


def test_warnings_are_said_once_and_rejected_samples_by_item() -> None:
    arms = (
        at_gbps("cold", 354.0, rejected=("sample 2: 9.5 us late",)),
        at_gbps("steady", 371.2, rejected=("sample 1: 10 us late", "sample 7: throttled")),
    )
    made = results(
        measured(warnings=("memory is tight",), arms=arms),
        measured("(G0->G1->G1 0 64M)", warnings=("memory is tight",)),
    )
    assert made.lines(-1)[:2] == [
        "samples taken again: pull-gfx-G1-G0-64M: 3: 9.5 us late (2); throttled (1)",
        "warning: memory is tight (pull-gfx-G1-G0-64M and 1 more)",
    ]


def test_only_emulated_figures_are_called_so() -> None:
    assert results(measured()).title(0) == "transfer bandwidth"
    assert results(measured(emulated="mi300x-8")).title(1) == "transfer bandwidth, EMULATED mi300x-8"
    assert results(measured(emulated="mi300x-8")).title(-1) == "transfers, EMULATED mi300x-8"


def test_figures_without_proof_say_so() -> None:
    line = "data not checked (validate off): 1 items, pull-gfx-G1-G0-64M the first"
    assert line in results(measured(validated=False, checks=()), measured()).lines(0)
    assert not any("not checked" in line for line in results(measured()).lines(1))


def test_data_that_cannot_tell_the_slices_apart_says_so() -> None:
    line = "not proved which slice was read (data of the test's own): 1 items, pull-gfx-G1-G0-64M the first"
    assert line in results(measured(slice_identity_proved=False), measured()).lines(0)
    assert line not in results(measured(slice_identity_proved=False, validated=False)).lines(0)
    assert not any("not proved" in line for line in results(measured()).lines(1))


def test_the_details_have_the_figure_of_the_graph() -> None:
    assert any("warm 357.0, graph 296.7; warm" in line for line in results(measured(context=GRAPH)).lines(1))
    assert not any("graph" in line for line in results(measured()).lines(1))


def test_the_details_say_once_a_device_what_its_clocks_are_worth() -> None:
    def on(device: int, skew_seconds: float) -> Measurement:
        facts = {"empty_pair_seconds": 3.14e-6, "skew_seconds": skew_seconds}
        return measured(context={"launch_device": device, **facts})

    made = results(on(0, 0.0), on(0, 0.0), on(1, 4e-8), measured())
    assert [line for line in made.lines(1) if line.startswith("clocks")] == [
        "clocks: two events with nothing between are 3.1 us apart on G0",
        "clocks: two events with nothing between are 3.1 us apart on G1; its dies differ by at most 0.0 us",
    ]
    assert not any(line.startswith("clocks") for line in made.lines(0))
    # A virtual clock is exact: there is nothing to say of it.
    virtual = measured(context={"launch_device": 0, "empty_pair_seconds": 0.0}, emulated="mi300x-8")
    assert not any(line.startswith("clocks") for line in results(virtual).lines(1))


def test_one_sample_is_one() -> None:
    (line,) = [line for line in results(measured(method={"samples": 1})).lines(1) if " copies x " in line]
    assert "; 6 copies x 1 sample; " in line

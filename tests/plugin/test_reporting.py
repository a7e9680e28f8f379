"""What a run shows and leaves behind: header, live figures, matrices, JUnit, journal."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pytest_transferbench.journal import read_journal
from tests.plugin.conftest import SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

ONE = (*SUITE, "--sizes=64M", "-k", "pull-gfx-G1-G0")


def test_the_header_describes_the_machine_and_what_was_asked(run: RunPytest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUM_WARMUPS", "4")
    monkeypatch.setenv("USE_GPU_DMA", "1")
    result = run(*ONE, "--gpus=0,1")
    result.stdout.fnmatch_lines(
        [
            "transferbench: runtime rocm, driver 1.2.3; GPUs 0-1 there",
            "  using GPUs 0, 1: Fake GPU (gfx942), 304 CUs, 64 GiB, partition SPX, last-level cache 256M,"
            " 16 copy engines; PCI 0000:01:00.0 0000:02:00.0",
            "  links G0-G1 G1-G0: xGMI 400.0 GB/s a direction (a fake table)",
            "  GPU_MAX_HW_QUEUES 4",
            "  IOMMU off",
            "  sizes 64M (from --sizes); rotation auto; 25 samples; marks override",
            "  from the environment: NUM_WARMUPS=4",
            "  USE_GPU_DMA is not honoured; today's equivalent: --executors=dma",
            "collected 25 items*",
            "transferbench: 1 of 25 transfer cases selected, 1 to run, about *",
        ],
    )
    assert len([line for line in result.outlines if line.startswith("transferbench: runtime")]) == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["--transfer-samples=10"], "about 1 s"),
        (["--transfer-samples=10000"], "about * min"),
        (["--transfer-samples=1000000"], "about * h"),
        (["--transfer-samples=1000000", "--transfer-sub-iterations=100"], "about * days"),
        (["--transfer-samples=1000000", "--transfer-sub-iterations=1000000"], "more than a year"),
        (["--sizes=9223372036854775804"], "more than a year"),
    ],
)
def test_the_estimate_is_said_in_words(run: RunPytest, settings: list[str], said: str) -> None:
    result = run(*SUITE, "-k", "pull-gfx-G1-G0", "--sizes=256M", "--collect-only", *settings)
    result.stdout.fnmatch_lines([f"transferbench: * to run, {said}"])


@pytest.mark.skipif(pytest.version_tuple < (9, 2), reason="pytest takes texts alone before 9.2")
def test_numbers_in_a_native_ini_file_are_as_good_as_texts(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.pytest]\ntransfer_samples = 3\ntransfer_gpus = '0,1'\ntransfer_warm_cold = 1.2")
    result = run(*ONE)
    result.assert_outcomes(passed=1, deselected=24)
    result.stdout.fnmatch_lines(["  sizes 64M (from --sizes); rotation auto; 3 samples; marks override"])


def test_without_options_the_header_comes_once_transfers_are_found(run: RunPytest) -> None:
    result = run(*SUITE, "-k", "pull-gfx-G1-G0")
    result.stdout.fnmatch_lines(
        [
            "collected 75 items*",
            "transferbench: runtime rocm*",
            "  sizes 4M 64M 256M (default on a node with GPUs)*",
            "transferbench: 3 of 75 transfer cases selected, 3 to run, *",
        ]
    )


def test_an_emulated_node_is_never_taken_for_a_real_one(run: RunPytest, machine: FakeMachine) -> None:
    machine.emulated = "mi300x-8"
    result = run(*SUITE, "--transfer-emulate=mi300x-8", "-k", "pull-gfx-G1-G0")
    result.assert_outcomes(passed=3, deselected=72)
    result.stdout.fnmatch_lines(
        [
            "transferbench: EMULATED node mi300x-8, no figure is a real machine's; runtime rocm*",
            "  sizes 1M 4M 16M (default on an emulated node)*",
            "*= transfer bandwidth, EMULATED mi300x-8 =*",
        ]
    )


def test_verbose_shows_each_figure_as_it_comes_and_the_details_at_the_end(run: RunPytest) -> None:
    result = run(*ONE, "-v")
    result.stdout.fnmatch_lines(
        [
            "*::test_p2p[[]pull-gfx-G1-G0-64M] PASSED    371.2 GB/s *",
            "pull gfx 64M, GB/s (steady median; rows SRC, columns DST)",
            "rotation K=8 x 64M (pitch 67108864) = 512M; 8 blocks x 256 threads; warm/cold 1.000",
            "SRC?DST     G0",
            "     G1  371.2",
            "pull-gfx-G1-G0-64M: 371.2 GB/s (p10 371.2, cold 371.2, warm 371.2; warm/cold 1.000); rotation K=8 x 64M "
            "(pitch 67108864) = 512M; 8 blocks x 256 threads; 4 copies x 25 samples; NEW",
            "verdicts: 1 NEW",
        ]
    )


def test_quiet_shows_verdicts_alone(run: RunPytest, pytester: pytest.Pytester) -> None:
    result = run(*ONE, "-q")
    result.stdout.fnmatch_lines(["*= transfers =*", "verdicts: 1 NEW"])
    result.stdout.no_fnmatch_line("*SRC?DST*")
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_on(transfer, transferbench): transferbench(transfer)
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)", rotate=0)
        def test_off(transfer, transferbench): transferbench(transfer)
        """
    )
    result = run("-q", "--gpus=0,1")
    result.stdout.fnmatch_lines(["*= transfers =*", "verdicts: 2 NEW"])
    result.stdout.no_fnmatch_line("*371.2*")


def test_the_header_breaks_between_words_where_the_terminal_ends(
    run: RunPytest, monkeypatch: pytest.MonkeyPatch, machine: FakeMachine
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    machine.gpus = 8
    lines = run(*ONE).outlines
    start = next(index for index, line in enumerate(lines) if line.startswith("transferbench: runtime"))
    end = next(index for index, line in enumerate(lines) if line.startswith("  sizes"))
    assert max(map(len, lines[start : end + 1])) <= 80
    assert lines[start + 1 : start + 3] == [
        "  using GPUs 0, 1, 2, 3, 4, 5, 6, 7: Fake GPU (gfx942), 304 CUs, 64 GiB,",
        "    partition SPX, last-level cache 256M, 16 copy engines; PCI 0000:01:00.0",
    ]


def test_the_matrix_has_sources_as_rows(run: RunPytest, machine: FakeMachine) -> None:
    machine.gpus = 3
    result = run(*SUITE, "--sizes=64M", "-k", "push-gfx and not G2-G0")
    result.stdout.fnmatch_lines(
        [
            "SRC?DST     C0     G0     G1     G2",
            "     G0  371.2      -  371.2  371.2",
            "     G1  371.2  371.2      -  371.2",
            "     G2  371.2      -  371.2      -",
        ],
        consecutive=True,
    )


def test_corrupt_data_has_no_bandwidth_anywhere(
    run: RunPytest, machine: FakeMachine, pytester: pytest.Pytester
) -> None:
    machine.wrong_words = 5
    result = run(*ONE, "-v", "--junitxml=out.xml")
    result.assert_outcomes(failed=1, deselected=24)
    result.stdout.fnmatch_lines(["     G1 CORRUPT", "pull-gfx-G1-G0-64M: CORRUPT; rotation*", "verdicts: 1 CORRUPT"])
    result.stdout.no_fnmatch_line("*371.2*")
    found = junit_properties(pytester.path / "out.xml")
    assert found["transfer_verdict"] == "CORRUPT"
    assert found["transfer_wrong_words"] == found["transfer_wrong_bytes"] == "5"
    assert "transfer_gbps" not in found


def test_rejected_samples_and_warnings_are_shown(run: RunPytest, machine: FakeMachine) -> None:
    machine.rejected, machine.warning = 2, "rotation asked for more"
    result = run(*ONE)
    result.assert_outcomes(passed=1, deselected=24)
    result.stdout.fnmatch_lines(
        [
            "samples taken again: pull-gfx-G1-G0-64M: 2: host clock 70 us off (2)",
            "warning: rotation asked for more (pull-gfx-G1-G0-64M)",
        ]
    )


def junit_properties(path: Path) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in ET.parse(path).iter("property")}


def test_junit_carries_the_figures(run: RunPytest, pytester: pytest.Pytester) -> None:
    run(*ONE, "--junitxml=out.xml").assert_outcomes(passed=1, deselected=24)
    found = junit_properties(pytester.path / "out.xml")
    assert found.pop("transfer_key") == "test_p2p/pull-gfx-G1-G0-64M"
    assert found.pop("transfer_verdict") == "NEW"
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {
            "transfer_bytes": 64 << 20,
            "transfer_wrong_words": 0,
            "transfer_wrong_bytes": 0,
            "transfer_gbps": 371.2,
            "transfer_p10_gbps": 371.2,
            "transfer_cold_gbps": 371.2,
            "transfer_warm_gbps": 371.2,
            "transfer_warm_cold": 1.0,
        }
    )


def test_a_control_is_seen_everywhere_and_judged_nowhere(
    run: RunPytest, machine: FakeMachine, pytester: pytest.Pytester
) -> None:
    machine.gbps = 450.0  # above the link: IMPOSSIBLE
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)", rotate=0, control=True)
        def test_control(transfer, transferbench): transferbench(transfer)
        """
    )
    result = run("--gpus=0,1", "-v", "--junitxml=out.xml", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*::test_control[[]*] PASSED    450.0 GB/s control *", "verdicts: none; 1 control, not judged"]
    )
    found = junit_properties(pytester.path / "out.xml")
    assert (found["transfer_control"], found["transfer_verdict"]) == ("true", "IMPOSSIBLE")
    assert float(found["transfer_gbps"]) == pytest.approx(450.0)
    (item,) = read_journal(pytester.path / "journal.jsonl").items
    assert item["measurement"]["control"] is True


def test_the_journal_has_a_line_an_item(run: RunPytest, pytester: pytest.Pytester) -> None:
    result = run(*SUITE, "-k", "pull-gfx-G1-G0 or pull-dma-G1-G0", "--transfer-journal=kept/journal.jsonl")
    result.assert_outcomes(passed=3, skipped=3, deselected=69)
    result.stdout.fnmatch_lines(["journal: kept/journal.jsonl"])
    found = read_journal(pytester.path / "kept" / "journal.jsonl")
    assert found.problems == ()
    (session,) = found.sessions
    assert session.header["node"]["driver"] == "1.2.3"
    assert [(item["key"], item["outcome"]) for item in session.items] == [
        *((f"test_p2p/pull-gfx-G1-G0-{size}", "passed") for size in ("256M", "64M", "4M")),
        *((None, "skipped") for _ in range(3)),
    ]
    measurement = session.items[0]["measurement"]
    assert measurement["figures"]["gbps"] == pytest.approx(371.2)
    assert len(measurement["arms"][0]["seconds"]) == 25
    assert measurement["context"]["ceiling_gbps"] == 400.0


def test_without_a_name_the_journal_lies_in_the_cache(run: RunPytest, pytester: pytest.Pytester) -> None:
    run(*ONE)
    (journal,) = pytester.path.glob(".pytest_cache/d/transferbench/*.jsonl")
    assert len(read_journal(journal).items) == 1


def test_without_a_cache_there_is_no_journal(run: RunPytest, pytester: pytest.Pytester) -> None:
    result = run(*ONE, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, deselected=24)
    result.stdout.fnmatch_lines(["journal: none, pytest's cache is off"])
    assert not list(pytester.path.rglob("*.jsonl"))


def test_a_cache_that_cannot_be_written_costs_the_journal_alone(
    run_apart: RunPytest, pytester: pytest.Pytester
) -> None:
    (pytester.path / ".pytest_cache").write_text("in the way")
    result = run_apart(*ONE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["journal: none, *.pytest_cache*"])


def test_a_disk_that_fills_up_costs_the_rest_of_the_journal_alone(
    run_apart: RunPytest, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, most))
        """
    )
    result = run_apart(*SUITE, "-k", "pull-gfx", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=12, deselected=63)
    result.stdout.fnmatch_lines(["journal: journal.jsonl ends early, results after it are lost: File too large"])
    found = read_journal(pytester.path / "journal.jsonl")
    assert 0 < len(found.items) < 12
    assert len(found.problems) == 1


def test_collecting_alone_writes_no_journal(run: RunPytest, pytester: pytest.Pytester) -> None:
    assert run(*SUITE, "--collect-only", "--transfer-journal=kept/journal.jsonl").ret == 0
    assert not (pytester.path / "kept").exists()


def test_a_ceiling_nobody_knows_comes_from_the_runs_own_largest_size(run: RunPytest, machine: FakeMachine) -> None:
    machine.link_gbps = None
    result = run(*SUITE, "-k", "pull-gfx-G1-G0", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=3, deselected=72)
    said = [json.loads(line)["measurement"]["context"]["ceiling"] for line in journal_lines()]
    assert said == [
        "no ceiling: no link rate is known, and this is its pair's largest size",
        "1.15 x this pair's 256M median of 371.2 GB/s",
        "1.15 x this pair's 256M median of 371.2 GB/s",
    ]
    run(*SUITE, "-k", "pull-gfx-G1-G0 and -4M", "--transfer-journal=other.jsonl")
    (line,) = journal_lines("other.jsonl")
    assert json.loads(line)["measurement"]["context"]["ceiling"] == (
        "no ceiling: no link rate is known, and this pair's 256M gave no rotated median"
    )


def journal_lines(name: str = "journal.jsonl") -> list[str]:
    return [line for line in Path(name).read_text().splitlines() if '"item"' in line]


@pytest.mark.parametrize("other", ["no:terminal", "no:junitxml", "no:faulthandler", "no:xdist", "no:benchmark"])
def test_other_plugins_may_be_off(run: RunPytest, other: str) -> None:
    assert run(*ONE, "-p", other).ret == 0


@pytest.mark.parametrize("other", ["xdist", "pytest_benchmark.plugin"])
def test_other_plugins_may_be_on(run: RunPytest, other: str) -> None:
    run("-p", other, *ONE).assert_outcomes(passed=1, deselected=24)

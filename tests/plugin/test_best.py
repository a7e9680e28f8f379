"""``--transfer-subexecutors=best``: several numbers are tried, the best is measured, reported, and named."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from pytest_transferbench.journal import read_journal
from tests.plugin.conftest import SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

ONE = (*SUITE, "--transfer-subexecutors=best", "--sizes=4M", "-k", "push-gfx-G0-G1")
TRIED = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 304]


def test_the_best_number_is_measured_and_named(
    run: RunPytest, machine: FakeMachine, said: Callable[[str], list[str]], pytester: pytest.Pytester
) -> None:
    machine.gbps_of = {"push-gfx12-G0-G1-4M": 380.0, "push-gfx48-G0-G1-4M": 379.9}
    machine.tell_samples = True
    result = run(*ONE, "-v", "--junitxml=j.xml", "--transfer-journal=j.jsonl")
    result.assert_outcomes(passed=1, deselected=24)
    measures = [line.split() for line in said("measure")]
    assert [words[1] for words in measures] == [f"push-gfx{count}-G0-G1-4M" for count in [*TRIED, 12]]
    assert [line.split()[1] for line in said("samples")] == [*["5"] * len(TRIED), "25"]
    result.stdout.fnmatch_lines(["*[[]push-gfx-G0-G1-4M-best] PASSED    380.0 GB/s with 12 SubExecutors*"])
    result.stdout.fnmatch_lines(["push gfx 4M best, GB/s*", "*12 blocks x 256 threads*", "*G0  380.0"])
    found = {each.get("name"): each.get("value") for each in ET.parse(pytester.path / "j.xml").iter("property")}
    assert found["transfer_best_subexecutors"] == "12"
    assert found["transfer_key"] == "test_p2p/push-gfx-G0-G1-4M-best"
    (item,) = read_journal(pytester.path / "j.jsonl").items
    assert item["measurement"]["transfer"] == "(G0->G0->G1 12 4M)"
    tried = item["measurement"]["context"]["tried_gbps"]
    assert list(tried) == [str(count) for count in TRIED]
    assert tried["48"] == pytest.approx(379.9)


def test_the_search_crosses_to_a_worker_and_back(run_apart: RunPytest, machine: FakeMachine) -> None:
    machine.gbps_of = {"push-gfx12-G0-G1-4M": 380.0}
    result = run_apart(*ONE, "-n1")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*G0  380.0"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"wrong_words": 3}, "*CORRUPT: 3 of 1048576 words wrong*"),
        ({"fault": "DEVICE_ERROR hipLaunch failed"}, "*DEVICE_ERROR: hipLaunch failed*"),
        ({"lease_fault": "no memory"}, "*DEVICE_ERROR: *hipErrorOutOfMemory*"),
    ],
)
def test_a_trial_that_fails_ends_the_search(
    run: RunPytest, machine: FakeMachine, said: Callable[[str], list[str]], changes: dict[str, object], says: str
) -> None:
    for name, value in changes.items():
        setattr(machine, name, value)
    result = run(*ONE)
    result.assert_outcomes(failed=1, deselected=24)
    result.stdout.fnmatch_lines([says])
    assert len(said("measure")) <= 1


def test_transfers_of_a_test_have_the_same_number_and_share_the_gpu(
    run: RunPytest, machine: FakeMachine, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    machine.gpus, machine.gbps_of = 3, {"pull-gfx24-peers-G0-4M": 380.0}
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench(pairs="peers-G0", sizes="4M", subexecutors="best")
        def test_peers(transfer, transferbench):
            m = transferbench(transfer)
            assert m.context["best_subexecutors"] == 24
            assert {each.subexecutors for each in m.transfer.transfers} == {24}
        @pytest.mark.transferbench("G0->G0->G0", sizes="4M", subexecutors="best")
        def test_local(transfer, transferbench):
            assert transferbench(transfer).context["best_subexecutors"] == 1, "the least of those as good"
        """
    )
    run().assert_outcomes(passed=2)
    tried = [line.split()[1] for line in said("measure")]
    assert "pull-gfx152-peers-G0-4M" in tried
    assert "pull-gfx192-peers-G0-4M" not in tried
    assert "local-gfx608-G0-G0-4M" in tried


def test_buffers_of_no_single_number_are_refused_in_one_line(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench("G0->G0->G1", sizes="4M", subexecutors="best")
        def test_mine(transfer, transfer_buffers): ...
        """
    )
    result = run()
    result.stdout.fnmatch_lines(
        ["transfer_buffers are those of one number of SubExecutors; *--transfer-subexecutors=8"]
    )


def test_what_a_search_takes_is_said_beforehand(run: RunPytest) -> None:
    def seconds(count: str) -> float:
        result = run(*SUITE, f"--transfer-subexecutors={count}", "--sizes=1G", "--collect-only", "-k", "push-gfx-G0-G1")
        (line,) = [line for line in result.outlines if "to run, about" in line]
        return float(line.split("about ")[1].split()[0])

    assert seconds("best") > 4 * seconds("0")

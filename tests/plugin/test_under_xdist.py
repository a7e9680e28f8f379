"""One worker isolates; more than one, and the grouping distributions, are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_transferbench.journal import read_journal
from tests.plugin.conftest import SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

PULLS = (*SUITE, "--gpus=0,1", "-k", "pull-gfx-G1-G0")

USERS_FILE = """
    import pytest
    @pytest.mark.transferbench(sizes="4M", ops="push", executors="gfx")
    def test_mine(transfer, transferbench):
        transferbench(transfer)
    def test_other(): pass
"""


def test_one_worker_reports_what_one_process_would(
    run: RunPytest, run_apart: RunPytest, pytester: pytest.Pytester
) -> None:
    alone = run(*PULLS, "-v", "--transfer-journal=alone.jsonl")
    apart = run_apart(*PULLS, "-v", "-n1", "--transfer-journal=apart.jsonl")
    alone.assert_outcomes(passed=3, deselected=72)
    apart.assert_outcomes(passed=3)

    def summary(result: pytest.RunResult) -> list[str]:
        start = next(i for i, line in enumerate(result.outlines) if "= transfer bandwidth" in line)
        return [line for line in result.outlines[start:-1] if not line.startswith("journal:")]

    assert summary(alone) == summary(apart)
    assert apart.outlines.count("transferbench: runtime rocm, driver 1.2.3; GPUs 0-1 there") == 1
    apart.stdout.fnmatch_lines(["*PASSED    371.2 GB/s *"])
    first, second = (read_journal(pytester.path / f"{name}.jsonl").items for name in ("alone", "apart"))
    assert [(i["key"], i["measurement"]) for i in first] == [(i["key"], i["measurement"]) for i in second]


def test_the_controller_probes_and_the_worker_does_not(
    run_apart: RunPytest, machine: FakeMachine, said: Callable[[str], list[str]]
) -> None:
    run_apart(*PULLS, "-n1").assert_outcomes(passed=3)
    assert len(said("probe")) == 1
    lines = Path(str(machine.log)).read_text().splitlines()
    (prober,) = {line.split()[0] for line in lines if " probe " in line}
    (measurer,) = {line.split()[0] for line in lines if " measure " in line}
    assert prober != measurer


def test_without_options_the_worker_finds_out_for_itself(
    run_apart: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile(USERS_FILE)
    run_apart("-n1").assert_outcomes(passed=3)
    assert len(said("probe")) == 1


def test_two_workers_are_refused_in_one_line(run_apart: RunPytest) -> None:
    result = run_apart(*PULLS, "-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.outlines == []
    assert [line for line in result.errlines if line] == [
        "ERROR: -n2: transfer tests cannot share a machine between 2 workers: use -n1, or no -n"
    ]


@pytest.mark.parametrize("distribution", ["loadgroup", "loadscope", "loadfile"])
def test_grouping_distributions_are_refused(run_apart: RunPytest, distribution: str) -> None:
    result = run_apart(*PULLS, "-n1", f"--dist={distribution}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --dist={distribution}: transfer tests cannot run under it, *: use --dist=load"]
    )


@pytest.mark.parametrize("distribution", ["load", "worksteal"])
def test_the_others_are_not(run_apart: RunPytest, distribution: str) -> None:
    run_apart(*PULLS, "-n1", f"--dist={distribution}").assert_outcomes(passed=3)


@pytest.mark.parametrize("ini", ["", "[pytest]\ntransfer_gpus = 0,1\n"])
def test_without_options_only_the_transfer_items_are_refused(
    run_apart: RunPytest, pytester: pytest.Pytester, ini: str
) -> None:
    pytester.makeini(ini or "[pytest]\n")
    pytester.makepyfile(USERS_FILE)
    result = run_apart("-n2")
    result.assert_outcomes(passed=1, errors=2)  # two pairs
    result.stdout.fnmatch_lines(
        ["ERROR *test_mine* - Failed: -n2: transfer tests cannot share a machine between 2 workers*"]
    )


def test_a_project_without_transfers_has_as_many_workers_as_it_likes(
    run_apart: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.parametrize('i', range(6))\ndef test_other(i): pass")
    run_apart("-n2").assert_outcomes(passed=6)
    assert said("") == []


def test_a_crash_costs_one_item(run_apart: RunPytest, machine: FakeMachine, pytester: pytest.Pytester) -> None:
    machine.die = "pull-gfx-G1-G0-64M"
    result = run_apart(*PULLS, "-n1", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*worker 'gw0' crashed while running *pull-gfx-G1-G0-64M*", "verdicts: 2 NEW"])
    died, *_ = [i for i in read_journal(pytester.path / "journal.jsonl").items if i["outcome"] != "passed"]
    assert died["nodeid"].endswith("[pull-gfx-G1-G0-64M]")
    assert (died["outcome"], died["verdict"], died["measurement"]) == ("failed", None, None)
    assert died["detail"].startswith("worker 'gw0' crashed while running ")
    assert len(read_journal(pytester.path / "journal.jsonl").items) == 3


def test_a_crash_of_somebody_elses_test_is_not_in_the_journal(run_apart: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_theirs="import os\ndef test_theirs(): os.abort()")
    run_apart(*SUITE, "test_theirs.py", "--gpus=0,1", "-k", "theirs", "-n1", "--transfer-journal=journal.jsonl")
    assert read_journal(pytester.path / "journal.jsonl").items == ()


def test_crashes_do_not_use_up_the_workers(
    run_apart: RunPytest, machine: FakeMachine, pytester: pytest.Pytester
) -> None:
    machine.die = "pull-gfx-G1-G0-4M"
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("again", range(6))
        def test_it(again, transferbench):
            transferbench("(G1->G0->G0 0 4M)")
        def test_last(transferbench):
            transferbench("(G1->G0->G0 0 8M)")
        """
    )
    # With xdist's own limit of four restarts the last item would never run.
    run_apart("--gpus=0,1", "-n1").assert_outcomes(passed=1, failed=6)

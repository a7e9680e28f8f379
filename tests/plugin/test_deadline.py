"""An item that never ends is ended, with a traceback, and under a worker costs nothing else."""

from __future__ import annotations

import pytest

from pytest_transferbench.journal import read_journal
from tests.plugin.conftest import SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

PULLS = (*SUITE, "--gpus=0,1", "-k", "pull-gfx-G1-G0")


@pytest.fixture(autouse=True)
def _short_deadlines(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from pytest_transferbench.isolation import deadlines
        deadlines.deadline_seconds = lambda case, node, first: 1.0
        deadlines.CLOSE_SECONDS = 1.0
        """
    )


@pytest.mark.parametrize("ini", ["", "faulthandler_timeout = 100"])
def test_in_one_process_the_run_ends_with_a_traceback(
    run_apart: RunPytest, machine: FakeMachine, pytester: pytest.Pytester, ini: str
) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    machine.hang = "pull-gfx-G1-G0-64M"
    result = run_apart(*PULLS, "-v")
    assert result.ret == 1
    result.stderr.fnmatch_lines(["Timeout (0:00:01)!", "*in measure", "*test_p2p.py*in test_p2p"])
    result.stdout.fnmatch_lines(["*pull-gfx-G1-G0-256M[]] PASSED *"])
    result.stdout.no_fnmatch_line("*pull-gfx-G1-G0-4M*")


def test_under_a_worker_the_run_goes_on(run_apart: RunPytest, machine: FakeMachine, pytester: pytest.Pytester) -> None:
    machine.hang = "pull-gfx-G1-G0-64M"
    result = run_apart(*PULLS, "-n1", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=2, failed=1)
    result.stderr.fnmatch_lines(["Timeout (0:00:01)!"])
    result.stdout.fnmatch_lines(["*worker 'gw0' crashed while running *pull-gfx-G1-G0-64M*"])
    items = read_journal(pytester.path / "journal.jsonl").items
    assert [(item["outcome"], item["verdict"]) for item in items] == [
        ("passed", "NEW"),
        ("failed", "TIMEOUT"),
        ("passed", "NEW"),
    ]
    assert items[1]["detail"].startswith("the item's deadline passed: worker 'gw0' crashed")


ENDS_IN_SETUP = """
    import os, select, pytest
    @pytest.fixture
    def mine(transfer_buffers):
        {end}
    @pytest.mark.transferbench("G0->G0->G1", sizes="4M")
    def test_ends(transfer, mine): pass
    @pytest.mark.transferbench("G1->G1->G0", sizes="4M")
    def test_next(transfer, transferbench): transferbench(transfer)
    def test_ends_too():
        os.abort()
"""


@pytest.mark.parametrize(("end", "verdict"), [("os.abort()", None), ("select.select([], [], [], 60)", "TIMEOUT")])
def test_an_item_whose_worker_dies_in_setup_is_in_the_journal(
    run_apart: RunPytest, pytester: pytest.Pytester, end: str, verdict: str | None
) -> None:
    pytester.makepyfile(ENDS_IN_SETUP.format(end=end))
    result = run_apart("--gpus=0,1", "-n1", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=1, failed=2)
    items = read_journal(pytester.path / "journal.jsonl").items
    assert [(item["nodeid"].partition("::")[2][:9], item["outcome"], item["verdict"]) for item in items] == [
        ("test_ends", "failed", verdict),
        ("test_next", "passed", "NEW"),
    ]
    assert "worker 'gw0' crashed" in items[0]["detail"]


def test_nothing_is_left_of_what_workers_announce(
    run_apart: RunPytest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("scratch")))
    run_apart(*PULLS, "-n1").assert_outcomes(passed=3)
    assert not [path for path in (pytester.path / "scratch").iterdir() if "pytest-of" not in path.name]


@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_an_engine_that_does_not_close_keeps_no_result_back(
    run_apart: RunPytest, machine: FakeMachine, pytester: pytest.Pytester, worker: tuple[str, ...]
) -> None:
    machine.hang = "close"
    result = run_apart(*PULLS, "--junitxml=results.xml", *worker)
    result.assert_outcomes(passed=3, deselected=0 if worker else 72)
    result.stderr.fnmatch_lines(["Timeout (0:00:01)!", "*in pytest_unconfigure"])
    assert (pytester.path / "results.xml").exists()


def test_no_deadline_is_left_behind(run_apart: RunPytest, pytester: pytest.Pytester) -> None:
    # The last test outlives the deadline of the transfer item before it, and waits for nothing but its own clock.
    pytester.makepyfile(
        """
        import select
        def test_a(transferbench): transferbench("(G1->G0->G0 0 4M)")
        def test_b(): select.select([], [], [], 1.5)
        """
    )
    run_apart().assert_outcomes(passed=2)


def test_somebody_in_the_debugger_has_all_the_time(run_apart: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import select
        def test_a(transferbench, pytestconfig):
            pytestconfig.hook.pytest_enter_pdb(config=pytestconfig, pdb=None)
            select.select([], [], [], 1.5)
        """
    )
    run_apart().assert_outcomes(passed=1)

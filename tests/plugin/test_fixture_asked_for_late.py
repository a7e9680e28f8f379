"""The fixtures, asked for while a test runs: what they measure is measured as in any other item."""

from __future__ import annotations

import pytest

from pytest_transferbench.journal import read_journal
from tests.plugin.conftest import RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

LATE = """
    def test_late(request):
        request.getfixturevalue("transferbench")("(G0->G0->G1 0 4M)")
    def test_slow(request):
        request.getfixturevalue("transferbench")("(G0->G0->G1 0 8M)", floor_gbps=500)
"""
DOCTEST = """
    def f():
        '''
        >>> getfixture("transferbench")("(G0->G0->G1 0 4M)").wrong_words
        0
        '''
"""
TEXT = """
>>> getfixture("transferbench")("(G0->G0->G1 0 4M)").wrong_words
0
"""


@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_a_test_function(run_apart: RunPytest, pytester: pytest.Pytester, worker: tuple[str, ...]) -> None:
    pytester.makepyfile(LATE)
    result = run_apart("--gpus=0,1", "-v", "--transfer-journal=journal.jsonl", *worker)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["* PASSED    371.2 GB/s *", "push gfx 4M, GB/s *", "verdicts: 1 NEW, 1 SLOW"])
    result.stdout.no_fnmatch_line("*no transfer test was collected*")
    items = read_journal(pytester.path / "journal.jsonl").items
    assert [(item["outcome"], item["verdict"]) for item in items] == [("passed", "NEW"), ("failed", "SLOW")]


@pytest.mark.parametrize("file", [{"ext": ".py", "late": DOCTEST}, {"ext": ".txt", "test_late": TEXT}])
def test_a_doctest(run: RunPytest, pytester: pytest.Pytester, file: dict[str, str]) -> None:
    pytester.makefile(file.pop("ext"), **file)
    result = run("--gpus=0,1", "--doctest-modules", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["push gfx 4M, GB/s *", "verdicts: 1 NEW"])
    ((item),) = read_journal(pytester.path / "journal.jsonl").items
    assert item["key"].endswith("late/push-gfx-G0-G1-4M")


def test_an_item_that_ends_before_it_measures_is_a_transfer_item(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile('def test_late(request): request.getfixturevalue("transferbench")("G9")')
    result = run("--gpus=0,1")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*no transfer test was collected*")


@pytest.mark.parametrize("fixture", ["transferbench", "transfer_buffers"])
def test_what_is_refused_elsewhere_is_refused_here(
    run_apart: RunPytest, pytester: pytest.Pytester, fixture: str
) -> None:
    pytester.makeini("[pytest]\ntransfer_gpus = 0,1")
    pytester.makepyfile(f'def test_late(request): request.getfixturevalue("{fixture}")')
    result = run_apart("-n2")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["-n2: transfer tests cannot share a machine between 2 workers: *"])
    result.stdout.no_fnmatch_line("*plugin.py*")


@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_it_has_a_deadline(
    run_apart: RunPytest, pytester: pytest.Pytester, machine: FakeMachine, worker: tuple[str, ...]
) -> None:
    pytester.makeconftest(
        """
        from pytest_transferbench.isolation import deadlines
        deadlines.deadline_seconds = lambda case, node, first: 1.0
        """
    )
    machine.hang = "push-gfx-G0-G1-8M"
    pytester.makepyfile(LATE + "\n    def test_other(): import select; select.select([], [], [], 1.5)")
    result = run_apart("--gpus=0,1", "--transfer-journal=journal.jsonl", *worker)
    result.stderr.fnmatch_lines(["Timeout (0:00:01)!", "*in measure"])
    if worker:
        result.assert_outcomes(passed=2, failed=1)


def test_a_deadline_of_a_late_fixture_is_not_left_behind(run_apart: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from pytest_transferbench.isolation import deadlines
        deadlines.deadline_seconds = lambda case, node, first: 1.0
        """
    )
    pytester.makepyfile(
        """
        import select
        def test_late(request): request.getfixturevalue("transferbench")("(G0->G0->G1 0 4M)")
        def test_other(): select.select([], [], [], 1.5)
        """
    )
    run_apart().assert_outcomes(passed=2)

"""What somebody who runs a transfer test for the first time reads, and what a CI system files it under."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import CHECKOUT, SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

SUITE_FILE = "pytest_transferbench/suites/test_p2p.py"
ONE = (*SUITE, "--sizes=64M", "-k", "pull-gfx-G1-G0")


def test_the_suite_has_its_name_in_a_project_of_somebody_else(run: RunPytest, pytester: pytest.Pytester) -> None:
    # pytest alone gives a file named on the command line, but outside the project, an empty one: "::test_p2p[...]".
    result = run(*ONE, "-v", "--junitxml=out.xml")
    result.stdout.fnmatch_lines([f"{SUITE_FILE}::test_p2p[[]pull-gfx-G1-G0-64M] PASSED *"])
    assert 'classname="pytest_transferbench.suites.test_p2p"' in (pytester.path / "out.xml").read_text()
    # One character an item: an empty name shows as a dot, which reads like a passed one.
    run(*ONE).stdout.re_match_lines([rf".*{SUITE_FILE} \. +\[100%\]$"])


def test_the_suite_keeps_its_path_inside_its_own_project(run: RunPytest) -> None:
    result = run(*ONE, "--rootdir", str(CHECKOUT.parent), "-v")
    result.stdout.fnmatch_lines([f"*{CHECKOUT.name}/{SUITE_FILE}::test_p2p[[]*PASSED *"])


def test_failed_items_of_the_suite_can_be_run_again(run: RunPytest, machine: FakeMachine) -> None:
    machine.wrong_words = 1
    run(*ONE).assert_outcomes(failed=1, deselected=24)
    machine.wrong_words = 0
    run(*SUITE, "--sizes=64M", "--lf").assert_outcomes(passed=1, deselected=24)


def test_the_summary_stands_off_like_those_of_pytest(run: RunPytest) -> None:
    lines = run(*ONE).outlines
    title = next(index for index, line in enumerate(lines) if "= transfer bandwidth =" in line)
    assert lines[title - 1] == ""
    assert lines[title - 2].endswith("[100%]")
    assert lines[title + 1].startswith("pull gfx 64M")


def test_quiet_leaves_the_header_out(run: RunPytest) -> None:
    shown = [line for line in run(*ONE, "-q").outlines if "transferbench: " in line or line.startswith("  ")]
    assert [line.partition(", about ")[0] for line in shown] == [
        "transferbench: 1 of 25 transfer cases selected, 1 to run"
    ]


def test_the_shortest_run_takes_some_time(run: RunPytest) -> None:
    result = run(*SUITE, "--sizes=4", "--transfer-samples=1", "-k", "pull-gfx-G1-G0")
    result.stdout.fnmatch_lines(["transferbench: 1 of 25 transfer cases selected, 1 to run, about 1 s"])


def test_nothing_is_said_of_a_time_that_nobody_knows(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_named_inside(transferbench): pass")
    assert "transferbench: 1 of 1 transfer cases selected, 1 to run" in run("--gpus=0,1").outlines
    assert "transferbench: 0 of 75 transfer cases selected, 0 to run" in run(*SUITE, "-k", "nothing").outlines


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ('transferbench("G1->G0->G0")', "ValueError: no bytes in Transfer 'G1->G0->G0', and no size to use instead; *"),
        ('transferbench("(G1->Q0->G0 8 4M)")', "ValueError: *'Q0'*"),
        ("transferbench(42)", "ValueError: transferbench(42): give a Transfer, a Test or its notation, such as *"),
    ],
)
def test_a_bad_call_is_shown_where_it_was_made(run: RunPytest, pytester: pytest.Pytester, call: str, says: str) -> None:
    pytester.makepyfile(f"def test_mine(transferbench):\n    {call}\n")
    result = run("--gpus=0,1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f">   *{call}", f"E   *{says}"])
    result.stdout.fnmatch_lines(["test_*.py:2: ValueError"])
    result.stdout.no_fnmatch_line("*pytest_transferbench*: in *")


def test_the_fixture_says_what_it_is_for(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_made_for_one(transfer, transferbench):
            assert str(transferbench) == "<transferbench of pull-gfx-G1-G0-64M>"
        def test_made_for_none(transferbench):
            assert str(transferbench) == "<transferbench>"
        """
    )
    run("--gpus=0,1").assert_outcomes(passed=2)


def test_a_bad_mark_is_said_once(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench(size="4M")
        def test_mine(transfer, transferbench): pass
        """
    )
    result = run("--gpus=0,1")
    result.assert_outcomes(errors=1)
    said = [line for line in result.outlines if "has no keyword 'size'" in line and not line.startswith("ERROR ")]
    assert len(said) == 1
    assert said[0].startswith("test_mine: @pytest.mark.transferbench has no keyword 'size': use ")
    # The file that could not be collected may well have held some.
    result.stdout.no_fnmatch_line("*no transfer test was collected*")

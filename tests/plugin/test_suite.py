"""The shipped suite, from the command line to verdicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]


def selected(result: pytest.RunResult) -> list[str]:
    """The ids of ``--collect-only -q``."""
    return [line.partition("[")[2][:-1] for line in result.outlines if "::test_p2p[" in line]


@pytest.mark.parametrize("op", ["pull", "push", "local"])
def test_a_word_selects_exactly_its_kind(run: RunPytest, op: str) -> None:
    everything = selected(run(*SUITE, "--collect-only", "-q"))
    chosen = selected(run(*SUITE, "--collect-only", "-q", "-k", op))
    assert chosen == [name for name in everything if name.startswith(f"{op}-")]
    assert chosen


def test_marks_select_exactly(run: RunPytest) -> None:
    # -k 4M would take 64M as well.
    words = "transfer(op='push', exe='gfx', src='G1', dst='G0', size='4M')"
    assert selected(run(*SUITE, "--collect-only", "-q", "-m", words)) == ["push-gfx-G1-G0-4M"]


def test_pairs_of_two_gpus_pass(run: RunPytest) -> None:
    result = run(*SUITE, "--gpus=0,1", "-k", "push and not C0")
    result.assert_outcomes(passed=12, deselected=63)


def test_a_gpu_to_gpu_pull_by_dma_is_skipped_on_rocm_with_the_reason(run: RunPytest) -> None:
    result = run(*SUITE, "-k", "pull-dma-G", "-rs")
    result.assert_outcomes(skipped=6, deselected=69)
    result.stdout.fnmatch_lines(["SKIPPED*ROCm runs a copy between GPUs on the source's DMA engine*"])


def test_host_threads_do_not_touch_gpus_without_a_large_bar(run: RunPytest, machine: FakeMachine) -> None:
    machine.runtime = "cuda"
    result = run(*SUITE, "-k", "cpu", "-rs", "--sizes=4M")
    result.assert_outcomes(passed=1, skipped=4, deselected=20)
    result.stdout.fnmatch_lines(["SKIPPED*cpu cannot address memory of G*"])


def test_without_a_gpu_host_items_run_and_the_others_say_why(run: RunPytest, machine: FakeMachine) -> None:
    machine.gpus, machine.why_no_gpu = 0, "no driver is loaded"
    result = run(*SUITE, "-rs")
    result.assert_outcomes(passed=3, skipped=6)
    result.stdout.fnmatch_lines(["SKIPPED*no driver is loaded"])
    result = run(*SUITE, "-k", "pull", "-rs")
    result.assert_outcomes(skipped=2, deselected=7)


def test_the_largest_size_runs_first(run: RunPytest, said: Callable[[str], list[str]]) -> None:
    run(*SUITE, "-k", "pull-gfx-G1", "--sizes=1M,16M,4M")
    assert [line.split()[1] for line in said("measure")] == [f"pull-gfx-G1-G0-{size}" for size in ("16M", "4M", "1M")]


def test_the_machine_is_opened_once_and_closed(run: RunPytest, said: Callable[[str], list[str]]) -> None:
    run(*SUITE, "-k", "pull-gfx-G1")
    assert said("probe") == ["probe auto None"]
    assert said("open") == ["open None"]
    assert said("close") == ["close"]


@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_an_emulated_node_is_there_before_any_test_module_is_imported(
    run_apart: RunPytest,
    machine: FakeMachine,
    pytester: pytest.Pytester,
    said: Callable[[str], list[str]],
    worker: tuple[str, ...],
) -> None:
    machine.emulated = "mi300x-8"
    pytester.makepyfile(
        f"""
        from pathlib import Path
        with Path({machine.log!r}).open("a") as log:
            log.write("0 import\\n")
        def test_one(transferbench): transferbench("(G0->G0->G1 0 4M)")
        """
    )
    run_apart("--transfer-emulate=mi300x-8", *worker).assert_outcomes(passed=1)
    assert [line.split()[0] for line in said("")][:4] == ["probe", "activate", "import", "open"]
    assert said("activate") == ["activate mi300x-8"]


def test_an_emulated_node_that_comes_too_late_is_refused(run: RunPytest, machine: FakeMachine) -> None:
    machine.emulated, machine.activate_error = "mi300x-8", "cupy is already imported"
    result = run(*SUITE, "--transfer-emulate=mi300x-8")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: cupy is already imported"])


def test_a_real_node_activates_nothing(run: RunPytest, said: Callable[[str], list[str]]) -> None:
    run(*SUITE, "-k", "pull-gfx-G1")
    assert said("activate") == []


def test_what_there_is_to_do_is_said_beforehand(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench(ops="pull", sizes="1G", samples=10000)
        def test_pairs(transfer, transferbench): pass
        def test_named_inside(transferbench): pass
        """
    )
    result = run("--gpus=0,1")
    # Two pulls by gfx and one nobody knows; those by dma are skipped. 10000 samples of 4 copies of 1 GiB at 50 GB/s.
    result.stdout.fnmatch_lines(["transferbench: 5 of 5 transfer cases selected, 3 to run, about 29 min"])


@pytest.mark.parametrize("expression", ["-k=-8M", "-k=pull and -8M", "-mtransfer(size='8M')"])
def test_a_size_is_selected_without_those_that_end_alike(run: RunPytest, expression: str) -> None:
    chosen = selected(run(*SUITE, "--sizes=8M,128M", "--ops=pull", "--collect-only", "-q", expression))
    assert len(chosen) > 1
    assert all(name.endswith("-8M") for name in chosen)


def test_collecting_opens_nothing(run: RunPytest, said: Callable[[str], list[str]]) -> None:
    run(*SUITE, "--collect-only")
    assert said("probe")
    assert not said("open")


def test_ten_thousand_cases_are_collected_and_thinned_unless_asked(run: RunPytest, machine: FakeMachine) -> None:
    machine.gpus = 16
    asked = (*SUITE, "--collect-only", "-q", "--sizes=4K..2M", "--ops=push,pull", "--executors=gfx,dma")
    result = run(*asked)
    result.stdout.fnmatch_lines(["*more than 5000: one pair for each link class of each device is run*"])
    assert len(selected(result)) < 5000
    assert len(selected(run(*asked, "--transfer-all-pairs"))) == 10 * 2 * 2 * (16 * 15 + 16)


@pytest.mark.parametrize("pattern", ["check_*.py", "test_*.py"])
def test_suites_are_collected_once_whatever_python_files_says(
    run: RunPytest, pytester: pytest.Pytester, pattern: str
) -> None:
    pytester.makeini(f"[pytest]\npython_files = {pattern}")
    result = run("--pyargs", "pytest_transferbench.suites", "--collect-only", "-q", "-k", "pull-gfx-G0-G1-4M")
    assert selected(result) == ["pull-gfx-G0-G1-4M"]

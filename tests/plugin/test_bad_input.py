"""Every refusal is exit 4 and one line, in one process and in front of xdist's workers."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

NO_GPU = "no driver is loaded"

REFUSALS = [
    (2, ["--gpus=0,9"], "--gpus=0,9: no GPU 9; this node has GPUs 0-1"),
    (2, ["--gpus=x"], "--gpus=x: bad GPU index 'x': give indices such as 0,1, or all"),
    (2, ["--gpus=0,0"], "--gpus=0,0: GPU 0 is named twice: give every index once"),
    (0, ["--gpus=all"], f"--gpus=all: this node has no GPU: {NO_GPU}"),
    (2, ["--sizes=4Q"], "--sizes=4Q: bad size '4Q': *"),
    (2, ["--sizes=512M..8M"], "--sizes=512M..8M: bad range '512M..8M': its end is below its start; *"),
    (
        2,
        ["--executors=warp"],
        "--executors=warp: unknown executor 'warp': use C or cpu, G or gfx, D or *",
    ),
    (2, ["--transfer-rotate=-1"], "--transfer-rotate=-1: bad size '-1': *"),
    (2, ["--transfer-rotate=1e9"], "--transfer-rotate=1e9: bad size '1e9': *"),
    (2, ["--transfer-rotate=12Q"], "--transfer-rotate=12Q: bad size '12Q': *"),
    (2, ["--transfer-rotate=99999999999G"], "--transfer-rotate=99999999999G: size * is too large: *"),
    (0, ["--transfer-runtime=rocm"], f"--transfer-runtime=rocm: {NO_GPU}"),
]


def assert_refused(result: pytest.RunResult, says: str) -> None:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.outlines == []
    assert [line for line in result.errlines if line] == [line for line in result.errlines if line.startswith("ERROR")]
    result.stderr.fnmatch_lines_random([f"ERROR: {says}"])
    assert len([line for line in result.errlines if line]) == 1


@pytest.mark.parametrize(("gpus", "options", "says"), REFUSALS)
def test_in_one_process(run: RunPytest, machine: FakeMachine, gpus: int, options: list[str], says: str) -> None:
    machine.gpus, machine.why_no_gpu = gpus, None if gpus else NO_GPU
    assert_refused(run(*SUITE, *options), says)


@pytest.mark.parametrize(("gpus", "options", "says"), REFUSALS)
def test_in_front_of_a_worker(
    run_apart: RunPytest, machine: FakeMachine, gpus: int, options: list[str], says: str
) -> None:
    machine.gpus, machine.why_no_gpu = gpus, None if gpus else NO_GPU
    assert_refused(run_apart(*SUITE, *options, "-n1"), says)


def test_what_the_probe_refuses(run: RunPytest, machine: FakeMachine) -> None:
    machine.probe_error = "no node model 'nosuch': use mi300x-8"
    assert_refused(run(*SUITE, "--transfer-emulate=nosuch"), "no node model 'nosuch': use mi300x-8")


@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_a_journal_that_cannot_be_written(
    run_apart: RunPytest, pytester: pytest.Pytester, worker: tuple[str, ...]
) -> None:
    pytester.mkdir("folder")
    result = run_apart(*SUITE, "--transfer-journal=folder", *worker)
    assert_refused(result, "the journal folder cannot be written: Is a directory")


@pytest.mark.parametrize("name", ["journal", "emulate"])
@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_a_nul_in_the_ini_file(
    run_apart: RunPytest, pytester: pytest.Pytester, name: str, worker: tuple[str, ...]
) -> None:
    pytester.makeini(f"[pytest]\ntransfer_{name} = a\0b")
    result = run_apart(*SUITE, *worker)
    assert_refused(result, f"transfer_{name}='a??00b': a path holds no NUL character: give the name of a file")


def test_also_where_there_is_no_transfer_test(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_other(): pass")
    assert_refused(run("--gpus=7"), "--gpus=7: no GPU 7; this node has GPUs 0-1")


def test_a_value_in_the_ini_file(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntransfer_sizes = 4Q")
    assert_refused(run(*SUITE), "transfer_sizes=4Q: bad size '4Q': *")


def test_a_type_the_ini_file_does_not_take(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.pytest]\ntransfer_sizes = ['64K', '1M']")
    assert_refused(
        run(*SUITE),
        "*config option 'transfer_sizes' expects *; give it as one text, as after --transfer-sizes=",
    )


def test_no_truth_value_in_the_ini_file(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntransfer_all_pairs = maybe")
    assert_refused(run(*SUITE), "transfer_all_pairs in the ini file: *'maybe': use true or false")


@pytest.mark.parametrize("value", ["-1", "1e9", "12Q", "99999999999G"])
def test_environment_alone_is_a_usage_error_once_transfer_tests_are_there(
    run: RunPytest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SRC_ROTATE_BYTES", value)
    result = run(*SUITE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: SRC_ROTATE_BYTES={value}: *size '{value}'*"])
    pytester.makepyfile("def test_other(): pass")
    run("test_environment_alone_is_a_usage_error_once_transfer_tests_are_there.py").assert_outcomes(passed=1)


def test_environment_alone_fails_each_item_in_a_worker(
    run_apart: RunPytest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRC_ROTATE_BYTES", "12Q")
    pytester.makepyfile(
        """
        def test_one(transfer, transferbench): transferbench(transfer)
        def test_two(transferbench): transferbench("(G0->G0->G1 0 4M)")
        def test_other(): pass
        """
    )
    result = run_apart("-n1")
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["ERROR *::test_two - Failed: SRC_ROTATE_BYTES=12Q: bad size '12Q': *"])


def test_environment_alone_is_said_also_where_a_worker_runs_no_transfer_item(
    run_apart: RunPytest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRC_ROTATE_BYTES", "12Q")
    pytester.makepyfile(test_users="def test_other(): pass")
    for selected in ("pull", "pull or other"):
        result = run_apart(*SUITE, "test_users.py", "-n1", "-k", selected)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stdout.fnmatch_lines(["ERROR: SRC_ROTATE_BYTES=12Q: bad size '12Q': *"])


@pytest.mark.parametrize("option", ["--help", "--version", "--markers", "--fixtures", "--fixtures-per-test"])
def test_what_only_informs_always_works(run: RunPytest, pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile("def test_one(transfer, transferbench): transferbench(transfer)")
    result = run(option, "--gpus=x", "--sizes=4Q")
    assert result.ret == 0


def test_an_engine_that_does_not_open_fails_every_item_in_one_line(run: RunPytest, machine: FakeMachine) -> None:
    machine.open_fault = "no device"
    result = run(*SUITE, "-k", "pull-gfx-G1", "--tb=line")
    result.assert_outcomes(failed=3, deselected=72)
    result.stdout.fnmatch_lines(
        ["FAILED *[[]pull-gfx-G1-G0-64M] - Failed: the GPU runtime does not open: hipInit on the host failed: *device"]
    )

"""Planned faults as a user sees them: which items fail, with which line, in one process and in a worker."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")

ITEMS = """
    import pytest

    @pytest.mark.transferbench(ops="push", executors="dma", sizes="64K")
    def test_pushes(transfer, transferbench):
        transferbench(transfer)
"""
OPTIONS = ("--gpus=0,1,2", "--transfer-samples=1", "--transfer-rotate=128K", "-rf")
FAULT = """
extends = "mi300x-8"
[device]
last_level_cache = "64K"
[[fault]]
call = "hipMemcpyAsync"
nth = 1
code = "hipErrorLaunchFailure"
"""
SAID = (
    "DEVICE_ERROR: test_faulty/push-dma-G0-G1-64K: hipMemcpyAsync on GPU 0 failed: "
    "hipErrorLaunchFailure unspecified launch failure (kind 1024, by the DMA engine)"
)

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, run_elsewhere: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the six pushes between three GPUs of a node with the faults of a model file."""
    monkeypatch.setenv("COLUMNS", "500")
    pytester.makepyfile(test_faulty=ITEMS)

    def run(model: str, *arguments: str) -> pytest.RunResult:
        pytester.makefile(".toml", faulty=model)
        return run_elsewhere("--transfer-emulate=faulty.toml", *OPTIONS, *arguments)

    return run


def failures(result: pytest.RunResult) -> dict[str, str]:
    """Return the id of every failed item and the line it failed with."""
    lines = [line for line in result.outlines if line.startswith("FAILED ")]
    return {line.partition("[")[2].partition("]")[0]: line.partition(" - ")[2] for line in lines}


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n1")], ids=["alone", "worker"])
def test_one_item_fails_and_the_others_are_right(run: Run, workers: tuple[str, ...]) -> None:
    result = run(FAULT, *workers)
    result.assert_outcomes(failed=1, passed=5)
    assert failures(result) == {"push-dma-G0-G1-64K": SAID}


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n1")], ids=["alone", "worker"])
def test_a_lost_gpu_fails_its_items_at_once_and_no_others(run: Run, workers: tuple[str, ...]) -> None:
    result = run(FAULT + "sticky = true\n", *workers)
    result.assert_outcomes(failed=4, passed=2)
    lost = "GPU 0 was lost in push-dma-G0-G1-64K: "
    told = failures(result)
    assert told.pop("push-dma-G0-G1-64K") == SAID
    assert set(told) == {"push-dma-G0-G2-64K", "push-dma-G1-G0-64K", "push-dma-G2-G0-64K"}
    for name, line in told.items():
        assert line.startswith(f"DEVICE_ERROR: test_faulty/{name}: {lost}hipMemcpyAsync on GPU 0 failed: ")


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n1")], ids=["alone", "worker"])
def test_items_that_hold_buffers_fail_as_the_others_do(
    run: Run, pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_faulty=ITEMS.replace("transferbench):", "transferbench, transfer_buffers):"))
    result = run(FAULT + "sticky = true\n", "-v", *workers)
    result.assert_outcomes(failed=4, passed=2)
    told = failures(result)
    assert told.pop("push-dma-G0-G1-64K") == SAID
    assert len(told) == 3
    assert all("GPU 0 was lost in push-dma-G0-G1-64K: " in line for line in told.values())
    for ours in ("*plugin.py*", "*contextlib*", "*rotation unknown*"):
        result.stdout.no_fnmatch_line(ours)


SECOND_FAULT = """
[[fault]]
call = "hipModuleLaunchKernel"
nth = 1000000
code = "hipErrorIllegalAddress"
device = 2
"""
PENDING = "warning: fault 2 never happened: hipModuleLaunchKernel was used * times on GPU 2, not 1000000"


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n1")], ids=["alone", "worker"])
def test_planned_faults_are_announced_and_those_that_never_happened_named(run: Run, workers: tuple[str, ...]) -> None:
    result = run(FAULT + SECOND_FAULT, *workers)
    result.assert_outcomes(failed=1, passed=5)
    result.stdout.fnmatch_lines(
        ["transferbench: EMULATED node faulty*", "  model faulty extends mi300x-8, 2 planned faults"]
    )
    result.stdout.fnmatch_lines(["verdicts: *", PENDING])
    result.stdout.no_fnmatch_line("*fault 1 never happened*")


def test_nothing_is_said_of_faults_where_a_worker_took_its_count_with_it(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a_death="import os\n\ndef test_death(transfer_node): os.abort()")
    result = run(FAULT + SECOND_FAULT, "-p", "xdist", "-n1")
    result.assert_outcomes(failed=2, passed=5)
    result.stdout.no_fnmatch_line("*never happened*")


def test_nothing_is_said_of_faults_where_nothing_was_measured(run: Run) -> None:
    result = run(FAULT + SECOND_FAULT, "--collect-only")
    result.stdout.fnmatch_lines(["  model faulty extends mi300x-8, 2 planned faults"])
    result.stdout.no_fnmatch_line("*never happened*")


def test_running_out_of_memory_says_what_to_do(run: Run) -> None:
    memory = FAULT.replace("hipMemcpyAsync", "hipMalloc").replace("LaunchFailure", "OutOfMemory")
    result = run(memory)
    result.assert_outcomes(failed=1, passed=5)
    ((name, line),) = failures(result).items()
    start = (
        f"DEVICE_ERROR: test_faulty/{name}: hipMalloc on GPU 0 failed: hipErrorOutOfMemory out of memory (4096 bytes "
    )
    assert line.startswith(start)
    assert line.endswith("use smaller sizes (--transfer-sizes) or a smaller rotation (--transfer-rotate)")


def test_a_fault_while_the_machine_is_looked_at_is_one_usage_error(run: Run) -> None:
    result = run(FAULT.replace("hipMemcpyAsync", "hipGetDeviceCount"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *no ROCm device: hipGetDeviceCount failed: hipErrorLaunchFailure: *"])


def test_a_bad_fault_is_one_usage_error(run: Run) -> None:
    result = run(FAULT.replace("hipMemcpyAsync", "hipMemcpyAsinc"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: faulty.toml: fault 1.call = 'hipMemcpyAsinc' is not in the emulated HIP; meant: hipMemcpyAsync*"]
    )


WRONG_DATA = """
    import numpy, pytest

    @pytest.mark.transferbench("G0->G1->G1", sizes="64K")
    @pytest.mark.parametrize("data", [bytes(8), "text", [1], numpy.zeros(16384, dtype=object)], ids=list("abcd"))
    @pytest.mark.parametrize("fixture", ["transferbench", "transfer_buffers"])
    def test_data(transfer, transferbench, fixture, request, data):
        request.getfixturevalue(fixture)
        transferbench(transfer, data=data)
"""


def test_wrong_data_is_refused_at_the_users_own_line(pytester: pytest.Pytester, run_elsewhere: Run) -> None:
    pytester.makepyfile(test_mine=WRONG_DATA)
    result = run_elsewhere("--transfer-emulate=mi300x-8", *OPTIONS)
    result.assert_outcomes(failed=8)
    assert len([line for line in result.outlines if line.startswith("E ")]) == 8
    result.stdout.fnmatch_lines([">*transferbench(transfer, data=data)", "*", "E  *ValueError: data has 8 bytes; *"])
    for ours in ("item.py", "lease.py", "run.py", "bench.py"):
        result.stdout.no_fnmatch_line(f"*{ours}*")


OWN_KERNEL = """
    import pytest

    @pytest.mark.transferbench("G0->G1->G1", sizes="64K", variant="mine")
    def test_own_kernel(transfer, {fixture}):
        import cupy
        store = cupy.RawKernel('extern "C" __global__ void store(unsigned* p) {{ p[1ull << 40] = 1; }}', "store")
        with cupy.cuda.Device(1):
            store((1,), (1,), (cupy.zeros(4, dtype=cupy.uint32),))
            cupy.cuda.Device(1).synchronize()

    @pytest.mark.transferbench("G0->G1->G1", "G0->G0->G2", sizes="64K")
    def test_next(transfer, transferbench):
        transferbench(transfer)
"""


@pytest.mark.parametrize("fixture", ["transfer_buffers", "transferbench"])
def test_a_gpu_lost_by_a_kernel_of_the_users_own_is_blamed_on_its_item(
    pytester: pytest.Pytester, run_elsewhere: Run, monkeypatch: pytest.MonkeyPatch, fixture: str
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    code = OWN_KERNEL.format(fixture=fixture)
    if fixture == "transferbench":
        code = code.replace("        import cupy\n", "        transferbench(transfer)\n        import cupy\n")
    pytester.makepyfile(test_mine=code)
    result = run_elsewhere("--transfer-emulate=mi300x-8", *OPTIONS)
    result.assert_outcomes(failed=2, passed=1)
    (line,) = [line for line in failures(result).values() if "DEVICE_ERROR" in line]
    assert line.startswith("DEVICE_ERROR: test_mine/pull-gfx-G0-G1-64K: GPU 1 was lost in pull-gfx-G0-G1-64K-mine: ")
    assert "hipErrorIllegalAddress" in line

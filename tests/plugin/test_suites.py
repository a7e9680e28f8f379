"""The suites shaped like TransferBench's presets: what each collects, what it fails for, and its table at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]


def suite(name: str) -> tuple[str, str]:
    return "--pyargs", f"pytest_transferbench.suites.test_{name}"


def ids(result: pytest.RunResult) -> list[str]:
    return [line.rpartition("[")[2][:-1] for line in result.outlines if "::test_" in line]


def collected(run: RunPytest, name: str, *arguments: str) -> list[str]:
    return ids(run(*suite(name), "--collect-only", "-q", *arguments))


def test_bmasweep_is_all_sizes_by_dma_and_by_batches(run: RunPytest, machine: FakeMachine) -> None:
    machine.gpus = 8
    found = collected(run, "bmasweep")
    assert len(found) == 19 * 5
    assert found[0] == "push-dma-G0-G1-1G"
    assert found[-1] == "push-batch8-G0-G1-4K"
    assert len(collected(run, "bmasweep", "--gpus=0,3,4")) == 2 * 19 * 5
    assert len(collected(run, "bmasweep", "--gpus=all")) == 7 * 19 * 5
    local = collected(run, "bmasweep", "--transfer-local-copies", "-k", "local")
    assert (len(local), local[-1]) == (19 * 5, "local-batch8-G0-G0-4K")
    chosen = ("--sizes=64M", "--transfer-subexecutors=2,16", "--executors=batch,gfx")
    assert collected(run, "bmasweep", *chosen) == [
        f"push-{exe}-G0-G1-64M" for exe in ("batch2", "batch16", "gfx2", "gfx16")
    ]


def test_bmasweep_prints_its_table(run: RunPytest, machine: FakeMachine) -> None:
    machine.gbps_of = {"push-batch1-G0-G1-1M": 50.0, "push-batch8-G0-G1-1M": 22.0}
    result = run(*suite("bmasweep"), "--sizes=1M")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(
        [
            "push G0 -> G1 (xGMI), GB/s (steady median); T(k)/T(1): batch efficiency",
            "  Bytes |      DMA |  BMA (1)  BMA (2)  BMA (4)  BMA (8) | T(2)/T(1) T(4)/T(1) T(8)/T(1)",
            "1048576 |   371.20 |    50.00   371.20   371.20    22.00 |     7.424     7.424     0.440",
            "",
            "verdicts: 5 NEW",
        ],
        consecutive=True,
    )


def test_scaling_goes_to_every_end_by_every_number_of_blocks(run: RunPytest, machine: FakeMachine) -> None:
    machine.gpus = 4
    found = collected(run, "scaling")
    assert len(found) == 3 * 32
    assert {"push-gfx1-G0-C0-64M", "local-gfx32-G0-G0-64M", "push-gfx32-G0-G1-64M"} <= set(found)
    assert len(collected(run, "scaling", "--gpus=all")) == 5 * 32
    machine.gbps_of = {"push-gfx2-G0-G1-64M": 372.5}
    result = run(*suite("scaling"), "--transfer-subexecutors=1..3")
    result.assert_outcomes(passed=9)
    result.stdout.fnmatch_lines(["        best | 371.20(  1) 371.20(  1) 372.50(  2)"])


def test_gfxsweep_is_every_shape(run: RunPytest, machine: FakeMachine) -> None:
    found = collected(run, "gfxsweep")
    assert len(found) == 36
    assert found[:2] == ["push-gfx4-G0-G1-64M-b256-u1", "push-gfx4-G0-G1-64M-b256-u2"]
    assert len(collected(run, "gfxsweep", "--transfer-block-threads=128,512", "--transfer-local-copies")) == 2 * 72
    machine.gbps_of = {"push-gfx8-G0-G1-64M-b512-u2": 380.0}
    result = run(
        *suite("gfxsweep"), "--transfer-subexecutors=8", "--transfer-block-threads=512", "--transfer-unroll=2,4"
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "push gfx G0 -> G1 (xGMI) 64M, 512 threads a block, GB/s (steady median)",
            "SubExecutors\\unroll |        2        4",
            "                  8 |   380.00   371.20",
            "best: 380.00 GB/s, 8 SubExecutors x 512 threads, unroll 2",
        ],
        consecutive=True,
    )


def test_hbm_reads_writes_and_copies_on_every_gpu(run: RunPytest) -> None:
    assert collected(run, "hbm") == [
        f"local-gfx-{ends}-1G" for ends in ("G0-N", "G1-N", "N-G0", "N-G1", "G0-G0", "G1-G1")
    ]
    result = run(*suite("hbm"), "--gpus=1")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines([" G1 |    371.2    371.2    371.2 |    742.4               14.0 %"])


def test_smoketest_checks_every_sample_of_every_kind_of_copy(
    run: RunPytest, machine: FakeMachine, said: Callable[[str], list[str]]
) -> None:
    machine.gpus, machine.tell_samples = 3, True
    result = run(*suite("smoketest"))
    result.assert_outcomes(passed=180, skipped=24)
    assert "Copy (D2D) (Remote Read)  |  .... |  .... |  ****" in result.outlines
    assert "Gather (All to One)       |  .... |  .... |  ****" in result.outlines
    assert set(said("samples")) == {"samples 2 validate=each"}


def test_smoketest_marks_what_failed(run: RunPytest, machine: FakeMachine) -> None:
    machine.wrong_words = 3
    result = run(*suite("smoketest"), "--sizes=4", "-k", "push-dma-G0-G1 or local-gfx")
    result.assert_outcomes(failed=3, deselected=33)
    result.stdout.fnmatch_lines(["Copy (Local) * |     . |     F", "3 of 3 failed"])


def test_healthcheck_passes_a_gpu_within_its_share_of_what_is_published(run: RunPytest, machine: FakeMachine) -> None:
    """An MI300X by architecture and compute units, its links slower than those it is compared with."""
    machine.gbps, machine.link_gbps = 48.6, 64.0
    result = run(*suite("healthcheck"), "-k", "not local")
    result.assert_outcomes(passed=6, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "push-gfx-G0-G1-256M | 48.6  46.4        105 % PASS  [[]1]",
            "pull-dma-C0-G1-256M | 48.6  48.5        100 % PASS  [[]3]",
            "[[]1] 0.97 x 47.85 GB/s: TransferBench documentation, p2p on 8 MI300X, lowest of 56 pairs, read *",
        ]
    )


def test_healthcheck_fails_a_slow_gpu_in_one_line(run: RunPytest, machine: FakeMachine) -> None:
    machine.gbps, machine.link_gbps = 40.0, 64.0
    result = run(*suite("healthcheck"), "-k", "push-gfx-G0-G1")
    result.assert_outcomes(failed=1, deselected=7)
    result.stdout.fnmatch_lines(
        [
            "E*SLOW: 40.0 GB/s is 13.8 % under the floor of 46.4 GB/s (0.97 x 47.85 GB/s: TransferBench documentation, "
            "p2p on 8 MI300X, lowest of 56 pairs, read 2026-11-30)",
            "push-gfx-G0-G1-256M | 40.0  46.4         86 % FAIL  [[]1]",
        ]
    )


def test_healthcheck_of_a_gpu_that_nobody_knows(run: RunPytest, machine: FakeMachine) -> None:
    machine.arch, machine.link_gbps = "gfx999", 64.0
    machine.gbps = 33.0
    result = run(*suite("healthcheck"), "-k", "push-gfx-G0-G1 or push-dma-G0")
    result.assert_outcomes(passed=2, deselected=6)
    result.stdout.fnmatch_lines(["[[]1] 0.5 x 64.0 GB/s: xGMI, a fake table"])
    machine.link_gbps = None
    result = run(*suite("healthcheck"), "-k", "push-gfx-G0-G1")
    result.stdout.fnmatch_lines(["push-gfx-G0-G1-256M | 33.0     -            - shown"])

"""The main job on the emulated node: every figure is the model's own arithmetic, and nothing else."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from pytest_transferbench.journal import read_journal
from pytest_transferbench.transfer import Transfer, parse_transfer

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")

MODEL = tomllib.loads((files("pytest_transferbench.emulator") / "models" / "mi300x-8.toml").read_text())
RunPytest = Callable[..., pytest.RunResult]
SUITE = "pytest_transferbench.suites.test_p2p"


def run(run_elsewhere: RunPytest, *arguments: str) -> tuple[pytest.RunResult, dict[str, dict[str, Any]]]:
    """Run the shipped suite on the emulated node; return the result and the journal's measurements by name."""
    journal = Path(f"{len(list(Path().glob('*.jsonl')))}.jsonl").absolute()
    result = run_elsewhere(
        "--pyargs", SUITE, "--transfer-emulate=mi300x-8", f"--transfer-journal={journal}", *arguments, timeout=300
    )
    return result, measurements(journal)


def measurements(journal: Path) -> dict[str, dict[str, Any]]:
    return {
        item["measurement"]["key"].split("/")[-1]: item["measurement"]
        for item in read_journal(journal).items
        if item.get("measurement")
    }


def expected_seconds(transfer: Transfer, copies: int) -> float:
    """Return what one of ``copies`` gated copies takes on average, from the model file alone."""
    source, destination = transfer.sources[0], transfer.destinations[0]
    link = "local" if source == destination else "host" if "C" in (source.kind, destination.kind) else "xgmi"
    usable = MODEL["link"][link]["usable_gbps"]
    if transfer.executor.kind == "D":
        return MODEL["dma"]["issue_us"] * 1e-6 + transfer.nbytes / (min(usable, MODEL["dma"]["rate_gbps"]) * 1e9)
    set_up = (MODEL["gfx"]["launch_us"] + MODEL["link"][link]["first_us"]) * 1e-6
    moving = transfer.nbytes / (usable * 1e9)
    first, later = set_up + moving, max(set_up, set_up - MODEL["gfx"]["overlap_us"] * 1e-6 + moving)
    return (first + (copies - 1) * later) / copies


def assert_arithmetic(measured: dict[str, dict[str, Any]]) -> None:
    for name, measurement in measured.items():
        transfer = parse_transfer(measurement["transfer"])
        for arm in measurement["arms"]:
            for seconds in arm["seconds"]:
                assert seconds == pytest.approx(expected_seconds(transfer, arm["copies"]), rel=5e-3), (
                    name,
                    arm["name"],
                )
        assert measurement["figures"]["warm_cold"] == pytest.approx(1.0, abs=0.01)
        assert measurement["emulated"] == "mi300x-8"


def test_the_main_job(run_elsewhere: RunPytest) -> None:
    result, measured = run(
        run_elsewhere, "--gpus=0,1", "-k", "pull and not C0", "--sizes=1M,4M", "--transfer-samples=3"
    )
    assert result.ret == 0
    assert sorted(measured) == [f"pull-gfx-{pair}-{size}" for pair in ("G0-G1", "G1-G0") for size in ("1M", "4M")]
    assert_arithmetic(measured)
    # A 256 MiB cache asks for a budget of 512 MiB.
    assert measured["pull-gfx-G1-G0-4M"]["context"]["slices"] == 128
    assert measured["pull-gfx-G1-G0-4M"]["context"]["span_bytes"] == 512 << 20
    result.stdout.fnmatch_lines(["*EMULATED*", "*K=128 x 4M*= 512M*"])


def test_two_runs_give_identical_figures(run_elsewhere: RunPytest) -> None:
    arguments = (
        "--gpus=0,1",
        "-k",
        "(push or pull) and not C0",
        "--sizes=1M",
        "--transfer-samples=3",
        "--transfer-rotate=8M",
    )
    (_, one), (_, other) = run(run_elsewhere, *arguments), run(run_elsewhere, *arguments)
    assert one
    assert {name: m["arms"] for name, m in one.items()} == {name: m["arms"] for name, m in other.items()}


def test_dma_host_and_local_follow_the_model_too(run_elsewhere: RunPytest) -> None:
    selected = "(dma or C0 or local) and not cpu"
    result, measured = run(run_elsewhere, "--gpus=0", "--sizes=1M", "--transfer-samples=3", "-k", selected)
    assert result.ret == 0
    assert len(measured) == 6
    assert_arithmetic(measured)


def test_sources_are_prepared_on_their_device(pytester: pytest.Pytester, run_elsewhere: RunPytest) -> None:
    """Slices are filled by a kernel: nothing but flags and results crosses from the host."""
    pytester.makepyfile(
        test_prepared="""
        import pytest

        @pytest.mark.transferbench("(G1->G0->G0 0 4M)")
        def test_prepared(transfer, transfer_buffers, transferbench):
            from pytest_transferbench.emulator import activate

            node = activate("mi300x-8")
            transferbench(transfer)
            before = node.moved_bytes(-1, 1)
            transfer_buffers.fill(77)
            transfer_buffers.source_region.agent.synchronize()
            assert node.moved_bytes(-1, 1) == before
            assert len(transfer_buffers.slices) == 128
        """
    )
    result = run_elsewhere("--transfer-emulate=mi300x-8", "--gpus=0,1", "--transfer-samples=3")
    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_all_pairs_of_the_node(run_elsewhere: RunPytest) -> None:
    selected = "gfx and push and not C0"
    result, measured = run(run_elsewhere, "--gpus=all", "--sizes=1M", "--transfer-rotate=8M", "-k", selected)
    assert result.ret == 0
    assert len(measured) == 56
    assert_arithmetic(measured)

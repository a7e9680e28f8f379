"""The main job on the emulated node: every figure is the model's own arithmetic, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from pytest_transferbench.journal import read_journal
from pytest_transferbench.transfer import Transfer, parse_transfer

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")

MODEL = tomllib.loads((files("pytest_transferbench.emulator") / "models" / "mi300x-8.toml").read_text())
ROOT = Path(__file__).parent.parent
SUITE = "pytest_transferbench.suites.test_p2p"


class Run:
    """One child process running the shipped suite on the emulated node: its exit status, screen and journal."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        journal = folder / "journal.jsonl"
        loaded = () if entry_points(group="pytest11", name="transferbench") else ("-p", "pytest_transferbench.plugin")
        command = [sys.executable, "-m", "pytest", *loaded, "--pyargs", SUITE, *arguments]
        options = ["--transfer-emulate=mi300x-8", f"--transfer-journal={journal}", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([*command, *options], cwd=folder, env=environment, capture_output=True, text=True)
        self.status = done.returncode
        self.screen = done.stdout + done.stderr
        self.measured = measurements(journal)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """GPU pairs, host and local copies, by every executor, at one size and few samples."""
    folder = tmp_path_factory.mktemp("emulated")
    few = ("--sizes=1M", "--transfer-samples=3", "--transfer-rotate=8M")
    return Run(folder, "--gpus=0,1", *few, "-k", "not cpu", "-rs")


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
    read_over = "local" if transfer.op == "push" else link
    set_up = (MODEL["gfx"]["launch_us"] + MODEL["link"][read_over]["first_us"]) * 1e-6
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


def test_every_figure_is_the_models_own(run: Run) -> None:
    assert run.status == 0, run.screen
    pairs = [f"{op}-gfx-{pair}-1M" for op in ("pull", "push") for pair in ("G0-G1", "G1-G0")]
    dma = ["push-dma-G0-G1-1M", "push-dma-G1-G0-1M"]
    host = [f"pull-{exe}-C0-G{gpu}-1M" for exe in ("gfx", "dma") for gpu in (0, 1)]
    host += [f"push-{exe}-G{gpu}-C0-1M" for exe in ("gfx", "dma") for gpu in (0, 1)]
    local = [f"local-{exe}-G{gpu}-G{gpu}-1M" for exe in ("gfx", "dma") for gpu in (0, 1)]
    assert sorted(run.measured) == sorted([*pairs, *dma, *host, *local])
    assert_arithmetic(run.measured)


def test_the_screen_says_that_it_is_emulated_and_how_it_rotated(run: Run) -> None:
    assert "EMULATED" in run.screen
    assert "K=8 x 1M (pitch 1048576) = 8M" in run.screen
    assert "blocks x 256 threads" in run.screen
    assert "DMA engine whatever stream it is given: use push-dma" in run.screen


@pytest.mark.slow
def test_two_runs_give_identical_figures(tmp_path: Path) -> None:
    few = ("--transfer-samples=3", "--transfer-validate=off")  # what they moved is proved above
    arguments = ("--gpus=0,1", "-k", "(push or pull) and not cpu", "--sizes=1M,4M", *few)
    runs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        runs.append(Run(tmp_path / name, *arguments, "--transfer-rotate=8M").measured)
    assert runs[0]
    figures = [{name: measurement["arms"] for name, measurement in run.items()} for run in runs]
    assert figures[0] == figures[1]


@pytest.mark.slow
def test_four_megabytes_by_default(tmp_path: Path) -> None:
    """A 256 MiB cache asks for a budget of 512 MiB."""
    run = Run(tmp_path, "--gpus=0,1", "-k", "pull and gfx and not C0", "--sizes=4M")
    assert run.status == 0, run.screen
    assert_arithmetic(run.measured)
    assert "K=128 x 4M (pitch 4194304) = 512M" in run.screen


@pytest.mark.slow
def test_all_pairs_of_the_node(tmp_path: Path) -> None:
    selected = "gfx and push and not C0"
    run = Run(tmp_path, "--gpus=all", "--sizes=1M", "--transfer-rotate=8M", "-k", selected)
    assert run.status == 0, run.screen
    assert len(run.measured) == 56
    assert_arithmetic(run.measured)

"""A suite on an emulated node, in a process of its own, and what it measured."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pytest_transferbench.journal import read_journal

ROOT = Path(__file__).parent.parent
SUITE = "pytest_transferbench.suites.test_rotation"
Figures = dict[str, dict[str, Any]]
SWEPT = (2, 4, 8, 16, 32, 64, 128, 256, 512)
"""MiB: all sizes of the suite."""
UNPROVED = "--transfer-validate=off"
"""For figures alone: the sweep of test_rotation_study.py proves what its copies moved."""


def study(folder: Path, model: str | Path, *arguments: str, suite: str = SUITE) -> tuple[str, Figures]:
    """Run a suite in a process of its own and return its screen, and the measurements by the case's name."""
    journal = folder / "journal.jsonl"
    loaded = () if entry_points(group="pytest11", name="transferbench") else ("-p", "pytest_transferbench.plugin")
    command = [sys.executable, "-m", "pytest", *loaded, "--pyargs", suite, f"--transfer-emulate={model}"]
    done = subprocess.run(
        [*command, f"--transfer-journal={journal}", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = [item["measurement"] for item in read_journal(journal).items if item.get("measurement")]
    return done.stdout, {measurement["key"].partition("/")[2]: measurement for measurement in made}


def figures(found: Figures, name: str) -> dict[str, float]:
    return dict(found[name]["figures"])


def mutated(folder: Path, text: str) -> Path:
    path = folder / "mutated.toml"
    path.write_text(f'extends = "gfx1250-dpx"\n{text}\n', encoding="utf-8")
    return path

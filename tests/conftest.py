"""Shared helpers assert too: their failures deserve pytest's full account. And a way to run pytest elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import hypothesis
import pytest

# The same examples every time, and no objection to a machine that is busy with something else.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")
pytest.register_assert_rewrite("tests.engine.proof", "tests.refusals")

ROOT = Path(__file__).parent.parent
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
PLUGIN = "pytest_transferbench.plugin"


@pytest.fixture
def run_elsewhere(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run pytest in a child process and an empty folder, with this checkout's plugin, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    # pytester moves the home folder; the emulated node must not be built anew for every test.
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)
    by_itself = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    loaded = () if by_itself and "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ else ("-p", PLUGIN)

    def run(*arguments: str, timeout: float = 120) -> pytest.RunResult:
        return pytester.runpytest_subprocess(*loaded, *arguments, timeout=timeout)

    return run

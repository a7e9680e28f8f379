from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin import fake_machine
from tests.plugin.fake_machine import FakeMachine

CHECKOUT = Path(__file__).parents[2]
PLUGINS = ("-p", "pytest_transferbench.plugin")
SUITE = ("--pyargs", "pytest_transferbench.suites.test_p2p")

RunPytest = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plugin but those named, and no TransferBench names from outside."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CHECKOUT), str(Path(__file__).parent)]))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    """Two fake GPUs behind the engine's doors; change it before the run."""
    made = FakeMachine(log=str(tmp_path / "machine.log"))
    fake_machine.install(made, monkeypatch.setattr)
    return made


@pytest.fixture
def said(machine: FakeMachine) -> Callable[[str], list[str]]:
    """What was asked of the machine so far: the lines that begin with a word, without the process id."""

    def lines(word: str) -> list[str]:
        path = Path(str(machine.log))
        found = path.read_text().splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in found if line.partition(" ")[2].startswith(word)]

    return lines


@pytest.fixture
def run(pytester: pytest.Pytester, machine: FakeMachine) -> RunPytest:
    """Run pytest in this process, with the plugin and the fake machine."""
    return lambda *args: pytester.runpytest_inprocess(*PLUGINS, *args)


@pytest.fixture
def run_apart(pytester: pytest.Pytester, machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> RunPytest:
    """Run pytest in a child process, with the plugin, xdist and the fake machine."""

    def run(*args: str) -> pytest.RunResult:
        monkeypatch.setenv(fake_machine.ENVIRONMENT, fake_machine.to_environment(machine))
        return pytester.runpytest_subprocess("-p", "xdist", *PLUGINS, "-p", "fake_machine", *args, timeout=60)

    return run

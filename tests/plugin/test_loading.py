"""The ways the plugin gets into a run, and who keeps a short option that two want."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_transferbench.options import OPTIONS
from tests.plugin import fake_machine
from tests.plugin.conftest import CHECKOUT, SUITE, RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

PULLS = ("--sizes=4M", "-k", "pull-gfx-G1-G0")


@pytest.fixture
def fake_environment(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fake_machine.ENVIRONMENT, fake_machine.to_environment(machine))


def test_help_lists_the_table(run: RunPytest) -> None:
    result = run("--help")
    text = " ".join(result.stdout.str().split())
    for row in OPTIONS:
        value = "" if row.flag else f"={row.metavar}"
        assert f"{row.option}{value} {row.describe()}" in text
        assert f" {row.ini} " in text
        if row.short:
            assert f"{row.short}{value} same as {row.option}" in text
    listed = {word.partition("=")[0] for word in text.split() if word.startswith("--transfer-")}
    assert listed == {row.option for row in OPTIONS}


def test_the_twins_of_the_short_forms(run: RunPytest) -> None:
    asked = ("--transfer-gpus=1", "--transfer-sizes=8M", "--transfer-executors=gfx", "--transfer-ops=local")
    result = run(*SUITE, *asked, "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_p2p[[]local-gfx-G1-G1-8M] PASSED*"])


def test_a_value_as_a_word_of_its_own(run: RunPytest) -> None:
    run(*SUITE, "--gpus", "0,1", "--sizes", "4M", "-k", "pull-gfx-G1").assert_outcomes(passed=1, deselected=24)


@pytest.mark.parametrize("who", ["plugin", "conftest"])
def test_a_short_form_somebody_else_has_stays_theirs(run: RunPytest, pytester: pytest.Pytester, who: str) -> None:
    theirs = """
        def pytest_addoption(parser):
            parser.addoption("--gpus", dest="their_gpus")
        def pytest_report_header(config):
            return f"theirs: {config.option.their_gpus}"
    """
    if who == "plugin":
        pytester.makepyfile(theirs_plugin=theirs)
        pytester.syspathinsert()
        loaded = ("-p", "theirs_plugin")
    else:
        pytester.makeconftest(theirs)
        loaded = ()
    result = run(*loaded, *SUITE, "--gpus=lots", "--transfer-gpus=0,1", *PULLS)
    result.assert_outcomes(passed=1, deselected=24)
    result.stdout.fnmatch_lines(["theirs: lots"])
    result.stdout.fnmatch_lines(["  --gpus belongs to somebody else here: use --transfer-gpus"])


def test_a_refusal_does_not_blame_a_short_form_that_is_somebody_elses(
    run: RunPytest, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--gpus', dest='theirs')")
    result = run(*SUITE, "--gpus=lots", "--transfer-gpus=9")
    result.stderr.fnmatch_lines(["ERROR: --transfer-gpus=9: no GPU 9; this node has GPUs 0-1"])


@pytest.mark.usefixtures("fake_environment")
def test_by_a_conftest_that_names_it(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("pytest_plugins = ['pytest_transferbench.plugin', 'fake_machine']")
    result = pytester.runpytest_subprocess(*SUITE, "--gpus=0,1", *PULLS)
    result.assert_outcomes(passed=1, deselected=24)


@pytest.mark.usefixtures("fake_environment")
def test_by_entry_point(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    install_metadata(pytester.path / "site")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "site"), prepend=os.pathsep)
    result = pytester.runpytest_subprocess("-p", "fake_machine", *SUITE, "--gpus=0,1", *PULLS)
    result.assert_outcomes(passed=1, deselected=24)


def install_metadata(site: Path) -> None:
    """Make the package on the path look installed: what pip writes beside it, and pytest reads."""
    info = site / "pytest_transferbench-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-transferbench\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\ntransferbench = pytest_transferbench.plugin\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A bare checkout: what a clone holds, installed nowhere."""
    root = tmp_path / "clone"
    for name in ("pytest_transferbench", "hipkernels"):
        shutil.copytree(CHECKOUT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, root / name)
    return root


def pytest_in(folder: Path, *args: str, path: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path, str(Path(__file__).parent)])}
    command = [sys.executable, "-m", "pytest", "-p", "fake_machine", *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("fake_environment")
@pytest.mark.parametrize("gpus", ["--gpus=0,1", "--gpus 0,1"])
def test_a_bare_checkout_brings_itself_in(checkout: Path, gpus: str) -> None:
    result = pytest_in(checkout, *gpus.split(), *PULLS, path=str(checkout))
    assert "1 passed, 24 deselected" in result.stdout, result.stdout + result.stderr


@pytest.mark.usefixtures("fake_environment")
def test_a_bare_checkout_under_a_worker(checkout: Path) -> None:
    result = pytest_in(checkout, "-p", "xdist", "-n1", "--gpus=0,1", *PULLS, path=str(checkout))
    assert "1 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.usefixtures("fake_environment")
@pytest.mark.parametrize("loaded", [(), ("-p", "pytest_transferbench.plugin")])
def test_a_checkout_never_tests_another_copy(checkout: Path, loaded: tuple[str, ...]) -> None:
    result = pytest_elsewhere(checkout, *loaded)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert line.startswith(f"ERROR: this checkout's tests would test the copy installed in {CHECKOUT}")


def pytest_elsewhere(checkout: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the ``pytest`` command, which does not put the current folder on the path, with this very copy installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(Path(__file__).parent)])}
    command = [sys.executable, "-P", "-c", "import pytest_transferbench, pytest; raise SystemExit(pytest.main())"]
    return subprocess.run([*command, *args], cwd=checkout, env=environment, capture_output=True, text=True, check=False)

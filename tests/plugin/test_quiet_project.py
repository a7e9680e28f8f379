"""A project that measures nothing does not notice the plugin."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from tests.plugin.conftest import PLUGINS, RunPytest

pytest_plugins = ["pytester"]


def test_nothing_third_party_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import json, sys
        def pytest_unconfigure():
            print("modules:", json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
        """
    )
    pytester.makepyfile("def test_other(): pass")

    def imported(*args: str) -> set[str]:
        result = pytester.runpytest_subprocess(*args)
        result.assert_outcomes(passed=1)
        (line,) = [line for line in result.outlines if "modules:" in line]
        return {name for name in json.loads(line.partition("modules:")[2]) if name not in sys.stdlib_module_names}

    assert imported(*PLUGINS) - imported() == {"pytest_transferbench"}


def test_nothing_is_printed_probed_or_written(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.fixture
        def transfer(): return 3
        def test_with_a_fixture_of_that_name(transfer): assert transfer == 3
        """
    )
    with_plugin = run("-v")
    with_plugin.assert_outcomes(passed=1)
    without = pytester.runpytest_inprocess("-v")

    def quiet(result: pytest.RunResult) -> list[str]:
        return [line for line in result.outlines if " in 0." not in line]

    assert quiet(with_plugin) == quiet(without)
    assert said("") == []
    assert not list(pytester.path.glob(".pytest_cache/d/*"))


def test_environment_names_alone_are_not_looked_at(
    run: RunPytest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRC_ROTATE_BYTES", "12Q")
    monkeypatch.setenv("USE_REMOTE_READ", "1")
    pytester.makepyfile("def test_other(): pass")
    result = run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*transferbench*")


@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_options_without_a_transfer_test_get_a_hint(
    run_apart: RunPytest, pytester: pytest.Pytester, worker: tuple[str, ...]
) -> None:
    pytester.makepyfile("def test_other(): pass")
    result = run_apart("--gpus=0,1", *worker)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "transferbench: --gpus given, but no transfer test was collected; those that come with the plugin: "
            "pytest --pyargs pytest_transferbench.suites.test_p2p"
        ]
    )


@pytest.mark.parametrize("worker", [(), ("-n1",)])
def test_no_hint_where_transfers_were_only_deselected(
    run_apart: RunPytest, pytester: pytest.Pytester, worker: tuple[str, ...]
) -> None:
    pytester.makepyfile("def test_one(transfer, transferbench): transferbench(transfer)")
    result = run_apart("--gpus=0,1", "-k", "nothing", *worker)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.no_fnmatch_line("*no transfer test was collected*")

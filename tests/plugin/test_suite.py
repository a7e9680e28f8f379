"""The shipped suite, from command line to verdict."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import SUITE, RunPytest

pytest_plugins = ["pytester"]


def test_pull_selects_exactly_the_pulls(run: RunPytest) -> None:
    result = run(*SUITE, "--gpus=0,1", "-k", "pull", "-v")
    print(result.stdout.str())
    result.assert_outcomes(passed=12, skipped=6, deselected=0)

"""The house has the rooms and the arrows that pyproject.toml draws."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_each_room_imports_only_what_stands_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS

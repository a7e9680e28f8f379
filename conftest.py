"""For a bare checkout: the plugin without an installation, and never somebody else's copy of it."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    import pytest_transferbench

    found = Path(pytest_transferbench.__file__).resolve().parent
    if found != HERE / "pytest_transferbench":
        raise pytest.UsageError(
            f"this checkout's tests would test the copy installed in {found}: use 'python -m pytest' here, "
            "or install this checkout with 'pip install -e .'"
        )
    if not pluginmanager.has_plugin("transferbench"):
        pluginmanager.import_plugin("pytest_transferbench.plugin")

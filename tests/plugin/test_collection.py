"""Very many cases: what they hold, and that every one costs the same. Seconds are in docs/measured/collection.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.plugin.collection_cost import COLLECT, ROUTES, SIZE_COUNTS, memory_of, transfers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node"),
]

LOADED = [] if entry_points(group="pytest11", name="transferbench") else ["-p", "pytest_transferbench.plugin"]
MOST_MIB = 150
"""For 10 000 cases."""
CALLS = """
import sys
import pytest
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
status = pytest.main(sys.argv[1:])
sys.setprofile(None)
print("calls", calls)
sys.exit(status)
"""


@pytest.fixture(autouse=True)
def _all_plugins(_clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What users have: pytest-benchmark beside ours, and whatever else is installed."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")


def collecting(sizes: int) -> list[str]:
    return [*LOADED, *COLLECT, *transfers(sizes)]


def calls(sizes: int) -> int:
    """How many functions a process calls that collects the cases of so many sizes."""
    command = [sys.executable, "-c", CALLS, *collecting(sizes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.rpartition("calls ")[2])


def test_ten_thousand_cases_fit_in_little_memory_and_fifty_thousand_in_proportion() -> None:
    few, many, most = (memory_of(collecting(sizes)) for sizes in SIZE_COUNTS)
    assert ROUTES * SIZE_COUNTS[1] >= 10_000
    assert many < MOST_MIB
    assert few < many < most < SIZE_COUNTS[2] / SIZE_COUNTS[1] * many


def test_every_case_costs_the_same_however_many_there_are() -> None:
    """Calls, not seconds: those of the second 10 000 cases are those of the first."""
    none, some, more = (calls(sizes) for sizes in (1, 36, 71))
    assert some - none > 35 * ROUTES
    assert more - some == pytest.approx(some - none, rel=0.02)

"""A rotation that a cache can hold flatters nobody: the reads it answers are found out, whatever the budget."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from pytest_transferbench.journal import read_journal

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")

PULLS = """
    import pytest

    @pytest.mark.transferbench("G1->G0->G0")
    def test_pulls(transfer, transferbench):
        transferbench(transfer)
"""
NO_RATE = """
extends = "gfx1250-dpx"
[link.on_die]
raw_gbps = 0
"""


@pytest.mark.parametrize(
    ("model", "rotate", "sizes", "verdicts"),
    [
        ("norate.toml", "64M", "16M,32M", {"16M": "CONTAMINATED", "32M": "CONTAMINATED"}),
        ("norate.toml", "1", "16M,32M", {"16M": "CONTAMINATED", "32M": "CONTAMINATED"}),
        ("norate.toml", "auto", "16M,32M", {"16M": "NEW", "32M": "NEW"}),
        ("gfx1250-dpx", "64M", "8M,32M", {"8M": "CONTAMINATED", "32M": "IMPOSSIBLE"}),
        ("gfx1250-dpx", "96M", "8M", {"8M": "CONTAMINATED"}),
    ],
)
def test_a_budget_that_a_cache_can_hold(
    pytester: pytest.Pytester,
    run_elsewhere: Callable[..., pytest.RunResult],
    model: str,
    rotate: str,
    sizes: str,
    verdicts: dict[str, str],
) -> None:
    pytester.makepyfile(PULLS)
    pytester.makefile(".toml", norate=NO_RATE)
    options = ("--gpus=0,1", f"--sizes={sizes}", f"--transfer-rotate={rotate}", "--transfer-journal=journal.jsonl")
    result = run_elsewhere(f"--transfer-emulate={model}", *options)
    found = {
        item["nodeid"].rpartition("-")[2][:-1]: item["verdict"]
        for item in read_journal(pytester.path / "journal.jsonl").items
    }
    assert found == verdicts
    if rotate != "auto":
        result.stdout.fnmatch_lines(
            ["warning: rotation over * is too little: below 192M *; use --transfer-rotate=auto *"]
        )

"""A kernel that a cache answers takes no time worth a tick, yet its stamps are not equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_transferbench.journal import read_journal

pytest_plugins = ["pytester"]

COPIES = """
    import pytest

    @pytest.mark.transferbench("G1->G0->G0", "G0->G0->G1", "G0->G0->G0", "G0->G0->N", sizes="4,1K,1M", rotate=0)
    def test_copies(transfer, transferbench):
        transferbench(transfer)
"""


def test_every_clock_moves(pytester: pytest.Pytester, run_elsewhere: Callable[..., pytest.RunResult]) -> None:
    pytester.makepyfile(COPIES)
    result = run_elsewhere("--transfer-emulate=gfx1250-dpx", "--gpus=0,1", "--transfer-journal=journal.jsonl")
    result.assert_outcomes(passed=12)
    for item in read_journal(pytester.path / "journal.jsonl").items:
        for arm in item["measurement"]["arms"]:
            assert not arm["rejected"]
            for kernel, event in zip(arm["kernel_seconds"], arm["event_seconds"], strict=True):
                assert 0 < kernel < event

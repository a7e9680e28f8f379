"""Broken transfers on real GPUs: each is caught, counted, placed and named."""

from __future__ import annotations

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.engine.executors import unsupported
from pytest_transferbench.transfer import Transfer
from tests.engine.proof import assert_named


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer.pull("G1", "G0", 4 << 20),
        Transfer.push("G0", "G1", 4 << 20),
        Transfer.push("G0", "G1", 4 << 20, "dma"),
        Transfer.pull("G1", "G0", 4 << 20, "dma"),
        Transfer.pull("G0", "G0", (1 << 20) + 20),
    ],
    ids=Transfer.case_name,
)
def test_mutations_are_caught_and_named(bench: Bench, transfer: Transfer) -> None:
    reason = unsupported(transfer, bench.node)
    if reason is not None:
        pytest.skip(reason)
    assert_named(bench, transfer)

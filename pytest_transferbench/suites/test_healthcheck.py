"""Is each GPU as fast as others of its kind: to the host, to its peers, within its memory; any GPU.

Each figure has a floor: a share of what was published of this GPU, with source and date in ``healthcheck.toml``, or
else of the raw rate of its link or memory. One that stays below it fails in one line. Where nothing is known, it is
shown.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_transferbench.judge.published import floor_for, read_references
from pytest_transferbench.node import Node
from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Transfer

REFERENCES = read_references(Path(__file__).with_name("healthcheck.toml").read_text(encoding="utf-8"))
CHECKED = {
    "table": "healthcheck",
    "defaults": {"sizes": "256M"},
    "emulated_defaults": {"sizes": "64M"},
}


@pytest.mark.transferbench(pairs="gpu", ops="push,local", executors="gfx", **CHECKED)
def test_healthcheck(transfer: Transfer, transferbench: ItemBench, transfer_node: Node) -> None:
    """Between GPUs, and within each."""
    _is_healthy(transfer, transferbench, transfer_node)


@pytest.mark.transferbench(pairs="host", ops="push,pull", executors="dma", **CHECKED)
def test_healthcheck_host(transfer: Transfer, transferbench: ItemBench, transfer_node: Node) -> None:
    """Between each GPU and the host."""
    _is_healthy(transfer, transferbench, transfer_node)


def _is_healthy(transfer: Transfer, bench: ItemBench, node: Node) -> None:
    floor = floor_for(transfer, node, REFERENCES)
    if floor is None:
        measurement = bench(transfer)
    else:
        measurement = bench(transfer, floor_gbps=floor.gbps, floor_source=floor.source)
    assert measurement.wrong_words == 0

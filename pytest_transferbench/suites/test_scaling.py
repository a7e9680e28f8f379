"""Bandwidth against the number of SubExecutors, as TransferBench's scaling: from the first GPU to others and the host.

The best number stands below each column. ``--transfer-subexecutors=1..8`` chooses others; ``best`` searches for it and
reports it alone.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Transfer


@pytest.mark.transferbench(
    pairs="first-C0,first-first,first-others",
    ops="push,local",
    executors="gfx",
    table="scaling",
    defaults={"subexecutors": "1..32", "sizes": "64M"},
    emulated_defaults={"subexecutors": "1..16:2", "sizes": "1M"},
)
def test_scaling(transfer: Transfer, transferbench: ItemBench) -> None:
    """The bytes arrive however few blocks move them."""
    assert transferbench(transfer).wrong_words == 0

"""What a GPU's own memory gives a kernel: reading alone, writing alone, and copying; every selected GPU.

What is read rotates through slices that no cache holds, and its sum proves that it was. A copy is counted once, as
everywhere here; the summary also shows what it reads and writes together.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Transfer


@pytest.mark.transferbench(
    pairs="each-N,N-each,each-itself",
    ops="local",
    executors="gfx",
    table="hbm",
    defaults={"sizes": "1G"},
    emulated_defaults={"sizes": "16M"},
)
def test_hbm(transfer: Transfer, transferbench: ItemBench) -> None:
    """Every word is read, written, or both."""
    assert transferbench(transfer).wrong_words == 0

"""What a kernel's shape is worth: SubExecutors x unroll x threads a block, as TransferBench's gfxsweep.

The first GPU pushes to each of the others that ``--gpus`` names, without ``--gpus`` to the next one;
``--transfer-local-copies`` sweeps a copy within it, too. ``--transfer-block-threads=128,256,512`` asks for more than
one size of block.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Transfer


@pytest.mark.transferbench(
    pairs="first-others,local",
    ops="push,local",
    executors="gfx",
    table="gfxsweep",
    defaults={"subexecutors": "4,8,12,16,24,32", "unroll": "1,2,3,4,6,8", "block_threads": 256, "sizes": "64M"},
    emulated_defaults={"subexecutors": "4,16", "unroll": "1,4", "sizes": "1M"},
)
def test_gfxsweep(transfer: Transfer, transferbench: ItemBench) -> None:
    """The bytes arrive whatever the kernel's shape."""
    assert transferbench(transfer).wrong_words == 0

"""Batched copies (B, 1, 2, 4 and 8 pieces) beside plain ones (D), by size: TransferBench's bmasweep.

The first GPU that ``--gpus`` names pushes to each of the others, without ``--gpus`` to the next one. ``--sizes`` and
``--transfer-subexecutors`` choose others; ``--transfer-local-copies`` (``LOCAL_COPY=1``) copies within the GPU, too.
The summary prints TransferBench's table, and behind it the batch efficiency T(k)/T(1): k pieces' bandwidth over one's.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Transfer


@pytest.mark.transferbench(
    pairs="first-others,local",
    ops="push,local",
    table="bmasweep",
    defaults={"executors": "dma,batch", "sizes": "4K..1G", "subexecutors": "1,2,4,8"},
    emulated_defaults={"sizes": "4K..16M:16"},
)
def test_bmasweep(transfer: Transfer, transferbench: ItemBench) -> None:
    """Every piece arrives, and the figure is possible."""
    assert transferbench(transfer).wrong_words == 0

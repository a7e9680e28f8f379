"""Every way bytes take on one node: GPU to GPU, within a GPU, and between host and GPU, pushed and pulled.

``pytest --gpus=0,1 -k pull`` runs the pulls between two GPUs; each item gives cold, warm and steady figures.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Transfer


@pytest.mark.transferbench(pairs="all")
def test_p2p(transfer: Transfer, transferbench: ItemBench) -> None:
    """The bytes arrive, the figure is possible, and no cache has flattered it."""
    measurement = transferbench(transfer)
    assert measurement.wrong_words == 0
    assert measurement.warm_cold < transferbench.limits.warm_cold

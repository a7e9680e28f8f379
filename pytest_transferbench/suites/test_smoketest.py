"""Do the bytes arrive: every kind of copy, odd sizes, each sample validated. A first look at a machine, not a figure.

Every selected GPU copies from and to the host, to the next GPU, which also pulls from it, and within itself, by copy
engine, batch and kernel. The first gives the same to itself and the second, and adds up both; and it pushes to and
pulls from all the others at the same time.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import TransferOrTest

CHECKED = {
    "table": "smoketest",
    "defaults": {"samples": 2, "warmups": 0, "validate": "each", "sizes": "4,1020,1048580,268435452"},
    "emulated_defaults": {"sizes": "4,1048580", "rotate": 0},
}


@pytest.mark.transferbench(pairs="each-C0,C0-each,each-next,each-itself", executors="dma,batch,gfx", **CHECKED)
def test_smoketest(transfer: TransferOrTest, transferbench: ItemBench) -> None:
    """One source, one destination."""
    assert transferbench(transfer).wrong_words == 0


@pytest.mark.transferbench(
    pairs="first-first+second,first+second-first", ops="push,pull", executors="dma,batch,gfx", **CHECKED
)
def test_smoketest_many_ends(transfer: TransferOrTest, transferbench: ItemBench) -> None:
    """Several destinations get the same, several sources are added up."""
    assert transferbench(transfer).wrong_words == 0


@pytest.mark.transferbench(pairs="first-peers,peers-first", executors="gfx", **CHECKED)
def test_smoketest_peers(transfer: TransferOrTest, transferbench: ItemBench) -> None:
    """One GPU with all the others at the same time."""
    assert transferbench(transfer).wrong_words == 0

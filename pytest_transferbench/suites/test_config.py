"""The lines of a TransferBench configuration file, one item each: what they name runs at the same time.

``pytest --transfer-config=moves.cfg --pyargs pytest_transferbench.suites.test_config``. A line that leaves its bytes
open takes those of ``--sizes``, or the largest default; ``*`` stands for the GPUs that ``--gpus`` selects.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import TransferOrTest


@pytest.mark.transferbench(pairs="config")
def test_config(transfer: TransferOrTest, transferbench: ItemBench) -> None:
    """The bytes of every Transfer arrive, and the figure is possible."""
    assert transferbench(transfer).wrong_words == 0

"""LL flag protocols between two GPUs: how long a message takes, and how fast it goes.

The sender streams lines, the receiver polls their flags and answers every message with one 8-byte ACK: a message's time
T(A->B) ends when the sender has the ACK, and includes its way back, as in RCCL's llx_latency_bench. A ping-pong is one
line to and fro, its time half of that. ``sc`` and ``sc+wb`` wait for the wavefront's stores on AMD; NVIDIA has no such
wait: there ``sc`` stores the flag with release at system scope. ``pytest --gpus=0,1 --pyargs
pytest_transferbench.suites.test_ll``; ``--transfer-ll-protocols`` and ``--sizes`` choose.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Message


@pytest.mark.transferbench(messages="one-way")
def test_ll(transfer: Message, transferbench: ItemBench) -> None:
    """Every message arrives whole, behind its flags, and none is faster than the link."""
    assert transferbench(transfer).wrong_words == 0


@pytest.mark.transferbench(messages="ping-pong")
def test_ll_round_trip(transfer: Message, transferbench: ItemBench) -> None:
    """A line comes back as it was sent."""
    assert transferbench(transfer).wrong_words == 0

"""Source rotation proved: the figures with it are those of the link, and without it this node's caches show through.

Every measurement comes twice: judged with rotation, and as a control without it, which must show what this node's
caches do to a repeated read: inflate it where a cache is shared with the peer (two partitions of one GPU) or where one
launch reads the same bytes again, and nothing elsewhere. ``--gpus=0,1`` chooses the pair; the Tests with all peers
need more. The summary sets both side by side.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.judge.reuse import Reuse, reuse_without_rotation
from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import Node
from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.transfer import Case, Test, Transfer

SWEEP = {"pairs": "first-second", "ops": "pull,push", "executors": "gfx", "sizes": "2M..512M"}
IN_ONE_LAUNCH = {
    "pairs": "first-second,first-first",
    "ops": "pull,push,local",
    "executors": "gfx",
    "sizes": "16M",
    "sub_iterations": 64,
}
PEERS = {"pairs": "peers-first,first-peers", "executors": "gfx", "subexecutors": 8, "sizes": "64M,256M"}
CONTROL = {"rotate": 0, "control": True}

INFLATED = {"CONTAMINATED", "IMPOSSIBLE"}


@pytest.mark.transferbench(**SWEEP)
def test_rotation(transfer: Transfer, transferbench: ItemBench) -> None:
    """No cache flatters a transfer whose source rotates."""
    _is_the_links_own(transferbench(transfer), transferbench)


@pytest.mark.transferbench(**SWEEP, **CONTROL, variant="unrotated")
def test_rotation_control(transfer: Transfer, transferbench: ItemBench, transfer_node: Node) -> None:
    """Without rotation the artefact is there exactly where this node's caches make it."""
    _shows_the_caches(transferbench(transfer, judge=False), transferbench, transfer_node)


@pytest.mark.transferbench(**IN_ONE_LAUNCH, variant="64x")
def test_rotation_in_one_launch(transfer: Transfer, transferbench: ItemBench) -> None:
    """The source rotates inside a launch too, for every sub-iteration."""
    _is_the_links_own(transferbench(transfer), transferbench)


@pytest.mark.transferbench(**IN_ONE_LAUNCH, **CONTROL, variant="64x-unrotated")
def test_rotation_in_one_launch_control(transfer: Transfer, transferbench: ItemBench, transfer_node: Node) -> None:
    """A launch that reads the same bytes again is answered by the reader's own cache, where it has one for them."""
    _shows_the_caches(transferbench(transfer, judge=False), transferbench, transfer_node)


@pytest.mark.transferbench(**PEERS)
def test_rotation_peers(transfer: Test, transferbench: ItemBench) -> None:
    """One GPU with all its peers at the same time, the share of one GPU in an all-to-all."""
    assert transferbench(transfer).wrong_words == 0


@pytest.mark.transferbench(**PEERS, **CONTROL, variant="unrotated")
def test_rotation_peers_control(transfer: Test, transferbench: ItemBench, transfer_node: Node) -> None:
    """All peers together are more than any cache: rotation changes nothing there."""
    _shows_the_caches(transferbench(transfer, judge=False), transferbench, transfer_node)


def _is_the_links_own(measurement: Measurement, bench: ItemBench) -> None:
    assert measurement.wrong_words == 0
    assert measurement.warm_cold < bench.limits.warm_cold


def _shows_the_caches(measurement: Measurement, bench: ItemBench, node: Node) -> None:
    """The verdicts of a control are what this node's caches must give it; where nothing is known they are shown."""
    assert measurement.wrong_words == 0
    assert isinstance(bench.case, Case)
    reuse = reuse_without_rotation(bench.case, node)
    verdicts = {finding.verdict for finding in measurement.verdicts}
    if reuse is Reuse.NONE:
        assert not verdicts & INFLATED, f"{measurement.key} is inflated, and no cache of this node explains it"
    elif reuse is not Reuse.UNKNOWN:
        assert verdicts & INFLATED, f"{measurement.key} is not inflated, but there is a {reuse}"
    others = {finding.verdict for finding in measurement.verdicts if finding.fails} - INFLATED
    assert not others, f"{measurement.key}: {', '.join(sorted(others))}"

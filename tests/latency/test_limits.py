"""What a node can send, from recorded facts alone."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_transferbench.latency import estimate_seconds, unsupported
from pytest_transferbench.latency.limits import ring_kind
from pytest_transferbench.node import Node
from pytest_transferbench.transfer import LL, Message, MessageCase
from tests.plugin.fake_machine import FakeMachine
from tests.refusals import refusal

MIB = 2**20


def node(**facts: object) -> Node:
    return FakeMachine(**facts).node()  # type: ignore[arg-type]


def case(message: Message | None = None, **more: object) -> MessageCase:
    return MessageCase(message or Message.push("ll128-sc", 0, 1, 16 * MIB), **more)  # type: ignore[arg-type]


def test_the_ring_lies_where_the_vendor_needs_it_or_where_one_says() -> None:
    assert ring_kind(case(), node()) == "U"
    assert ring_kind(case(), node(runtime="cuda")) == "G"
    assert ring_kind(case(ring_kind="F"), node()) == "F"


def test_gpus_that_are_not_there_are_named() -> None:
    reason = unsupported(case(Message.push(LL, 0, 5, 8)), node())
    assert reason == "(G0->G5 ll 8) needs G5; this node has GPUs 0-1"


def test_both_ways_need_peer_access() -> None:
    whole = node()
    one_way = tuple(
        dataclasses.replace(link, peer_access=(link.source, link.destination) != (1, 0)) for link in whole.links
    )
    reason = unsupported(case(), dataclasses.replace(whole, links=one_way))
    assert reason == "G1 has no peer access to G0: IOMMU, ACS or the topology forbids it"
    assert unsupported(case(), whole) is None


@pytest.mark.parametrize(("message", "most"), [(Message.push(LL, 0, 1, MIB), 304), (Message.push(LL, 1, 1, MIB), 152)])
def test_as_many_blocks_as_run_at_the_same_time(message: Message, most: int) -> None:
    assert unsupported(case(message, most_blocks=most), node()) is None
    assert f"--transfer-ll-blocks={most} or less" in refusal(unsupported, case(message, most_blocks=most + 1), node())
    small = dataclasses.replace(message, nbytes=8)
    assert unsupported(case(small, most_blocks=most + 1), node()) is None


def test_coarse_rings_are_refused_where_they_hang() -> None:
    assert "gfx90a" in refusal(unsupported, case(ring_kind="G"), node(arch="gfx90a:sramecc+:xnack-"))
    assert unsupported(case(ring_kind="F"), node(arch="gfx90a")) is None
    assert unsupported(case(ring_kind="G"), node()) is None
    within = case(Message.push(LL, 1, 1, 8), ring_kind="G")
    assert unsupported(within, node(arch="gfx90a")) is None


@pytest.mark.parametrize("old", [0, 1])
def test_a_coarse_ring_hangs_where_either_end_keeps_what_it_stores(old: int) -> None:
    whole = node()
    devices = tuple(
        dataclasses.replace(device, arch="gfx90a") if device.index == old else device for device in whole.devices
    )
    mixed = dataclasses.replace(whole, devices=devices)
    assert "gfx90a" in refusal(unsupported, case(ring_kind="G"), mixed)


@pytest.mark.parametrize(("protocol", "most"), [("ll", "16G"), ("ll128-tf", "240G")])
def test_lines_that_kernels_cannot_count_are_refused(protocol: str, most: str) -> None:
    message = Message.push(protocol, 0, 1, most)
    assert unsupported(case(message), node()) is None
    more = dataclasses.replace(message, nbytes=message.nbytes + 1)
    said = refusal(unsupported, case(more), node())
    assert said.endswith(f"takes 2147483649 lines: a message has at most 2147483648, {most} by {protocol}")


@pytest.mark.parametrize("kind", ["U", "F"])
def test_kinds_of_memory_are_amds(kind: str) -> None:
    assert "use --transfer-ll-memory=coarse on CUDA" in refusal(unsupported, case(ring_kind=kind), node(runtime="cuda"))


def test_an_estimate_grows_with_the_message_and_is_never_nothing() -> None:
    for emulated in (None, "mi300x-8"):
        small, large = (
            estimate_seconds(case(Message.push(LL, 0, 1, nbytes)), node(emulated=emulated)) for nbytes in (8, 128 * MIB)
        )
        assert 0 < small < large

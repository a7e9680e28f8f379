from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench import node as node_module
from pytest_transferbench import transfer
from pytest_transferbench.node import HOST, Device, Link, LinkClass, Node, NumaNode

texts = st.none() | st.text(max_size=5)
devices = st.builds(
    Device,
    index=st.integers(0, 7),
    name=st.text(max_size=5),
    arch=st.just("gfx942"),
    pci=st.just("0000:01:00.0"),
    compute_units=st.integers(1, 304),
    memory_bytes=st.integers(1, 2**38),
    last_level_cache_bytes=st.none() | st.integers(1, 2**30),
    memory_gbps=st.none() | st.floats(1, 8000),
    partition=texts,
    large_bar=st.none() | st.booleans(),
)
links = st.builds(
    Link,
    source=st.integers(HOST, 7),
    destination=st.integers(HOST, 7),
    link_class=st.sampled_from(LinkClass),
    gbps=st.none() | st.floats(1, 1000),
)
nodes = st.builds(
    Node,
    runtime=st.sampled_from(["rocm", "cuda", "host"]),
    devices=st.lists(devices, max_size=3).map(tuple),
    links=st.lists(links, max_size=3).map(tuple),
    emulated=texts,
    versions=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    notes=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    numa_nodes=st.lists(st.builds(NumaNode, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3).map(tuple),
)


def device(index: int) -> Device:
    return Device(index, "GPU", "gfx942", f"0000:{index:02x}:00.0", 304, 2**37)


def with_devices(*indices: int) -> Node:
    return Node("rocm", tuple(map(device, indices)), (Link(0, 1, LinkClass.XGMI, 64.0), Link(HOST, 0, LinkClass.HOST)))


@given(nodes)
def test_a_node_survives_json(node: Node) -> None:
    assert Node.from_json(json.loads(json.dumps(node.to_json(), allow_nan=False))) == node


@given(nodes)
def test_a_node_survives_the_way_to_a_worker(node: Node) -> None:
    execnet = pytest.importorskip("execnet", reason="pytest-xdist is not installed")
    data: Any = execnet.loads(execnet.dumps(node.to_json()))
    again = Node.from_json(data)
    assert again == node
    assert all(isinstance(link.link_class, LinkClass) for link in again.links)


def test_devices_and_links_are_found_by_index() -> None:
    node = with_devices(0, 1)
    assert node.device(1).pci == "0000:01:00.0"
    assert node.link(0, 1).gbps == 64.0
    assert node.link(HOST, 0).link_class is LinkClass.HOST


def test_the_links_are_walked_once_however_many_are_asked_for() -> None:
    walks = 0

    class Links(tuple[Link, ...]):
        def __iter__(self) -> Iterator[Link]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    node = Node("rocm", links=Links(Link(0, end, LinkClass.XGMI) for end in range(8)))
    assert [node.link(0, end).destination for end in range(8)] == list(range(8))
    assert walks == 1


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="no GPU 9; this node has GPUs 0-1"):
        with_devices(0, 1).device(9)
    with pytest.raises(KeyError, match="no link from 1 to 0"):
        with_devices(0, 1).link(1, 0)


@pytest.mark.parametrize(
    ("indices", "text"),
    [((), "no GPU"), ((0,), "GPU 0"), ((0, 1, 2), "GPUs 0-2"), ((0, 2), "GPUs 0, 2"), ((2, 3), "GPUs 2-3")],
)
def test_which_gpus_there_are_in_words(indices: tuple[int, ...], text: str) -> None:
    assert with_devices(*indices).describe_indices() == text


def test_the_host_has_one_index_everywhere() -> None:
    assert node_module.HOST is transfer.HOST
    assert HOST == -1


@pytest.mark.parametrize(
    ("known", "numa_nodes", "closest"), [(1, (0, 1), 1), (None, (0, 1), None), (None, (3,), 3), (2, (3,), 2)]
)
def test_the_numa_node_closest_to_a_gpu_is_told_or_the_only_one(
    known: int | None, numa_nodes: tuple[int, ...], closest: int | None
) -> None:
    gpu = dataclasses.replace(device(0), numa_node=known)
    node = Node("rocm", (gpu,), numa_nodes=tuple(map(NumaNode, numa_nodes)))
    assert node.closest_numa_node(0) == closest


def test_numa_nodes_in_words() -> None:
    assert Node("host").describe_numa_nodes() == "NUMA node 0"
    assert Node("host", numa_nodes=(NumaNode(0), NumaNode(8))).describe_numa_nodes() == "NUMA nodes 0, 8"

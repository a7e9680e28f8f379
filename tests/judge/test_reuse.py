"""What a transfer without rotation must show: a pure function of case and node."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.judge.reuse import Reuse, reuse_without_rotation
from pytest_transferbench.node import HOST, Device, Link, LinkClass, Node
from pytest_transferbench.transfer import Case, Test, Transfer

MIB = 2**20
CACHE = 96 * MIB


def node(link_class: LinkClass, runtime: str = "rocm", cache: int | None = CACHE, arch: str = "") -> Node:
    """Three GPUs, of an architecture that was measured unless one is named, every pair joined by ``link_class``."""
    device = Device(
        index=0, name="GPU", arch=arch or ("sm_90" if runtime == "cuda" else "gfx1250"), pci="0000:01:00.0",
        compute_units=96, memory_bytes=1 << 37, last_level_cache_bytes=cache,
    )  # fmt: skip
    devices = tuple(dataclasses.replace(device, index=index) for index in range(3))
    links = [Link(a, b, LinkClass.LOCAL if a == b else link_class, 1000.0, "test") for a in range(3) for b in range(3)]
    links += [Link(*ends, LinkClass.HOST, 50.0, "test") for a in range(3) for ends in ((HOST, a), (a, HOST))]
    return Node(runtime=runtime, devices=devices, links=tuple(links))


def of(op: str, nbytes: int, where: Node, **settings: Any) -> Reuse:
    transfer = {
        "pull": Transfer.pull(0, 1, nbytes),
        "push": Transfer.push(0, 1, nbytes),
        "local": Transfer.pull(0, 0, nbytes),
    }[op]
    return reuse_without_rotation(Case(transfer, rotate_bytes=0, **settings), where)


@pytest.mark.parametrize(
    ("nbytes", "reuse"),
    [
        (4 * MIB - 4, Reuse.UNKNOWN),
        (4 * MIB, Reuse.SHARED_CACHE),
        (64 * MIB, Reuse.SHARED_CACHE),
        (64 * MIB + 4, Reuse.UNKNOWN),
        (96 * MIB, Reuse.UNKNOWN),
        (100 * MIB, Reuse.UNKNOWN),
        (128 * MIB - 4, Reuse.UNKNOWN),
        (128 * MIB, Reuse.NONE),
        (512 * MIB, Reuse.NONE),
    ],
)
def test_partitions_of_one_gpu_share_a_cache_as_far_as_it_goes(nbytes: int, reuse: Reuse) -> None:
    assert of("pull", nbytes, node(LinkClass.ON_DIE)) is reuse


@pytest.mark.parametrize("arch", ["gfx942:sramecc+:xnack-", "gfx950", "gfx90a", "gfx12500"])
@pytest.mark.parametrize("mib", [8, 64, 512])
def test_what_partitions_share_is_claimed_only_where_it_was_measured(arch: str, mib: int) -> None:
    assert of("pull", mib * MIB, node(LinkClass.ON_DIE, arch=arch)) is Reuse.UNKNOWN


def test_features_beside_an_architecture_do_not_make_it_another() -> None:
    assert of("pull", 8 * MIB, node(LinkClass.ON_DIE, arch="gfx1250:sramecc+")) is Reuse.SHARED_CACHE


@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "sm_900"])
@pytest.mark.parametrize(("op", "mib"), [("pull", 16), ("pull", 256), ("local", 16), ("local", 256)])
def test_what_a_reader_keeps_is_claimed_only_where_it_was_measured(arch: str, op: str, mib: int) -> None:
    where = node(LinkClass.NVLINK, "cuda", 50 * MIB, arch)
    assert of(op, mib * MIB, where, sub_iterations=64) is Reuse.UNKNOWN


def test_an_unknown_cache_makes_no_claim() -> None:
    assert of("pull", 8 * MIB, node(LinkClass.ON_DIE, cache=None)) is Reuse.UNKNOWN


@given(
    st.sampled_from(list(LinkClass)),
    st.integers(1, 1 << 28).map(lambda words: 4 * words),
    st.integers(1, 64),
    st.sampled_from(("rocm", "cuda")),
)
def test_a_remote_write_is_never_inflated(link_class: LinkClass, nbytes: int, passes: int, runtime: str) -> None:
    assert of("push", nbytes, node(link_class, runtime), sub_iterations=passes) is Reuse.NONE


@given(
    st.sampled_from([LinkClass.UALOE, LinkClass.NVLINK, LinkClass.XGMI, LinkClass.PCIE]),
    st.integers(1, 1 << 28).map(lambda words: 4 * words),
)
def test_between_physical_gpus_nothing_outlives_a_launch(link_class: LinkClass, nbytes: int) -> None:
    assert of("pull", nbytes, node(link_class)) is Reuse.NONE


def test_inside_one_launch_the_reader_keeps_what_fits() -> None:
    nvlink = node(LinkClass.NVLINK, "cuda", 50 * MIB)
    assert of("pull", 16 * MIB, nvlink, sub_iterations=64) is Reuse.READER_SIDE
    assert of("local", 16 * MIB, nvlink, sub_iterations=64) is Reuse.READER_SIDE
    assert of("pull", 256 * MIB, nvlink, sub_iterations=64) is Reuse.NONE
    assert of("pull", 16 * MIB, node(LinkClass.UALOE), sub_iterations=64) is Reuse.UNKNOWN
    assert of("local", 16 * MIB, nvlink) is Reuse.UNKNOWN
    assert of("local", 16 * MIB, node(LinkClass.UALOE), sub_iterations=64) is Reuse.UNKNOWN


@pytest.mark.parametrize(
    ("kib", "passes", "reuse"), [(256, 64, Reuse.READER_SIDE), (255, 64, Reuse.UNKNOWN), (256, 63, Reuse.UNKNOWN)]
)
def test_few_bytes_or_passes_may_not_show_what_a_reader_keeps(kib: int, passes: int, reuse: Reuse) -> None:
    assert of("pull", kib * 1024, node(LinkClass.NVLINK, "cuda", 50 * MIB), sub_iterations=passes) is reuse


def test_a_way_between_physical_gpus_hides_those_that_a_cache_answers() -> None:
    on_die, ualoe = node(LinkClass.ON_DIE), node(LinkClass.UALOE)
    mixed = dataclasses.replace(on_die, links=(*on_die.links, ualoe.link(2, 0)))
    pulls = Test.pull_from_peers(0, (0, 1, 2), MIB)
    assert reuse_without_rotation(Case(pulls), mixed) is Reuse.NONE
    assert reuse_without_rotation(Case(pulls), ualoe) is Reuse.NONE
    assert reuse_without_rotation(Case(pulls), on_die) is Reuse.UNKNOWN, "one cache may answer them all"
    assert reuse_without_rotation(Case(pulls, sub_iterations=2), ualoe) is Reuse.UNKNOWN
    assert reuse_without_rotation(Case(Test.push_to_peers(0, (0, 1), MIB)), on_die) is Reuse.NONE


def test_only_kernels_and_gpu_memory_are_spoken_of() -> None:
    on_die = node(LinkClass.ON_DIE)
    assert reuse_without_rotation(Case(Transfer.pull(0, 1, MIB, "dma")), on_die) is Reuse.UNKNOWN


def test_nothing_is_claimed_of_several_ends_or_of_tests_both_ways() -> None:
    on_die = node(LinkClass.ON_DIE, arch="gfx1250")
    for transfer in (
        Transfer.pull((1, 1), 0, 16 * MIB),
        Transfer.pull(1, ("G0", "U0"), 16 * MIB),
        Test((Transfer.pull(1, 0, 16 * MIB), Transfer.push(0, 1, 16 * MIB))),
        Test((Transfer.pull((1, 1), 0, 16 * MIB), Transfer.pull(1, 0, 16 * MIB))),
        Test((Transfer.pull(1, 0, 16 * MIB), Transfer.push(0, 1, 16 * MIB, "dma"))),
    ):
        assert reuse_without_rotation(Case(transfer), on_die) is Reuse.UNKNOWN
    assert reuse_without_rotation(Case(Test.both_ways(0, 1, 16 * MIB)), on_die) is Reuse.NONE

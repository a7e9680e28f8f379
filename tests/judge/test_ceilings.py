from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pytest_transferbench.judge import Ceiling, RunCeilings, ceiling_for
from pytest_transferbench.measurement import Finding
from pytest_transferbench.node import HOST, Device, Link, LinkClass, Node
from pytest_transferbench.transfer import Test, parse_transfer, parse_transfers, together

from .measurements import measured


def device(index: int, memory_gbps: float | None = 4800.0) -> Device:
    return Device(index, "GPU", "sm_90", f"0000:0{index}:00.0", 132, 141 * 2**30, memory_gbps=memory_gbps)


NODE = Node(
    "cuda",
    devices=(device(0), device(1), device(2, None), device(3)),
    links=(
        Link(0, 1, LinkClass.NVLINK, 478.1, "NVML 18 x 26.562"),
        Link(1, 0, LinkClass.NVLINK, 450.0, "NVML 17 x 26.562"),
        Link(0, 2, LinkClass.PCIE, 64.0, "PCIe gen5 x16"),
        Link(2, 1, LinkClass.NVLINK, None),
        Link(1, 2, LinkClass.NVLINK, 0.0, "a source that answers 0"),
        Link(3, 0, LinkClass.NVLINK, math.inf, "a source that answers nonsense"),
        Link(HOST, 0, LinkClass.HOST, 63.0, "PCIe gen5 x16"),
        Link(0, HOST, LinkClass.HOST, 62.0, "PCIe gen5 x16"),
        Link(0, 0, LinkClass.LOCAL, 1.0, "must not be used"),
    ),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("G0->G0->G1", Ceiling(478.1, "NVLink, NVML 18 x 26.562")),
        ("G0->G1->G1", Ceiling(478.1, "NVLink, NVML 18 x 26.562")),
        ("G1->D0->G0", Ceiling(450.0, "NVLink, NVML 17 x 26.562")),
        ("C0->G0->G0", Ceiling(63.0, "host, PCIe gen5 x16")),
        ("G0->D0->C0", Ceiling(62.0, "host, PCIe gen5 x16")),
        ("G1->C0->G0", Ceiling(63.0, "host, PCIe gen5 x16")),
        ("G1->G0->G2", Ceiling(64.0, "PCIe, PCIe gen5 x16")),
        ("G2->G1->G0", Ceiling(450.0, "NVLink, NVML 17 x 26.562")),
        ("G1->G0->N", Ceiling(450.0, "NVLink, NVML 17 x 26.562")),
        ("N->G0->G1", Ceiling(478.1, "NVLink, NVML 18 x 26.562")),
        ("G0->G0->G0", Ceiling(2400.0, "GPU 0's memory, 4800.0 GB/s for reads and writes together")),
        ("G0->G0->U0", Ceiling(2400.0, "GPU 0's memory, 4800.0 GB/s for reads and writes together")),
        ("G0->G0->N", Ceiling(4800.0, "GPU 0's memory, 4800.0 GB/s")),
        ("N->G0->G0", Ceiling(4800.0, "GPU 0's memory, 4800.0 GB/s")),
        ("G2->G2->G2", None),
        ("G2->G1->G1", None),
        ("G1->G1->G2", None),
        ("G3->G0->G0", None),
        ("C0->C0->C0", None),
        ("G9->G9->G9", None),
    ],
)
def test_the_slowest_known_part_of_the_way_is_the_ceiling(text: str, expected: Ceiling | None) -> None:
    assert ceiling_for(parse_transfer(text, 4096), NODE) == expected


def star(link_class: LinkClass, gbps: float | None, *, physical: int = 1, **facts: Any) -> Node:
    """Five GPUs, every two joined alike; ``physical`` of them are partitions of one."""
    devices = tuple(
        dataclasses.replace(device(index), physical_gpu=f"GPU {index // physical}", memory_gbps=4800.0)
        for index in range(5)
    )
    ends = [HOST, *range(5)]
    return Node(
        "rocm",
        devices,
        tuple(
            Link(a, b, LinkClass.HOST, 64.0, "PCIe gen5 x16")
            if HOST in (a, b)
            else Link(a, b, link_class, gbps, "a table", **facts)
            for a in ends
            for b in ends
            if a != b
        ),
    )


def of_test(text: str) -> Test:
    made = together(parse_transfers(text, 4096))
    assert isinstance(made, Test)
    return made


PULL = Test.pull_from_peers(0, range(5), 4096)


@pytest.mark.parametrize(
    ("node", "test", "gbps", "source"),
    [
        (star(LinkClass.XGMI, 64.0), PULL, 256.0, "4 x 64.0 GB/s xGMI, a table"),
        (star(LinkClass.NVLINK, 25.0, hops=1), PULL, 100.0, "4 x 25.0 GB/s NVLink, a table"),
        (star(LinkClass.NVLINK, 450.0, hops=2), PULL, 450.0, "1 x 450.0 GB/s NVLink, a table, one way for 4 Transfers"),
        (star(LinkClass.PCIE, 64.0), PULL, 64.0, "1 x 64.0 GB/s PCIe, a table, one way for 4 Transfers"),
        (star(LinkClass.PCIE, 16.0), PULL, 64.0, "4 x 16.0 GB/s PCIe, a table"),
        (star(LinkClass.UALOE, 900.0, physical=2), PULL, 3600.0, "4 x 900.0 GB/s UALoE, a table"),
        (
            star(LinkClass.XGMI, 64.0, physical=2),
            Test.push_to_peers(0, (0, 2, 3, 4), 4096),
            128.0,
            "1 x 64.0 GB/s xGMI, a table, one way for 2 Transfers + 1 x 64.0 GB/s xGMI, a table",
        ),
        (
            star(LinkClass.XGMI, 64.0),
            of_test("(G1->G0->G0)(U1->G0->G0)(G2->G0->G0)"),
            128.0,
            "1 x 64.0 GB/s xGMI, a table, one way for 2 Transfers + 1 x 64.0 GB/s xGMI, a table",
        ),
        (
            star(LinkClass.XGMI, 48.0),
            of_test("(G1->G0->G0)(C0->G0->G0)(G2->G0->G0)"),
            160.0,
            "2 x 48.0 GB/s xGMI, a table + 1 x 64.0 GB/s host, PCIe gen5 x16",
        ),
        (
            star(LinkClass.XGMI, 64.0),
            of_test("(G0->G0->G0)(G0->G0->U0)"),
            2400.0,
            "GPU 0's memory, 4800.0 GB/s for reads and writes together",
        ),
        (star(LinkClass.XGMI, 64.0), of_test("(G0->G2->G1)(G1->G2->G0)"), 128.0, "2 x 64.0 GB/s xGMI, a table"),
        (star(LinkClass.XGMI, 64.0), Test.both_ways(0, 1, 4096), 128.0, "2 x 64.0 GB/s xGMI, a table"),
        (
            star(LinkClass.XGMI, 64.0),
            of_test("(G0->G0->G1)(G0->G1->G1)(G0->D0->G1)"),
            64.0,
            "1 x 64.0 GB/s xGMI, a table, one way for 3 Transfers",
        ),
        (star(LinkClass.PCIE, 64.0), Test.both_ways(0, 1, 4096), 128.0, "2 x 64.0 GB/s PCIe, a table"),
        (
            star(LinkClass.PCIE, 64.0),
            Test.all_to_all(range(3), 4096),
            192.0,
            "3 x 64.0 GB/s PCIe, a table, one way for 2 Transfers",
        ),
        (
            star(LinkClass.XGMI, 64.0),
            of_test("(G0->G0->G1)(G2->G2->G2)(N->G2->G2)(G3->G3->G3F3)"),
            64.0 + 4800.0 + 1600.0,
            "1 x 64.0 GB/s xGMI, a table + 1 x 4800.0 GB/s GPU 2's memory, 4800.0 GB/s + "
            "1 x 1600.0 GB/s GPU 3's memory, 4800.0 GB/s for reads and writes together",
        ),
    ],
)
def test_a_test_can_reach_the_sum_of_its_ways(node: Node, test: Test, gbps: float, source: str) -> None:
    assert ceiling_for(test, node) == Ceiling(gbps, source)


def test_one_way_of_unknown_rate_leaves_a_test_without_a_ceiling() -> None:
    known = star(LinkClass.XGMI, 64.0)
    unknown = dataclasses.replace(
        known, links=tuple(dataclasses.replace(link, gbps=None) if link.source == 4 else link for link in known.links)
    )
    assert ceiling_for(PULL, unknown) is None
    assert ceiling_for(Test.pull_from_peers(0, range(4), 4096), unknown) is not None


def test_what_a_transfer_with_several_ends_can_reach() -> None:
    node = star(LinkClass.XGMI, 64.0)
    assert ceiling_for(parse_transfer("(G1G2->G0->G0 0 4K)"), node) == Ceiling(64.0, "xGMI, a table")
    assert ceiling_for(parse_transfer("(G0->G0->G0G1 0 4K)"), node) == Ceiling(64.0, "xGMI, a table")
    sum_within = ceiling_for(parse_transfer("(G0G0->G0->G0 0 4K)"), node)
    assert sum_within == Ceiling(1600.0, "GPU 0's memory, 4800.0 GB/s for reads and writes together")


def test_tests_are_of_one_kind_where_all_their_sizes_are_in_one_proportion() -> None:
    large, small, other = (
        of_test(f"(G1->G0->G0 0 {pull})(G0->G0->G1 0 {push})")
        for pull, push in (("256M", "64M"), ("4M", "1M"), ("4M", "4M"))
    )
    run = RunCeilings([large, small, other])
    run.record(dataclasses.replace(LARGEST, transfer=large))
    assert run.ceiling_for(small) is not None
    assert run.ceiling_for(other) is None


def test_a_test_without_rates_is_judged_by_its_own_largest_size() -> None:
    large, small = (Test.pull_from_peers(0, range(5), size) for size in (1 << 28, 1 << 22))
    run = RunCeilings([large, small, *small.transfers])
    run.record(dataclasses.replace(LARGEST, transfer=large))
    found = run.ceiling_for(small)
    assert found is not None
    assert found.gbps == pytest.approx(4 * 345.0)
    assert run.ceiling_for(small.transfers[0]) is None


SIZES = ("4M", "64M", "256M")
TRANSFERS = [parse_transfer(f"({route} 0 {size})") for route in ("G1->G0->G0", "G0->G0->G1") for size in SIZES]
LARGEST = measured("(G1->G0->G0 0 256M)", gbps={"steady": 300.0, "cold": 290.0})


def test_a_pair_without_a_rate_is_judged_by_its_largest_size() -> None:
    run = RunCeilings(TRANSFERS)
    run.record(LARGEST)
    small = parse_transfer("(G1->G0->G0 8 4M)")
    assert run.ceiling_for(small) == Ceiling(
        pytest.approx(345.0),  # type: ignore[arg-type] # approx compares like a float
        "1.15 x this pair's 256M median of 300.0 GB/s",
    )
    assert run.why_not(small) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(G0->G0->G1 0 4M)", "this pair's 256M gave no rotated median"),
        ("(G1->D0->G0 0 4M)", "this run has no other size of this pair"),
        ("(U1->G0->G0 0 4M)", "this run has no other size of this pair"),
        ("(G1->G0->G0 0 256M)", "this is its pair's largest size"),
        ("(G1->G0->G0 0 512M)", "this is its pair's largest size"),
    ],
)
def test_why_there_is_no_ceiling_is_recorded(text: str, said: str) -> None:
    run = RunCeilings(TRANSFERS)
    run.record(LARGEST)
    transfer = parse_transfer(text)
    assert run.ceiling_for(transfer) is None
    why = run.why_not(transfer)
    assert why is not None
    assert said in why


@pytest.mark.parametrize(
    "unfit",
    [
        measured("(G1->G0->G0 0 64M)", gbps={"steady": 300.0}),
        measured("(G1->G0->G0 0 256M)", gbps={"steady": 300.0}, method={"rotated": False}),
        measured("(G1->G0->G0 0 256M)", gbps={"cold": 300.0}),
        dataclasses.replace(LARGEST, verdicts=(Finding("CORRUPT", "x", fails=True),)),
        measured("(G1->G0->G0 0 256M)", gbps={"steady": math.inf}),
    ],
    ids=["smaller", "unrotated", "no steady", "failed", "no time"],
)
def test_only_a_sound_rotated_median_of_the_largest_size_counts(unfit: object) -> None:
    run = RunCeilings(TRANSFERS)
    run.record(unfit)  # type: ignore[arg-type] # a Measurement; pytest gives parameters no type
    assert run.ceiling_for(parse_transfer("(G1->G0->G0 0 4M)")) is None


def test_a_passing_verdict_does_not_keep_a_median_out() -> None:
    run = RunCeilings(TRANSFERS)
    run.record(dataclasses.replace(LARGEST, verdicts=(Finding("NEW", "no baseline"),)))
    assert run.ceiling_for(parse_transfer("(G1->G0->G0 0 64M)")) is not None

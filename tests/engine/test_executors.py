"""What each executor cannot do on a node, said before anything is allocated."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

from pytest_transferbench.engine import Bench, executors
from pytest_transferbench.engine.executors import file_of, geometry_of, unsupported
from pytest_transferbench.node import HOST, Device, Link, LinkClass, Node, NumaNode
from pytest_transferbench.transfer import Test, Transfer, parse_transfer, parse_transfers, together
from pytest_transferbench.transfer.letters import EXECUTORS, ExecutorKind
from tests.engine.proof import measured


def node(
    runtime: str = "rocm",
    *,
    large_bar: bool = True,
    peer: bool = True,
    arch: str = "gfx942",
    version: str | None = "7.0.51831",
    numa_nodes: tuple[int, ...] = (0,),
    **facts: Any,
) -> Node:
    devices = tuple(
        Device(i, "GPU", arch, f"0000:0{i}:00.0", 304, 192 << 30, large_bar=large_bar, **facts) for i in (0, 1, 2)
    )
    ends = (HOST, 0, 1, 2)
    links = tuple(
        Link(
            a, b, LinkClass.LOCAL if a == b else LinkClass.HOST if HOST in (a, b) else LinkClass.XGMI, peer_access=peer
        )
        for a in ends
        for b in ends
    )
    return Node(
        runtime, devices, links, runtime_version=version, numa_nodes=tuple(NumaNode(index) for index in numa_nodes)
    )


def transfer(text: str) -> Transfer:
    return parse_transfer(text, nbytes=1 << 20)


@pytest.mark.parametrize(
    "text",
    ["G1->G0->G0", "G0->G0->G1", "G0->D0->G1", "G0->G0->G0", "C0->G0->G0", "G0->D0->C0", "C0->D0->G0", "C0->C0->G0",
     "G1->G2->G0", "F0->G0->U1", "C0->C0->C0", "N->G0->G1", "B0->G0->D0", "K0->D0->G0", "P1->G0->G0", "P2->C0->C0",
     "H0->D0->G0", "H0->C0->H0", "M0->G1->G1", "M0->D0->C0"],
)  # fmt: skip
def test_supported_on_rocm(text: str) -> None:
    assert unsupported(transfer(text), node()) is None


@pytest.mark.parametrize(
    ("text", "machine", "words"),
    [
        ("G1->D0->G0", node(), "ROCm runs a copy between GPUs on the source's DMA engine"),
        ("G7->G0->G0", node(), "needs G7; this node has GPUs 0-2"),
        ("C0->C0->G0", node("cuda"), "cpu cannot address memory of G0: CUDA does not map it for the host"),
        ("C0->C0->G0", node(large_bar=False), "its large BAR is off"),
        ("F0->G0->G1", node("cuda"), "F0: fine-grained GPU memory is ROCm's alone; use G0"),
        ("G0->G0->U1", node("cuda"), "U1: uncached GPU memory is ROCm's alone; use G1"),
        ("G0->G0->B0", node("cuda"), "B0: coherent pinned host memory is ROCm's alone; use C0"),
        ("D4->G0->G0", node("cuda", numa_nodes=(4, 5)), "D4: non-coherent pinned host memory is ROCm's alone; use C4"),
        ("K0->C0->C0", node("host"), "K0: uncached pinned host memory is ROCm's alone; use C0"),
        ("K0->G0->G0", node(version="6.4.43484"), "came with HIP 7, and this is HIP 6.4.43484; use B0"),
        ("P7->G0->G0", node(), "P7 needs G7; this node has GPUs 0-2"),
        ("P1->G0->G0", node(numa_nodes=(0, 1)), "does not say which NUMA node is closest to GPU 1; use C0"),
        ("P1->G0->G0", node(numa_nodes=(0, 1), numa_node=3), "P1: NUMA node 3, closest to GPU 1, has no memory that"),
        ("M1->G0->G0", node(managed_memory=False), "cannot be moved to GPU 1 (hipDeviceAttributeManagedMemory is 0)"),
        ("M1->G0->G0", node("cuda", managed_memory=False), "(cudaDevAttrConcurrentManagedAccess is 0); use G1"),
        ("G1->G0.2->G0", node(), "G0.2: GPU 0 has 1 XCC, 0; use one of these, or G0"),
        ("C0->C1->C0", node(), "cpu of NUMA node 1: those with memory and processors for this process are 0"),
        ("M0->C0->C0", node(), "cpu would move M0 to the host by touching it: use gfx or dma"),
        (
            "H0->G0->G0",
            node(pageable_access=False),
            "gfx of G0 does not reach H0, which is not pinned, without HSA_XNACK",
        ),
        ("G0->G0->H0", node("cuda"), "gfx of G0 does not reach H0, which is not pinned, without HMM"),
        ("G1->G0->G0", node(peer=False), "G0 has no peer access to G1: IOMMU, ACS or the topology forbids it"),
        ("G1->G2->G0", node(peer=False), "G2 has no peer access to G0"),
        ("C1->G0->G0", node(), "C1: host memory that this process may use is on NUMA node 0; use C0"),
        (
            "H0->C0->H2",
            node(numa_nodes=(2, 8)),
            "H0: host memory that this process may use is on NUMA nodes 2, 8; use C2",
        ),
    ],
)
def test_refused_with_the_reason(text: str, machine: Node, words: str) -> None:
    reason = unsupported(transfer(text), machine)
    assert reason is not None
    assert words in reason
    assert "\n" not in reason


def test_host_memory_is_numbered_as_the_kernel_does() -> None:
    sparse = node(numa_nodes=(2, 8), numa_node=8)
    for text in ("C8->G0->G0", "H2->D0->G0", "P0->G0->G0", "K8->G0->B2"):
        assert unsupported(transfer(text), sparse) is None


@pytest.mark.parametrize("version", ["7.0.51831", "10.0.1", None])
def test_uncached_host_memory_is_taken_for_there_where_nobody_denies_it(version: str | None) -> None:
    assert unsupported(transfer("K0->G0->G0"), node(version=version)) is None


def test_host_threads_run_where_there_are_processors() -> None:
    memory_alone = dataclasses.replace(node(), numa_nodes=(NumaNode(0, 8), NumaNode(4, 0), NumaNode(5, 2)))
    assert unsupported(transfer("C4->C5->C4"), memory_alone) is None
    assert unsupported(transfer("C4->C4->C4"), memory_alone) == (
        "cpu of NUMA node 4: those with memory and processors for this process are 0, 5"
    )


def test_a_kernel_reaches_unpinned_memory_where_the_gpu_takes_faults() -> None:
    assert unsupported(transfer("H0->G0->G0"), node(pageable_access=True)) is None
    assert unsupported(transfer("H0->G0->G0"), node("cuda", pageable_access=True)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(G0->G0->G1)(G1->G1->G0)", "(G0->G0->G1 0 1M) and (G1->G1->G0 0 1M) differ in executor"),
        ("(G0->G0->G1)(G0->D0->G1)", "differ in executor: such a Test is not run"),
        ("(G0->G0->G1)(G1->G0->G0)", "differ in op"),
        ("(G0->G0->G1 0 4M)(G0->G0->G2)", "differ in bytes"),
        ("(G0->G0->G1 8 4M)(G0->G0->G2 4 4M)", "differ in subexecutors"),
        ("(G0->D0->G1)(G0->D0->G2)", "(G0->D0->G1 0 1M) in a Test: only gfx from one memory to another is run there"),
        ("(N->G0->G1)(N->G0->G2)", "only gfx from one memory to another is run there"),
    ],
)
def test_what_no_executor_carries_out(text: str, said: str) -> None:
    reason = unsupported(together(parse_transfers(text, 1 << 20)), node())
    assert reason is not None
    assert said in reason


def test_dma_pull_is_real_on_cuda() -> None:
    assert unsupported(transfer("G1->D0->G0"), node("cuda")) is None


def test_dma_bounds_its_sub_iterations() -> None:
    assert unsupported(transfer("G0->D0->G1"), node(), 62) is None
    assert unsupported(transfer("G0->D0->G1"), node(), 63) == (
        "dma queues every sub-iteration by itself: use at most 62 sub-iterations"
    )
    assert unsupported(transfer("G0->G0->G1"), node(), 4096) is None


@pytest.mark.parametrize(
    ("arch", "text", "blocks", "threads", "unroll"),
    [
        ("gfx942", "(G1->G0->G0 0 256K)", 128, 256, 4),
        ("gfx942", "(G1->G0->G0 0 64M)", 304, 256, 4),
        ("gfx942", "(G0->G0->G0 0 64M)", 608, 256, 4),
        ("gfx942", "(G1->G0->G0 8 64M)", 8, 256, 4),
        ("gfx90a", "(G1->G0->G0 0 4)", 1, 256, 8),
        ("sm_90", "(G1->G0->G0 0 64K)", 16, 512, 8),
        ("C", "(C0->C0->C0 0 1M)", 4, 0, 0),
        ("D", "(G0->D0->G1 0 1M)", 1, 0, 0),
    ],
)
def test_geometry(arch: str, text: str, blocks: int, threads: int, unroll: int) -> None:
    machine = node(arch=arch if arch.startswith(("gfx", "sm_")) else "gfx942")
    found = geometry_of(transfer(text), machine)
    assert dataclasses.astuple(found) == (blocks, threads, unroll, None)


@pytest.mark.parametrize(
    ("subexecutors", "nbytes", "blocks"), [(0, 64 << 20, 152), (8, 64 << 20, 8), (0, 4096, 2), (999, 64 << 20, 999)]
)
def test_the_transfers_of_a_test_divide_the_units(subexecutors: int, nbytes: int, blocks: int) -> None:
    test = Test.pull_from_peers(0, range(3), nbytes, subexecutors)
    assert geometry_of(test, node()).subexecutors == blocks


def test_a_test_is_refused_for_any_of_its_transfers() -> None:
    assert unsupported(Test.pull_from_peers(0, range(3), 4096), node()) is None
    assert unsupported(Test.pull_from_peers(0, range(3), 4096), node(peer=False)) == (
        "G0 has no peer access to G1: IOMMU, ACS or the topology forbids it"
    )
    assert unsupported(Test.pull_from_peers(0, (0, 1, 7), 4096), node()) == (
        "(G7->G0->G0 0 4K) needs G7; this node has GPUs 0-2"
    )


@pytest.mark.parametrize("row", EXECUTORS, ids=lambda row: row.word)
def test_every_letter_has_a_file_of_its_word(row: ExecutorKind) -> None:
    home, end = ("C0", "C0") if row.on == "host" else ("G0", "G1")
    file = file_of(parse_transfer(f"{home}->{row.letter}0->{end}", 1 << 20))
    assert all(callable(getattr(file, name)) for name in ("geometry", "unsupported", "operations", "remark", "make"))
    assert inspect.getfile(file.make) == f"{Path(executors.__file__).parent}/{row.word}.py"


def test_a_kernel_has_the_shape_that_is_asked_for() -> None:
    pull = transfer("(G1->G0->G0 7 1M)")
    assert geometry_of(pull, node()) == executors.Geometry(7, 256, 4)
    assert geometry_of(pull, node(), 512) == executors.Geometry(7, 512, 4)
    assert geometry_of(pull, node(), unroll=8) == executors.Geometry(7, 256, 8)
    assert geometry_of(transfer("(G0->D0->G1 0 1M)"), node(), 512, 8) == executors.Geometry(1)


@pytest.mark.parametrize("shape", [(64, 1), (1024, 32)])
def test_bytes_arrive_whatever_the_kernels_shape(bench: Bench, shape: tuple[int, int]) -> None:
    block_threads, unroll = shape
    push = transfer("(G0->G0->G1 3 262156)")
    measurement = measured(bench, push, block_threads=block_threads, unroll=unroll, rotate_bytes=600 << 10)
    assert (measurement.faults, measurement.wrong_words) == ((), 0)
    assert (measurement.method["block_threads"], measurement.method["unroll"]) == shape
    assert measurement.digest != measured(bench, push, rotate_bytes=600 << 10).digest

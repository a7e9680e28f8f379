"""What a lease holds, and where its bytes came from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pytest_transferbench.emulator import activate
from pytest_transferbench.engine import Bench, pattern
from pytest_transferbench.engine.lease import _plan
from pytest_transferbench.node import HOST
from pytest_transferbench.transfer import Case, Test, Transfer, parse_transfer
from tests.engine.conftest import MODEL

MIB = 1 << 20


def test_slices_are_filled_on_their_device(bench: Bench) -> None:
    """4M on an MI300X: twice its 256 MiB cache makes 128 slices, and no byte of them comes from the host."""
    node = activate(MODEL)
    with bench.lease(Case(Transfer.pull("G1", "G0", 4 * MIB))) as lease:
        assert lease.plan.slices == 128
        assert lease.plan.span_bytes == 512 * MIB
        before = node.moved_bytes(HOST, 1)
        slices = lease.slices
        assert node.moved_bytes(HOST, 1) == before
        assert len(slices) == 128
        for index in (0, 1, 127):
            words = slices[index].get()
            assert pattern.check("slice", words, 1, (pattern.key_of(index, lease.nonce),)).passed


def test_without_rotation_the_source_is_the_transfer_and_no_more(bench: Bench) -> None:
    node = activate(MODEL)
    taken = {}
    for rotate_bytes in (0, None):
        bench.arena.clear()
        before = node.counters().bytes_allocated
        with bench.lease(Case(Transfer.pull("G1", "G0", MIB), rotate_bytes=rotate_bytes)) as lease:
            taken[rotate_bytes] = node.counters().bytes_allocated - before
            assert lease.plan.slices == (1 if rotate_bytes == 0 else 512)
    assert taken[None] - taken[0] == 511 * MIB


@pytest.mark.parametrize("gib", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_a_budget_larger_than_memory_is_bounded_and_says_so(bench: Bench, gib: int) -> None:
    with bench.lease(Case(Transfer.pull("G1", "G0", 64 * MIB), samples=1, rotate_bytes=gib << 30)) as lease:
        total = bench.node.device(1).memory_bytes
        assert lease.plan.slices == int(0.6 * total) // (64 * MIB)
        measurement = bench.measure(lease, key="test/bounded")
    assert measurement.wrong_words == 0
    assert f"rotation asked for {gib}G" in measurement.warnings[0]
    assert "60 % of the device's" in measurement.warnings[0]


SOURCES = ("(G1->G2->G2 0 1M)", "(U1->G2->G2 0 1M)", "(G0->G2->G2 0 1M)")
"""Two on GPU 1, one on GPU 0, all read at the same time."""


@pytest.mark.parametrize(("memory", "slices"), [({}, 300), ({1: 2000}, 600), ({0: 600}, 300), ({0: 400}, 240)])
def test_sources_that_share_a_gpu_share_its_memory(bench: Bench, memory: dict[int, int], slices: int) -> None:
    """GPUs of 1000 MiB but for those named; the one with the least for each of its sources decides for all."""
    devices = [
        dataclasses.replace(device, memory_bytes=memory.get(device.index, 1000) * MIB) for device in bench.node.devices
    ]
    node = dataclasses.replace(bench.node, devices=tuple(devices))
    test = Test(tuple(parse_transfer(text) for text in SOURCES))
    assert _plan(Case(test, rotate_bytes=1 << 50), node).slices == slices


def test_own_data_arrives_and_says_that_slices_are_alike(bench: Bench) -> None:
    data = np.arange(MIB // 4, dtype=np.uint32)[::-1].copy()
    with bench.lease(Case(Transfer.push("G0", "G1", MIB), samples=3, rotate_bytes=8 * MIB)) as lease:
        measurement = bench.measure(lease, key="test/own", data=data)
        assert np.array_equal(lease.peer.get(), data)
    assert measurement.wrong_words == 0
    assert not measurement.slice_identity_proved


@pytest.mark.parametrize(
    ("nbytes", "offset"), [(4, 0), (8, 4), (20, 12), (1000, 0), (4096 + 12, 8), (MIB + 4, 4), (3 * MIB - 4, 252)]
)
@pytest.mark.parametrize("executor", ["gfx", "dma"])
def test_odd_sizes_and_offsets_arrive_whole(bench: Bench, nbytes: int, offset: int, executor: str) -> None:
    case = Case(Transfer.push("G0", "G1", nbytes, executor), samples=1, rotate_bytes=64 * 1024, byte_offset=offset)
    with bench.lease(case) as lease:
        measurement = bench.measure(lease, key="test/odd")
    assert measurement.faults == ()
    assert measurement.wrong_words == 0
    assert {check.words for check in measurement.checks} == {nbytes // 4}


@pytest.mark.parametrize("text", ["G1->G0->N", "N->G0->G1", "G1->G2->G0", "C0->C0->C0", "G0->C0->C0", "C0->C0->G0"])
def test_reads_writes_relays_and_host_threads_are_proved_too(bench: Bench, text: str) -> None:
    case = Case(parse_transfer(text, nbytes=MIB), samples=2, rotate_bytes=4 * MIB, sub_iterations=3)
    with bench.lease(case) as lease:
        measurement = bench.measure(lease, key="test/kinds")
    assert measurement.faults == ()
    assert measurement.wrong_words == 0
    assert len(measurement.checks) == 3
    assert measurement.gbps > 0


def test_sub_iterations_advance_the_slices(bench: Bench) -> None:
    """The last of three passes over five slices is what the destination holds."""
    case = Case(Transfer.pull("G1", "G0", 4096), samples=4, rotate_bytes=5 * 4096, sub_iterations=3, validate="each")
    with bench.lease(case) as lease:
        measurement = bench.measure(lease, key="test/subs")
        assert lease.plan.slices == 5
        # Cold copies; warm ones, each after 3 untimed copies and one left out; steady ones.
        iterations = 4 + 4 * (3 + 1 + 1) + 4 * lease.method.copies
        last = (3 * iterations - 1) % 5
        assert pattern.check("peer", lease.peer.get(), 1, (pattern.key_of(last, lease.nonce),)).passed
    assert measurement.wrong_words == 0


def test_memory_goes_back_when_the_bench_closes_its_arena(bench: Bench) -> None:
    node = activate(MODEL)
    bench.arena.clear()
    idle = node.counters().allocations
    with bench.lease(Case(Transfer.pull("G1", "G0", MIB), samples=1, rotate_bytes=4 * MIB)) as lease:
        bench.measure(lease, key="test/memory")
        assert node.counters().allocations > idle
    bench.arena.clear()
    assert node.counters().allocations == idle


def test_a_lease_within_a_lease_leaves_the_outer_one_whole(bench: Bench) -> None:
    """A test that holds buffers may measure another transfer, and then its own."""
    outer = Case(Transfer.push("G0", "G1", MIB), samples=1, rotate_bytes=4 * MIB)
    for inner in (Transfer.push("G0", "G1", 2 * MIB), Transfer.pull("G2", "G3", MIB)):
        with bench.lease(outer) as lease:
            slices = [piece.get() for piece in lease.slices]
            held = bench.arena.held_bytes()
            with bench.lease(Case(inner, samples=1, rotate_bytes=8 * MIB)) as other:
                assert bench.measure(other, key="test/inner").wrong_words == 0
            assert bench.arena.held_bytes() == held
            for index, words in enumerate(slices):
                assert np.array_equal(lease.slices[index].get(), words)
            measurement = bench.measure(lease, key="test/outer")
            assert measurement.faults == ()
            assert measurement.wrong_words == 0


@pytest.mark.parametrize("data", [MIB, "x" * MIB, [1] * MIB, np.array([None] * (MIB // 8)), 1.5, b"123"])
def test_what_is_no_data_for_the_transfer_is_refused(bench: Bench, data: object) -> None:
    with (
        bench.lease(Case(Transfer.push("G0", "G1", MIB), samples=1, rotate_bytes=0)) as lease,
        pytest.raises(ValueError, match=r"^data (is|has) [^\n]*: give [^\n]*$"),
    ):
        bench.measure(lease, key="test/data", data=data)

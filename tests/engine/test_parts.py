"""Parts of an executor: what is refused, and a kernel that works on one XCC alone."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_transferbench.emulator import active
from pytest_transferbench.engine import Bench, executors, pattern
from pytest_transferbench.engine.executors import gfx
from pytest_transferbench.engine.parts import unsupported_part, xcc_blocks, xcc_defines, xcc_units
from pytest_transferbench.node import HOST, Device, Node
from pytest_transferbench.runtime import Allocation, Kernel, hsa
from pytest_transferbench.transfer import Memory, Transfer, parse_transfer, parse_transfers, together
from tests.engine.proof import corrupt_check, measured
from tests.runtime.fake_hsa import FakeHsa

NBYTES = 192 * 1024 + 12
BLOCKS, THREADS, UNROLL = 4, 256, 2
SHAPE = {"TB_BLOCK": THREADS, "TB_UNROLL": UNROLL}
KEY = pattern.key_of(0, 77)


def machine(runtime: str = "rocm", arch: str = "gfx942", xccs: int = 8, engines: int | None = 16, **facts: Any) -> Node:
    device = Device(0, "GPU", arch, "0000:01:00.0", 304, 192 << 30, xccs=xccs, copy_engines=engines)
    return Node(runtime, (device,), engine_copy=runtime == "rocm", **{"emulated": None, **facts})


@pytest.mark.parametrize(
    ("letter", "part", "node", "reason"),
    [
        ("G", 0, machine(), None),
        ("G", 7, machine(), None),
        ("G", 0, machine(xccs=1), None),
        ("G", 3, machine(arch="gfx950"), None),
        ("G", 8, machine(), "G0.8: GPU 0 has 8 XCCs, 0 to 7; use one of these, or G0"),
        ("G", 1, machine(arch="gfx90a", xccs=1), "G0.1: GPU 0 has 1 XCC, 0; use one of these, or G0"),
        ("G", 1, machine(arch="gfx1250"), "G0.1: a kernel on gfx1250 cannot tell which XCC it runs on; use G0"),
        ("G", 0, machine("cuda", "sm_90", 1), "G0.0: CUDA lets nobody choose a part of a GPU; use G0"),
        ("D", 0, machine("cuda", "sm_90", 1), "D0.0: CUDA lets nobody choose a part of a GPU; use D0"),
        ("D", 15, machine(), None),
        ("D", 40, machine(engines=None), None),
        ("D", 16, machine(), "D0.16: GPU 0 has 16 DMA engines, 0 to 15; use one of these, or D0"),
        ("D", 1, machine(engines=1), "D0.1: GPU 0 has 1 DMA engine, 0; use one of these, or D0"),
        ("D", 1, machine(emulated="x"), "D0.1: an emulated node chooses its DMA engines itself; use D0"),
        (
            "D",
            1,
            dataclasses.replace(machine(), engine_copy=False),
            "D0.1: no DMA engine can be chosen without hsa_amd_memory_async_copy_on_engine of libhsa-runtime64 "
            "(ROCm 5.7); use D0",
        ),
    ],
)
def test_a_part_is_there_or_refused_in_one_line(letter: str, part: int, node: Node, reason: str | None) -> None:
    assert unsupported_part(letter, 0, part, node) == reason


def test_an_xcc_has_its_share_of_the_units_and_a_launch_has_blocks_for_all() -> None:
    device = machine().device(0)
    assert (xcc_units(device), xcc_blocks(device, 5), xcc_defines(device, 3)) == (38, 40, {"TB_XCC": 3, "TB_XCCS": 8})
    alone = dataclasses.replace(device, xccs=1)
    assert (xcc_units(alone), xcc_blocks(alone, 5), xcc_defines(alone, 0)) == (304, 5, {})


def written(bench: Bench, kernel: Kernel, blocks: int) -> tuple[pattern.Words, pattern.Words]:
    """Let a tb_write work on zeroed memory; return what is there then, and the stamps of ``BLOCKS`` blocks."""
    context, runtime = bench.device(0), bench.runtime
    with bench.arena.case():
        target = bench.arena.take("target", Memory("G", 0), NBYTES)
        stamps = bench.arena.take("stamps", Memory("G", 0), 16 * BLOCKS)
        for zeroed in (target, stamps):
            runtime.clear(zeroed.pointer, zeroed.nbytes, context.stream)
        args = (np.uint64(target.pointer), np.uint64(NBYTES), np.uint32(KEY), np.uint32(1), np.uint64(stamps.pointer))
        runtime.launch(kernel, blocks, THREADS, args, context.stream)
        context.synchronize()
        found = np.frombuffer(runtime.read(target.pointer, NBYTES, 0), dtype=np.uint32).copy()
        return found, np.frombuffer(runtime.read(stamps.pointer, 16 * BLOCKS, 0), dtype=np.uint64).copy()


@pytest.mark.parametrize("xcc", [0, 5])
def test_one_xcc_does_all_of_the_work(bench: Bench, xcc: int) -> None:
    device = bench.device(0).device
    kernel = bench.device(0).kernel("copy", "tb_write", **SHAPE, **xcc_defines(device, xcc))
    found, stamps = written(bench, kernel, xcc_blocks(device, BLOCKS))
    assert pattern.check("written", found, 1, (KEY,)).passed
    assert stamps.all()
    assert (stamps[1::2] > stamps[::2]).all()


def test_a_share_that_no_block_on_the_xcc_has_is_left_undone_and_seen(bench: Bench) -> None:
    """Dealt out to eight, taken for seven: of the blocks 14 to 20, which have one share, none is on XCC 5."""
    kernel = bench.device(0).kernel("copy", "tb_write", **SHAPE, TB_XCC=5, TB_XCCS=7)
    found, stamps = written(bench, kernel, 7 * BLOCKS)
    assert 0 < pattern.check("written", found, 1, (KEY,)).wrong_words < found.size
    assert np.flatnonzero(stamps == 0).tolist() == [4, 5]


def xccs_of(ways: list[tuple[int, int]]) -> set[int]:
    """Return whose blocks have moved bytes over these ways since this was last asked."""
    node = active()
    assert node is not None
    return set().union(*(node.take_xccs(*way) for way in ways))


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("G1->G0.5->G0", [(1, 0)]),
        ("G0->G0.0->G1", [(0, 1)]),
        ("G1->G0.7->N", [(1, 0)]),
        ("N->G0.3->G1", [(0, 1)]),
        ("G1G2->G0.4->G0", [(1, 0), (2, 0)]),
        ("G0->G0.6->G1G2", [(0, 1), (0, 2)]),
        ("(G1->G0.2->G0)(G2->G0.2->G0)", [(1, 0), (2, 0)]),
    ],
)
def test_a_transfer_is_made_on_the_xcc_it_names_and_on_no_other(
    bench: Bench, text: str, ways: list[tuple[int, int]]
) -> None:
    for one, other in ways:
        bench.connect(one, other)  # with a copy of its own, on any XCC
    test = together(parse_transfers(text, NBYTES))
    assert executors.unsupported(test, bench.node) is None
    xccs_of(ways)
    measurement = measured(bench, test, rotate_bytes=0)  # type: ignore[arg-type]  # a Test does as well
    assert (measurement.faults, measurement.wrong_words) == ((), 0)
    assert not any(arm.rejected for arm in measurement.arms), "every block that works has left its stamps"
    xcc = test.executor.sub_index
    assert xccs_of(ways) == {xcc}
    assert measurement.method["part"] == xcc
    whole = dataclasses.replace(test.transfers[0], executor=dataclasses.replace(test.executor, sub_index=None))
    measured(bench, whole, rotate_bytes=0)
    assert xccs_of(ways) == set(range(8))


@pytest.mark.parametrize(
    ("nbytes", "op", "blocks"), [(64 << 20, "pull", 38), (64 << 20, "local", 76), (4096, "pull", 2)]
)
def test_without_subexecutors_the_units_of_the_one_xcc_share_the_work(
    bench: Bench, nbytes: int, op: str, blocks: int
) -> None:
    transfer = parse_transfer("G1->G0.2->G0" if op == "pull" else "G0->G0.2->G0", nbytes=nbytes)
    assert transfer.op == op
    found = executors.geometry_of(transfer, bench.node)
    assert (found.subexecutors, found.part) == (blocks, 2)


def test_blocks_that_were_dealt_out_otherwise_give_no_figure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a block index never on its XCC, TransferBench would leave its share undone and count it all the same."""
    monkeypatch.setattr(gfx, "xcc_defines", lambda device, xcc: {"TB_XCC": xcc, "TB_XCCS": device.xccs - 1})
    monkeypatch.setattr(gfx, "xcc_blocks", lambda device, blocks: (device.xccs - 1) * blocks)
    measurement = measured(bench, pull_by_xcc(5), rotate_bytes=0)
    assert 0 < measurement.wrong_words < 192 * 256


def test_a_case_of_another_xcc_is_another_one(bench: Bench) -> None:
    one, other = (measured(bench, pull_by_xcc(xcc), rotate_bytes=0) for xcc in (1, 2))
    assert one.digest != other.digest
    assert (one.key, other.key) == ("test/pull-gfx4-G1-G0-192K-at-G0.1", "test/pull-gfx4-G1-G0-192K-at-G0.2")


def pull_by_xcc(xcc: int) -> Transfer:
    return parse_transfer(f"G1->G0.{xcc}->G0", nbytes=192 * 1024, subexecutors=BLOCKS)


@pytest.fixture
def rocr(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHsa]:
    """A stand-in for ROCr that knows all memory of the emulated node; the host's clock is a real one meanwhile."""
    fake = FakeHsa(tmp_path)
    fake.set("engines", 0b1000)
    allocate = bench.runtime.allocate

    def known(memory: Memory, nbytes: int) -> Allocation:
        made = allocate(memory, nbytes)
        fake.allocated(made.pointer, nbytes, 2 + made.owner)
        return made

    bench.arena.clear()
    monkeypatch.setattr(bench.runtime, "allocate", known)
    monkeypatch.setattr(bench.runtime, "host_clock", time.perf_counter)
    api = hsa.HsaApi(fake.path)
    monkeypatch.setattr(bench.runtime, "_hsa", api)
    yield fake
    bench.arena.clear()
    api.close()


@pytest.mark.parametrize("text", ["G0->D0.3->G1", "C1->D0.3->G0", "G0->D0.3->C0", "G0->D0.3->G1G2C0"])
def test_copies_by_one_engine_are_made_by_it_alone_and_proved(bench: Bench, rocr: FakeHsa, text: str) -> None:
    measurement = measured(bench, parse_transfer(text, nbytes=NBYTES), rotate_bytes=4 * NBYTES)
    assert (measurement.faults, measurement.wrong_words) == ((), 0)
    assert {check.words for check in measurement.checks} == {NBYTES // 4}
    assert list(rocr.copies()) == [3]
    gpus = {end.owner for end in (*measurement.transfer.sources, *measurement.transfer.destinations)} - {HOST}
    assert all(frozenset((0, gpu)) in bench._connected for gpu in gpus - {0}), "peer access is enabled before"
    assert (measurement.method["part"], measurement.method["gate"]) == (3, "host")
    assert measurement.context["remark"] == "by the host's clock, which waits for every copy"
    assert measurement.gbps > 0


def test_a_copy_by_one_engine_that_leaves_a_word_is_found(bench: Bench, rocr: FakeHsa) -> None:
    rocr.set("left_out", 4)
    found = corrupt_check(measured(bench, parse_transfer("G0->D0.3->G1", nbytes=NBYTES), rotate_bytes=0))
    assert (found.wrong_words, found.first) == (1, NBYTES // 4 - 1)


def test_an_engine_that_fails_is_a_device_error(bench: Bench, rocr: FakeHsa) -> None:
    rocr.set("outcome", -1, ctypes.c_int64)
    measurement = measured(bench, parse_transfer("G0->D0.3->G1", nbytes=NBYTES), rotate_bytes=0)
    assert [fault.verdict for fault in measurement.faults] == ["DEVICE_ERROR"]
    assert "the copy failed while it ran (DMA engine 3)" in measurement.faults[0].detail


@pytest.mark.parametrize("text", ["H0->D0.3->G0", "G0->D0.3->M1"])
def test_one_engine_copies_what_no_runtime_has_to_stage(bench: Bench, text: str) -> None:
    node = dataclasses.replace(bench.node, emulated=None, engine_copy=True)
    end = text.replace("->D0.3->G0", "").replace("G0->D0.3->", "")
    assert executors.unsupported(parse_transfer(text, nbytes=NBYTES), node) == (
        f"D0.3 copies pinned memory alone, and {end} is not pinned: use D0"
    )
    assert executors.unsupported(parse_transfer("G0->D0.3->C1", nbytes=NBYTES), node) is None
    assert "use push-dma" in str(executors.unsupported(parse_transfer("G1->D0.3->G0", nbytes=NBYTES), node))

"""Parts of an executor: what is refused, and a kernel that works on one XCC alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pytest_transferbench.engine import Bench, pattern
from pytest_transferbench.engine.parts import unsupported_part, xcc_blocks, xcc_defines, xcc_units
from pytest_transferbench.node import Device, Node
from pytest_transferbench.runtime import Kernel
from pytest_transferbench.transfer import Memory

NBYTES = 192 * 1024 + 12
BLOCKS, THREADS, UNROLL = 4, 256, 2
SHAPE = {"TB_BLOCK": THREADS, "TB_UNROLL": UNROLL}
KEY = pattern.key_of(0, 77)


def machine(runtime: str = "rocm", arch: str = "gfx942", xccs: int = 8) -> Node:
    return Node(runtime, (Device(0, "GPU", arch, "0000:01:00.0", 304, 192 << 30, xccs=xccs),))


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
        ("D", 1, machine(), "D0.1: no DMA engine can be chosen, HIP takes one itself; use D0"),
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


@pytest.mark.parametrize("kernel", ["tb_copy", "tb_copy_many", "tb_read"])
def test_every_timed_kernel_is_compiled_for_one_xcc(bench: Bench, kernel: str) -> None:
    assert bench.device(0).kernel("copy", kernel, **SHAPE, TB_XCC=1, TB_XCCS=8).name == kernel

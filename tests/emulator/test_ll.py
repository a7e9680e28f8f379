"""The LL kernels on the emulated node: every message arrives, and laps take what the model's figures make of them."""

from __future__ import annotations

import ctypes
import statistics
import struct
import subprocess
from collections.abc import Callable

import pytest

from tests.emulator import ll
from tests.emulator.hip import SUCCESS, Hip

Child = Callable[..., subprocess.CompletedProcess[str]]

PREAMBLE = """
import os
from pytest_transferbench.emulator import activate
from tests.emulator import ll
from tests.emulator.hip import Hip
"""


@pytest.mark.parametrize("hashed", [True, False], ids=["hashed", "plain"])
@pytest.mark.parametrize("variant", ll.VARIANTS)
def test_messages_arrive_in_wavefronts_of_64(hip: Hip, variant: str, hashed: bool) -> None:
    ll.check_all_sizes(hip, variant, hashed=hashed)


@pytest.mark.parametrize("variant", ll.VARIANTS)
def test_messages_arrive_in_wavefronts_of_32(run_child: Child, variant: str) -> None:
    done = run_child(
        PREAMBLE
        + f"""
hip = Hip(activate("gfx1250-spx"))
for hashed in (True, False):
    ll.check_all_sizes(hip, {variant!r}, hashed=hashed)
"""
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variant", ["ll", "ll128-sc", "ll128-tf"])
def test_both_ends_may_be_one_device(hip: Hip, variant: str) -> None:
    outcome = ll.exchange(hip, variant, 64 << 10, 5, ends=(2, 2))
    assert (outcome.wrong, outcome.late) == (0, (ll.NOTHING, ll.NOTHING))


def test_one_processor_is_enough_for_two_kernels_that_wait_for_each_other(run_child: Child) -> None:
    done = run_child(
        PREAMBLE
        + """
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
hip = Hip(activate("mi300x-8"))
for variant in ("ll", "ll128-sc", "ll128-tf"):
    for nbytes, iterations in ((8, 200), (1 << 20, 3)):
        outcome = ll.exchange(hip, variant, nbytes, iterations)
        assert (outcome.wrong, outcome.late) == (0, (ll.NOTHING, ll.NOTHING)), (variant, nbytes)
        assert outcome.seconds < 10, (variant, nbytes)
"""
    )
    assert done.returncode == 0, done.stderr


def test_sixteen_mebibytes_come_out_as_on_mi300x(hip: Hip) -> None:
    """The row ``LL128-sc 16777216 B nlines=139811 nb=64 ... BW= 44.426 GB/s``."""
    nbytes = 16 << 20
    first, second = (ll.exchange(hip, "ll128-sc", nbytes, 3, hashed=False) for _ in range(2))
    assert (first.lines, first.blocks) == (139811, 64)
    assert nbytes / (statistics.median(first.laps) * 10) == pytest.approx(44.4, rel=0.02)
    since_launch = [[stamp - run.stamps[0] for stamp in run.stamps] for run in (first, second)]
    assert since_launch[0] == since_launch[1]


@pytest.mark.parametrize("variant", ["ll", "ll128-sc", "ll128-tf"])
def test_bytes_are_the_same_every_time(hip: Hip, variant: str) -> None:
    """However often a thread polls: each message and its answer, and what the receiver reads of its own."""
    iterations, ways = 3, [(0, 1), (1, 0), (1, 1)]
    runs = []
    for _ in range(3):
        before = [hip.activation.moved_bytes(*way) for way in ways]
        outcome = ll.exchange(hip, variant, 1 << 20, iterations, hashed=False)
        runs.append([hip.activation.moved_bytes(*way) - old for way, old in zip(ways, before, strict=True)])
    assert runs == [runs[0]] * 3
    message = outcome.lines * ll.VARIANTS[variant][0]
    assert runs[0][:2] == [iterations * message, iterations * 8]
    assert runs[0][2] >= message


@pytest.mark.parametrize("variant", ll.VARIANTS)
@pytest.mark.parametrize("nbytes", [8, 1 << 20])
def test_laps_follow_the_model(hip: Hip, variant: str, nbytes: int) -> None:
    """By arithmetic on the lines alone: every turn of a block is a drain, and a fence where the protocol has one."""
    line, order = ll.VARIANTS[variant]
    link, write_back = hip.model.links["xgmi"], hip.model.gfx.write_back_us
    lines, blocks = ll.geometry(variant, nbytes)
    turns = -(-lines // (ll.THREADS // (line // 8)) // blocks)
    packed, drained, written_back, fenced = 0, 1, 2, 3
    drains = {packed: 0, drained: turns, written_back: turns, fenced: 1}[order]
    fences = {packed: 0, drained: 0, written_back: turns, fenced: 1}[order]
    behind_data = max(drains - 1, 0) * 2 * link.one_way_us + max(fences - 1, 0) * write_back
    lap_us = (
        max(lines * line / link.usable_gbps / 1e3, behind_data)
        + bool(drains) * 2 * link.one_way_us
        + bool(fences) * write_back
        + 2 * link.one_way_us
    )
    outcome = ll.exchange(hip, variant, nbytes, 4, hashed=False)
    assert outcome.laps == pytest.approx([lap_us * 100] * 4, abs=1.1)


def test_ping_pong_laps_are_two_ways(hip: Hip) -> None:
    laps, first_flag = 200, 1
    hip.enable_peer(0, 1)
    hip.enable_peer(1, 0)
    report = struct.pack("8Q", ll.NOTHING, *[0] * 7)
    kernels = [
        hip.kernel(ll.source(), "tb_ll_ping_pong", device=device, options=ll.options("ll", hashed=True))
        for device in (0, 1)
    ]
    with (
        ll.cleared(hip, 16, 0) as here,
        ll.cleared(hip, 16, 1) as there,
        ll.cleared(hip, 8 * (laps + 1), 0) as near_stamps,
        ll.cleared(hip, 8 * (laps + 1), 1) as far_stamps,
        ll.cleared(hip, len(report), 0, report) as near_report,
        ll.cleared(hip, len(report), 1, report) as far_report,
        hip.stream(0) as near,
        hip.stream(1) as far,
    ):
        counts = ctypes.c_uint(laps), first_flag, 30 * ll.TICKS_A_SECOND
        following = (here, there, far_stamps, far_report, 0, *counts)
        leading = (there, here, near_stamps, near_report, 12345, *counts)
        assert hip.launch(kernels[1], 1, 1, *following, stream=far) == SUCCESS
        hip.set_device(0)
        assert hip.launch(kernels[0], 1, 1, *leading, stream=near) == SUCCESS
        for stream in (near, far):
            hip.ok("hipStreamSynchronize", stream)
        stamps = struct.unpack(f"{laps + 1}Q", hip.read(near_stamps, 8 * (laps + 1)))
        for pointer in (near_report, far_report):
            late, wrong = struct.unpack("2Q", hip.read(pointer, 16))
            assert (late, wrong) == (ll.NOTHING, 0)
    there_and_back = 2 * hip.model.links["xgmi"].one_way_us * 100
    assert (stamps[-1] - stamps[0]) / laps == pytest.approx(there_and_back, rel=1e-3)


@pytest.mark.parametrize(
    ("variant", "right", "wrong"),
    [
        ("ll", "word >> 32 | flag << 32", "word >> 32 | (flag + 1) << 32"),
        ("ll128-sc", "line * TB_WORDS + TB_WORDS - 1;", "line * TB_WORDS;"),
        ("ll128-tf", "line * TB_WORDS + TB_WORDS - 1;", "line * TB_WORDS;"),
    ],
    ids=["ll", "ll128-sc", "ll128-tf"],
)
def test_lost_flags_end_both_kernels_at_their_deadline(hip: Hip, variant: str, right: str, wrong: str) -> None:
    """With as many waiting threads as there can be, some for several lines, and none of which sees any change."""
    deadline = 0.2
    sending = ll.source((right, wrong))
    outcome = ll.exchange(hip, variant, 8 << 20, 3, deadline_seconds=deadline, sending=sending)
    assert [late >> 32 for late in outcome.late] == [0, 0], "the iteration of both"
    assert outcome.seconds < deadline + 1

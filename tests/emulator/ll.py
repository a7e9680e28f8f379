"""Launching ``hipkernels/ll.hip``: a sender and a receiver, each in a stream of its own."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import hipkernels
from tests.emulator.hip import SUCCESS, Hip
from tests.stopwatch import Stopwatch

THREADS = 256
TICKS_A_SECOND = 10**8
NOTHING = (1 << 64) - 1
"""All ones: no wait ended late, no word was wrong."""

PACKED = 16
VARIANTS = {
    "ll": (PACKED, 0),
    **{
        f"ll{line}-{how}": (line, order)
        for line in (64, 128, 256)
        for order, how in enumerate(("sc", "sc+wb", "tf"), start=1)
    },
}
"""Line in bytes and TB_ORDER of each protocol."""

SIZES = (8, 56, 57, 119, 120, 121, 1 << 10, 1 << 20)
_REPORT_WORDS = 8  # room for more than a kernel writes
_LATE, _WRONG, _SUM = 0, 1, 5


@dataclass(frozen=True)
class Outcome:
    """What one exchange of messages left behind. ``laps`` are ticks, ``late`` is what the two sides report."""

    lines: int
    blocks: int
    stamps: tuple[int, ...]
    wrong: int
    total: int
    late: tuple[int, int]
    seconds: float
    """From the launches on, less what other work on the machine took."""

    @property
    def laps(self) -> list[int]:
        return [end - begin for begin, end in pairwise(self.stamps)]


def geometry(variant: str, nbytes: int) -> tuple[int, int]:
    """Return how many lines a message has, and how many blocks move it."""
    line = VARIANTS[variant][0]
    payload, lanes = (8, 1) if line == PACKED else (line - 8, line // 8)
    lines = -(-nbytes // payload)
    return lines, min(64, max(1, lines // (THREADS // lanes)))


def expected_total(variant: str, nbytes: int, flags: range) -> int:
    """Return what the words of messages with these flags add up to."""
    words_a_line = 1 if VARIANTS[variant][0] == PACKED else VARIANTS[variant][0] // 8 - 1
    words = geometry(variant, nbytes)[0] * words_a_line
    indices = words * (words - 1) // 2
    by_index, by_flag = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
    return (len(flags) * indices * by_index + words * sum(flags) * by_flag) % (1 << 64)


def source(replace: tuple[str, str] | None = None) -> str:
    """Return the kernels' text, with one piece of it in another's place."""
    text = hipkernels.source("ll")
    if replace is None:
        return text
    assert text.count(replace[0]) == 1, replace[0]
    return text.replace(*replace)


def options(variant: str, *, hashed: bool) -> list[str]:
    line, order = VARIANTS[variant]
    return [f"-DTB_LINE={line}", f"-DTB_ORDER={order}", f"-DTB_HASHED={int(hashed)}"]


@contextmanager
def cleared(hip: Hip, nbytes: int, device: int, content: bytes = b"") -> Iterator[int]:
    pointer = hip.malloc(nbytes, device)
    hip.write(pointer, content.ljust(nbytes, b"\0"))
    yield pointer
    hip.ok("hipFree", pointer)


def exchange(
    hip: Hip,
    variant: str,
    nbytes: int,
    iterations: int,
    *,
    hashed: bool = True,
    ends: tuple[int, int] = (0, 1),
    first_flag: int = 1,
    deadline_seconds: float = 30.0,
    sending: str | None = None,
) -> Outcome:
    """Send ``iterations`` messages from the first to the second of two devices, or in one device.

    ``sending`` is the text of the sender's kernel where it is not the receiver's.
    """
    sender, receiver = ends
    if sender != receiver:
        hip.enable_peer(sender, receiver)
        hip.enable_peer(receiver, sender)
    with_options = options(variant, hashed=hashed)
    send = hip.kernel(sending or source(), "tb_ll_send", device=sender, options=with_options)
    receive = hip.kernel(source(), "tb_ll_receive", device=receiver, options=with_options)
    lines, blocks = geometry(variant, nbytes)
    report = struct.pack(f"{_REPORT_WORDS}Q", NOTHING, 0, NOTHING, *[0] * (_REPORT_WORDS - 3))
    with (
        cleared(hip, lines * VARIANTS[variant][0], receiver) as ring,
        cleared(hip, 8, receiver) as arrived,
        cleared(hip, len(report), receiver, report) as received,
        cleared(hip, 8, sender) as ack,
        cleared(hip, 8 * (iterations + 1), sender) as stamps,
        cleared(hip, len(report), sender, report) as sent,
    ):
        counts = ctypes.c_uint(lines), ctypes.c_uint(iterations), first_flag, round(deadline_seconds * TICKS_A_SECOND)
        stopwatch = Stopwatch()
        with hip.stream(receiver) as there, hip.stream(sender) as here:
            hip.set_device(receiver)
            assert hip.launch(receive, blocks, THREADS, ring, ack, arrived, received, *counts, stream=there) == SUCCESS
            hip.set_device(sender)
            assert hip.launch(send, blocks, THREADS, ring, ack, stamps, sent, *counts, stream=here) == SUCCESS
            for stream in (here, there):
                hip.ok("hipStreamSynchronize", stream)
        seconds = stopwatch.least_seconds
        at_receiver, at_sender = (
            struct.unpack(f"{_REPORT_WORDS}Q", hip.read(pointer, len(report))) for pointer in (received, sent)
        )
        return Outcome(
            lines=lines,
            blocks=blocks,
            stamps=struct.unpack(f"{iterations + 1}Q", hip.read(stamps, 8 * (iterations + 1))),
            wrong=at_receiver[_WRONG],
            total=at_receiver[_SUM],
            late=(at_sender[_LATE], at_receiver[_LATE]),
            seconds=seconds,
        )


def check_all_sizes(hip: Hip, variant: str, *, hashed: bool, sizes: tuple[int, ...] = SIZES) -> None:
    """Exchange messages of every size and see that they arrived."""
    flags = range(5, 8)
    for nbytes in sizes:
        outcome = exchange(hip, variant, nbytes, len(flags), hashed=hashed, first_flag=flags[0])
        assert outcome.late == (NOTHING, NOTHING), (variant, nbytes)
        assert outcome.wrong == 0, (variant, nbytes)
        assert outcome.total == expected_total(variant, nbytes, flags), (variant, nbytes)

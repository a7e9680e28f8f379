"""The buffers of one message case, and the launches that send messages through them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pytest_transferbench.latency.limits import ring_kind
from pytest_transferbench.runtime import Kernel, RuntimeFault
from pytest_transferbench.transfer import Memory, MessageCase, MessageMethod
from pytest_transferbench.transfer.protocol import BLOCK_THREADS

if TYPE_CHECKING:
    from pytest_transferbench.engine import Bench

ORDERS = {"packed": 0, "drained": 1, "written back": 2, "fenced": 3}
"""``TB_ORDER`` of ``ll.hip``."""
PLACE_STEP, PLACE_TURN = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
"""``tb_place`` of word ``i`` of the message with flag ``f`` is ``i * step + f * turn`` modulo 2**64."""
MODULUS = 2**64
TRIAL_ITERATIONS = 2
"""Hashed messages before the timed ones: the second overwrites what the first has left."""
LEADERS_SEED = 0x6A09E667F3BCC909
"""What only the side that leads a ping-pong is told: it is in every lap's line, added to the flag."""
NEVER = MODULUS - 1
"""What a report says of a wait that nobody gave up, and of a wrong word that nobody saw."""

_REPORT_WORDS = 8
_ARRIVED_AT = 8 * _REPORT_WORDS
_STAMPS_AT = 128
"""Where one side's own memory holds them, in bytes behind its report."""
_ACK_BYTES = 256
_LOW_HALF = 2**32


@dataclass(frozen=True)
class Report:
    """What one side of a launch has to tell; see ``tb_ll_report`` in ``ll.hip``."""

    late: int
    wrong_words: int
    first: int
    last: int
    mask: int
    sum: int
    wrong_bytes: int

    @property
    def given_up(self) -> tuple[int, int] | None:
        """Iteration and block of the earliest wait that ended without what it waited for; ``None`` if none did."""
        return None if self.late == NEVER else (self.late >> 32, self.late & 0xFFFFFFFF)


@dataclass(frozen=True)
class Launch:
    """What one launch of both sides gave: ``ticks`` has the start and the end of every iteration."""

    first_flag: int
    ticks: npt.NDArray[np.uint64]
    event_seconds: float
    gate_timed_out: bool
    sender: Report
    receiver: Report


class Ring:
    """The buffers of one case, taken from the arena: ring and ACK, and each side's report and stamps.

    Every launch starts from a ring of zeros and with flags that no launch before has used, so that no line of an
    earlier message, or of another protocol's, looks like a new one.
    """

    def __init__(self, bench: Bench, case: MessageCase) -> None:
        message = case.transfer
        self.bench, self.case, self.runtime = bench, case, bench.runtime
        self.owners = {message.source.index, message.destination.index}
        self.warnings = bench.make_room(case, self.owners)
        bench.connect(message.source.index, message.destination.index)
        self.sender = bench.device(message.source.index)
        self.receiver = bench.device(message.destination.index)
        self._receiving = self.receiver.second_stream if message.loopback else self.receiver.stream
        self.lines = message.protocol.lines(message.nbytes)
        self.kind = ring_kind(case, bench.node)
        self.link = bench.node.link(message.source.index, message.destination.index)
        take = bench.arena.take
        self._ring_bytes = self.lines * message.protocol.line_bytes
        self._ring = take("ring", Memory(self.kind, message.destination.index), self._ring_bytes).pointer
        self._ack = take("ack", Memory(self.kind, message.source.index), _ACK_BYTES).pointer
        own_bytes = _STAMPS_AT + 8 * (1 + max(TRIAL_ITERATIONS, case.warmups + case.samples))
        self._sender_report = take("sender", Memory("G", message.source.index), own_bytes).pointer
        self._receiver_report = take("receiver", Memory("G", message.destination.index), own_bytes).pointer

    @property
    def method(self) -> MessageMethod:
        """How this case is measured."""
        return MessageMethod(
            protocol=self.case.transfer.protocol.name,
            samples=self.case.samples,
            warmups=self.case.warmups,
            lines=self.lines,
            blocks=self.case.blocks,
            block_threads=BLOCK_THREADS,
            ring_kind=self.kind,
            hashed=self.case.validate == "each",
            link_class=str(self.link.link_class),
        )

    def send(self, iterations: int, *, hashed: bool) -> Launch:
        """Send ``iterations`` messages, one after the other; blocking. Raises ``RuntimeFault``.

        Every word is compared where it arrives; with ``hashed`` it takes longer to make.
        """
        first_flag = self._next_flags(iterations)
        count = (np.uint32(self.lines), np.uint32(iterations), np.uint64(first_flag))
        ring, ack = np.uint64(self._ring), np.uint64(self._ack)
        arrived = np.uint64(self._receiver_report + _ARRIVED_AT)
        receive = self._kernel(self.receiver.index, "tb_ll_receive", hashed)
        send = self._kernel(self.sender.index, "tb_ll_send", hashed)
        to_receive = (ring, ack, arrived, np.uint64(self._receiver_report))
        to_send = (ring, ack, np.uint64(self._sender_report + _STAMPS_AT), np.uint64(self._sender_report))
        return self._run(receive, to_receive, send, to_send, count, first_flag, self.case.blocks, BLOCK_THREADS)

    def ping_pong(self, laps: int, *, hashed: bool) -> Launch:
        """Send one line to and fro ``laps`` times; blocking. Raises ``RuntimeFault``.

        The sender compares what comes back: the receiver cannot make it.
        """
        first_flag = self._next_flags(laps)
        there, back = np.uint64(self._ring), np.uint64(self._ack)
        answer = self._kernel(self.receiver.index, "tb_ll_ping_pong", hashed)
        lead = self._kernel(self.sender.index, "tb_ll_ping_pong", hashed)
        stamps = [np.uint64(report + _STAMPS_AT) for report in (self._receiver_report, self._sender_report)]
        to_answer = (back, there, stamps[0], np.uint64(self._receiver_report), np.uint64(0))
        to_lead = (there, back, stamps[1], np.uint64(self._sender_report), np.uint64(LEADERS_SEED))
        count = (np.uint32(laps), np.uint64(first_flag))
        return self._run(answer, to_answer, lead, to_lead, count, first_flag, 1, 1)

    def _run(
        self,
        receive: Kernel,
        to_receive: tuple[Any, ...],
        send: Kernel,
        to_send: tuple[Any, ...],
        count: tuple[Any, ...],
        first_flag: int,
        blocks: int,
        threads: int,
    ) -> Launch:
        runtime, sender, iterations = self.runtime, self.sender, int(count[-2])
        self._clear(iterations)
        for kernel, own, stream in ((receive, to_receive, self._receiving), (send, to_send, sender.stream)):
            # Nothing is sent: it loads the module, which a kernel that waits for the other side would hold up.
            runtime.launch(kernel, 1, threads, (*own, *count[:-2], np.uint32(0), count[-1], np.uint64(0)), stream)
            runtime.synchronize(stream)
        ticks = [
            np.uint64(self.case.timeout_seconds * runtime.deadline_hz(end)) for end in (receive.device, send.device)
        ]
        try:
            # The gate comes first: a receiver that already polls would hold up the loading of the gate's own kernel.
            with self.bench.gate.closed(sender):
                runtime.launch(receive, blocks, threads, (*to_receive, *count, ticks[0]), self._receiving)
                runtime.record(sender.start, sender.stream)
                runtime.launch(send, blocks, threads, (*to_send, *count, ticks[1]), sender.stream)
                runtime.record(sender.stop, sender.stream)
            runtime.synchronize(sender.stream)
        except BaseException:  # Ctrl-C between the launches, too
            # A receiver to which nobody sends gives up by itself; its memory must not go before it has.
            with contextlib.suppress(RuntimeFault):
                runtime.synchronize(self._receiving)
            raise
        runtime.synchronize(self._receiving)
        return Launch(
            first_flag,
            sender.read_words(self._sender_report + _STAMPS_AT, 1 + iterations),
            runtime.elapsed_seconds(sender.start, sender.stop),
            self.bench.gate.timed_out(),
            self._report(sender.read_words(self._sender_report, _REPORT_WORDS)),
            self._report(self.receiver.read_words(self._receiver_report, _REPORT_WORDS)),
        )

    def _clear(self, iterations: int) -> None:
        """Zero everything a launch reads, and wait until it is."""
        self.runtime.clear(self._ring, self._ring_bytes, self.receiver.stream)
        self.runtime.clear(self._ack, _ACK_BYTES, self.sender.stream)
        empty = [NEVER, 0, NEVER, *[0] * (_STAMPS_AT // 8 - 3 + 1 + iterations)]
        self.sender.write_words(self._sender_report, empty)
        self.receiver.write_words(self._receiver_report, empty)
        self.sender.synchronize()
        self.receiver.synchronize()

    def _next_flags(self, count: int) -> int:
        """Return the first of ``count`` flags that nobody has used.

        LL carries their low half: it must not wrap, and where it were 0, a ring of zeros would have it already.
        """
        first = self.bench.next_nonce(count)
        while first % _LOW_HALF + count > _LOW_HALF or first % _LOW_HALF == 0:
            first = self.bench.next_nonce(count)
        return first

    def _kernel(self, device: int, name: str, hashed: bool) -> Kernel:
        return self.runtime.compile(device, "ll", (name,), self._defines(hashed))[name]

    def _defines(self, hashed: bool) -> dict[str, int]:
        protocol = self.case.transfer.protocol
        return {"TB_LINE": protocol.line_bytes, "TB_ORDER": ORDERS[protocol.order], "TB_HASHED": int(hashed)}

    @staticmethod
    def _report(words: npt.NDArray[np.uint64]) -> Report:
        return Report(*(int(word) for word in words[:7]))

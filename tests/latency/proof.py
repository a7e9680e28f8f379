"""Messages that are whole, and messages broken on purpose: what must be seen on any node, emulated or real."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import hipkernels
from pytest_transferbench import latency
from pytest_transferbench.engine import Bench
from pytest_transferbench.judge import judge
from pytest_transferbench.latency.ring import Launch, Ring
from pytest_transferbench.measurement import Finding, Measurement
from pytest_transferbench.runtime import Kernel
from pytest_transferbench.transfer import Message, MessageCase, Protocol
from tests.stopwatch import Stopwatch

DEADLINE_SECONDS = 0.5


def sizes_around_a_line(protocol: Protocol) -> list[int]:
    """Return sizes where a line is just not full, full, and just begun, and where a word is not."""
    line = protocol.data_bytes
    return sorted({8, 119, 120, 121, 1024, line - 1, line, line + 1})


def ends(bench: Bench) -> tuple[int, int]:
    """Return two GPUs, or one twice where there is no other."""
    indices = [device.index for device in bench.node.devices]
    return indices[0], indices[1 % len(indices)]


def message_case(bench: Bench, protocol: Protocol | str, nbytes: int, **more: object) -> MessageCase:
    return MessageCase(
        Message.push(protocol, *ends(bench), nbytes),
        **{"samples": 4, "warmups": 2, "timeout_seconds": 10.0, **more},  # type: ignore[arg-type]
    )


def ping_pong_case(bench: Bench, **more: object) -> MessageCase:
    return MessageCase(Message.ping_pong(*ends(bench)), **{"samples": 20, "timeout_seconds": 10.0, **more})  # type: ignore[arg-type]


def measure(bench: Bench, case: MessageCase, ring: type[Ring] = Ring) -> Measurement:
    return latency.measure(bench, case, key=f"test/{case.name}", take=ring)


def verdict(measurement: Measurement) -> Finding:
    return judge(measurement, ceiling=None)[0]


def assert_whole(bench: Bench, case: MessageCase) -> Measurement:
    measurement = measure(bench, case)
    assert verdict(measurement).verdict == "NEW", verdict(measurement)
    assert measurement.wrong_words == 0
    arm = measurement.arm("steady")
    assert arm is not None
    assert len(arm.seconds) == case.samples
    assert all(seconds > 0 for seconds in arm.seconds)
    return measurement


@dataclass(frozen=True)
class Broken:
    """One side's kernel with lines of its text changed, where payload is hashed or where time counts."""

    name: str
    kernel: str
    edits: tuple[tuple[str, str], ...]
    hashed: bool = False
    launches: list[tuple[float, float]] = field(default_factory=list)
    """How long each launch took, from when all was compiled: in real seconds, and at least on a machine of its own."""

    def __str__(self) -> str:
        return self.name

    @property
    def ring(self) -> type[Ring]:
        """A ring whose launches use the broken kernel."""
        broken = self

        class BrokenRing(Ring):
            def _run(self, *arguments: Any) -> Launch:
                stopwatch = Stopwatch()
                launch = super()._run(*arguments)
                broken.launches.append((stopwatch.real_seconds, stopwatch.least_seconds))
                return launch

            def _kernel(self, device: int, name: str, hashed: bool) -> Kernel:
                if name != broken.kernel or hashed != broken.hashed:
                    return super()._kernel(device, name, hashed)
                text = hipkernels.source("ll")
                for old, new in broken.edits:
                    assert old in text, f"ll.hip no longer says {old!r}"
                    text = text.replace(old, new)
                with patch.object(hipkernels, "source", lambda _: text):
                    defines = self._defines(hashed)
                    return self.runtime.compile(device, f"ll_{broken.name}", (name,), defines)[name]

        return BrokenRing


SEND, RECEIVE, PING_PONG = "tb_ll_send", "tb_ll_receive", "tb_ll_ping_pong"
_SENDS = "tb_send_message(ring, share, flag);"
_ACKS = "tb_store_system(ack, flag);"
_LEADS, _FOLLOWS = "if (seed) tb_put(", "if (!seed) tb_put(theirs, tb_data(line), flag);"
_LOOKS = "const tb_u64 difference ="
_HASHED, _PLAIN = "return x ^ (x >> 31);", "return index * 0x9E3779B97F4A7C15ull + flag * 0xD1B54A32D192ED03ull;"

FLAG_LOST = Broken("flag_lost", SEND, ((_SENDS, f"if (i != 3 || blockIdx.x != 1) {_SENDS}"),))
ACK_LOST = Broken("ack_lost", RECEIVE, ((_ACKS, f"if (i != 4) {_ACKS}"),))
# One bit of the low half of a word, and two of one byte of its high half, in every message of the trial.
WORD_FLIPPED = Broken(
    "word_flipped", SEND, ((_HASHED, "return x ^ (x >> 31) ^ (index == 5 ? 0x0000030000000100ull : 0);"),), hashed=True
)


def _in_one_message(name: str, old: str, new: str) -> Broken:
    """Break the payload where the flag is a multiple of 6: in one of every six messages."""
    return Broken(name, SEND, ((_PLAIN, _PLAIN.replace(old, new)),))


# One bit of the low half of a word, and two bytes of its high half.
TIMED_WORD_FLIPPED = _in_one_message(
    "timed_word_flipped", "return ", "return (flag % 6 == 0 && index == 5 ? 0x0101000000000100ull : 0) ^ "
)
TIMED_WORDS_SWAPPED = _in_one_message(
    "timed_words_swapped", "return index *", "return (index ^ (flag % 6 == 0 && index / 2 == 3)) *"
)
TIMED_WORD_LEFT_OUT = Broken(
    "timed_word_left_out", RECEIVE, ((_LOOKS, f"is_data &= index != 5 || flag % 6;\n  {_LOOKS}"),)
)


LINE_LOST = Broken("line_lost", PING_PONG, ((_LEADS, _LEADS.replace("seed", "seed && i != 3")),))
ANSWER_LOST = Broken("answer_lost", PING_PONG, ((_FOLLOWS, _FOLLOWS.replace("!seed", "!seed && i != 3")),))
ANSWER_FLIPPED = Broken(
    "answer_flipped", PING_PONG, ((_FOLLOWS, _FOLLOWS.replace("(line)", "(line) ^ (i == 5 ? 0x300 : 0)")),)
)
ANSWER_MADE_UP = Broken(
    "answer_made_up", PING_PONG, ((_FOLLOWS, _FOLLOWS.replace("tb_data(line)", "tb_payload(i, flag)")),)
)
LAP_LEFT_OUT = Broken("lap_left_out", PING_PONG, (("if (seed) tb_take(", "if (seed && i != 5) tb_take("),))


def assert_timeout(bench: Bench, broken: Broken, said: str) -> None:
    """A wait that nobody ends is given up in time, named, and leaves the GPUs usable."""
    whole = message_case(bench, "ll128-sc", 4096) if broken.kernel != PING_PONG else ping_pong_case(bench)
    # A deadline that a busy machine may not keep is for what is lost alone.
    finding = verdict(measure(bench, dataclasses.replace(whole, timeout_seconds=DEADLINE_SECONDS), broken.ring))
    source, destination = ends(bench)
    assert (finding.verdict, finding.detail) == ("TIMEOUT", said.format(source=source, destination=destination))
    real_seconds, least_seconds = broken.launches[-1]
    assert real_seconds > DEADLINE_SECONDS
    assert least_seconds < DEADLINE_SECONDS + 1
    assert_whole(bench, whole)


LOST = (
    (
        FLAG_LOST,
        "LL128-sc 4K: block 1 on GPU {destination} waited 0.5 s for the flag of iteration 3 of 6 in the timed pass",
    ),
    (ACK_LOST, "LL128-sc 4K: block 0 on GPU {source} waited 0.5 s for the ACK of iteration 4 of 6 in the timed pass"),
    (LINE_LOST, "LL 8: block 0 on GPU {destination} waited 0.5 s for the line in lap 3 of 30 in the timed pass"),
    (
        ANSWER_LOST,
        "LL 8: block 0 on GPU {source} waited 0.5 s for the line to come back in lap 3 of 30 in the timed pass",
    ),
)


def assert_flipped_word_is_counted(bench: Bench, protocol: Protocol) -> None:
    measurement = measure(bench, message_case(bench, protocol, 4096), WORD_FLIPPED.ring)
    # In both messages of the trial.
    assert _wrong(measurement, "the trial messages") == (4, 4, 10, 11, 0x300 | 0x100)
    assert len(measurement.checks) == 1


def assert_flipped_timed_word_is_counted(bench: Bench, protocol: Protocol) -> None:
    measurement = measure(bench, message_case(bench, protocol, 4096), TIMED_WORD_FLIPPED.ring)
    assert _wrong(measurement, "the timed messages") == (2, 3, 10, 11, 0x01010000 | 0x100)


def assert_swapped_timed_words_are_counted(bench: Bench, protocol: Protocol) -> None:
    """Two words in each other's place: nothing that only adds up sees it."""
    measurement = measure(bench, message_case(bench, protocol, 4096), TIMED_WORDS_SWAPPED.ring)
    count, _, first, last, _ = _wrong(measurement, "the timed messages")
    assert (count, first, last) == (4, 12, 15)


def assert_word_left_out_is_noticed(bench: Bench, protocol: Protocol) -> None:
    """A word that nobody took was compared with nothing: the sum lacks it, and tells no more."""
    measurement = measure(bench, message_case(bench, protocol, 4096), TIMED_WORD_LEFT_OUT.ring)
    assert _wrong(measurement, "the timed messages") == (1, 1, -1, -1, 0)
    detail = verdict(measurement).detail
    assert detail.startswith(f"at least 1 of {measurement.checks[-1].words} words wrong, found: sum 0x")


def assert_wrong_lap_is_counted(bench: Bench) -> None:
    """One byte of the low half of what comes back in one lap."""
    assert _wrong(measure(bench, ping_pong_case(bench), ANSWER_FLIPPED.ring), "the timed laps") == (1, 1, 10, 10, 0x300)


def assert_answer_made_up_is_wrong(bench: Bench) -> None:
    """What comes back is what came, not what the other side could make as well."""
    count, *_ = _wrong(measure(bench, ping_pong_case(bench), ANSWER_MADE_UP.ring), "the timed laps")
    assert count == 2 * 30


def assert_lap_left_out_is_noticed(bench: Bench) -> None:
    assert _wrong(measure(bench, ping_pong_case(bench), LAP_LEFT_OUT.ring), "the timed laps") == (1, 1, -1, -1, 0)


def _wrong(measurement: Measurement, what: str) -> tuple[int, ...]:
    """Count, bytes, first, last and mask of the one check that failed, after which nothing was timed."""
    assert verdict(measurement).verdict == "CORRUPT"
    (check,) = (check for check in measurement.checks if not check.passed)
    assert check.what == what
    assert not measurement.arms
    return check.wrong_words, check.wrong_bytes, check.first, check.last, check.xor_mask

"""Messages that are whole, and messages broken on purpose: what must be seen on any node, emulated or real."""

from __future__ import annotations

import time
from dataclasses import dataclass
from unittest.mock import patch

import hipkernels
from pytest_transferbench import latency
from pytest_transferbench.engine import Bench
from pytest_transferbench.judge import judge
from pytest_transferbench.latency.ring import Ring
from pytest_transferbench.measurement import Finding, Measurement
from pytest_transferbench.runtime import Kernel
from pytest_transferbench.transfer import Message, MessageCase, Protocol

DEADLINE_SECONDS = 0.3


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
    """One side's kernel with lines of its text changed, in the passes that are compared or in those that are not."""

    name: str
    kernel: str
    edits: tuple[tuple[str, str], ...]
    checked: bool

    def __str__(self) -> str:
        return self.name

    @property
    def ring(self) -> type[Ring]:
        """A ring whose launches use the broken kernel."""
        broken = self

        class BrokenRing(Ring):
            def _kernel(self, device: int, name: str, checked: bool) -> Kernel:
                if name != broken.kernel or checked != broken.checked:
                    return super()._kernel(device, name, checked)
                text = hipkernels.source("ll")
                for old, new in broken.edits:
                    assert old in text, f"ll.hip no longer says {old!r}"
                    text = text.replace(old, new)
                with patch.object(hipkernels, "source", lambda _: text):
                    defines = self._defines(checked)
                    return self.runtime.compile(device, f"ll_{broken.name}", (name,), defines)[name]

        return BrokenRing


SEND, RECEIVE = "tb_ll_send", "tb_ll_receive"
_SENDS = "tb_send_message(ring, share, flag);"
_ACKS = "tb_store_system(ack, flag);"
_HASHED, _PLAIN = "return x ^ (x >> 31);", "return index * 0x9E3779B97F4A7C15ull + flag * 0xD1B54A32D192ED03ull;"

FLAG_LOST = Broken("flag_lost", SEND, ((_SENDS, f"if (i != 3 || blockIdx.x != 1) {_SENDS}"),), checked=False)
ACK_LOST = Broken("ack_lost", RECEIVE, ((_ACKS, f"if (i != 4) {_ACKS}"),), checked=False)
WORD_FLIPPED = Broken(
    "word_flipped", SEND, ((_HASHED, "return x ^ (x >> 31) ^ (index == 5 ? 0x0000030000000100ull : 0);"),), checked=True
)
TIMED_WORD_FLIPPED = Broken(
    "timed_word_flipped", SEND, ((_PLAIN, _PLAIN.replace("return ", "return (index == 5) + ")),), checked=False
)


def assert_timeout(bench: Bench, broken: Broken, said: str) -> None:
    """A wait that nobody ends is given up in time, named, and leaves the GPUs usable."""
    case = message_case(bench, "ll128-sc", 64 * 1024, timeout_seconds=DEADLINE_SECONDS)
    healthy = assert_whole(bench, case)
    measure(bench, case, broken.ring)  # compiles it, which is no part of the wait
    started = time.monotonic()
    finding = verdict(measure(bench, case, broken.ring))
    assert time.monotonic() - started < DEADLINE_SECONDS + 1 + healthy.wall_seconds
    assert finding.verdict == "TIMEOUT"
    source, destination = ends(bench)
    assert finding.detail == said.format(source=source, destination=destination)
    assert_whole(bench, case)


def assert_flag_lost(bench: Bench) -> None:
    assert_timeout(
        bench,
        FLAG_LOST,
        "LL128-sc 64K: block 1 on GPU {destination} waited 0.3 s for the flag of iteration 3 of 6 in the timed pass",
    )


def assert_ack_lost(bench: Bench) -> None:
    assert_timeout(
        bench,
        ACK_LOST,
        "LL128-sc 64K: block 0 on GPU {source} waited 0.3 s for the ACK of iteration 4 of 6 in the timed pass",
    )


def assert_flipped_word_is_counted(bench: Bench, protocol: Protocol) -> None:
    finding_of = measure(bench, message_case(bench, protocol, 4096), WORD_FLIPPED.ring)
    assert verdict(finding_of).verdict == "CORRUPT"
    (check,) = finding_of.checks
    # One bit of the word's low half and two of one byte of its high half, in both messages that are compared.
    assert (check.wrong_words, check.wrong_bytes, check.first, check.last) == (4, 4, 10, 11)
    assert check.xor_mask == 0x300 | 0x100
    assert not finding_of.arms


def assert_flipped_timed_word_changes_the_sum(bench: Bench, protocol: Protocol) -> None:
    measurement = measure(bench, message_case(bench, protocol, 4096), TIMED_WORD_FLIPPED.ring)
    finding = verdict(measurement)
    assert finding.verdict == "CORRUPT"
    assert "found: sum 0x" in finding.detail
    assert "in the timed messages" in finding.detail

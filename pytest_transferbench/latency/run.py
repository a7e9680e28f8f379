"""One message case, measured: a trial first, then every iteration timed; every word of both compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_transferbench.engine.clocks import Clocks
from pytest_transferbench.latency.ring import (
    LEADERS_SEED,
    MODULUS,
    PLACE_STEP,
    PLACE_TURN,
    TRIAL_ITERATIONS,
    Launch,
    Ring,
)
from pytest_transferbench.measurement import Arm, Check, Fault, Measurement
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.runtime.telemetry import Snapshot, link_bytes, reasons_to_reject
from pytest_transferbench.transfer import MessageCase, format_size

if TYPE_CHECKING:
    from pytest_transferbench.engine import Bench

TRIES = 3
"""How often the timed messages are sent before clocks that disagree make the case INVALID.

One launch sends them all and is thrown away as a whole: no share of samples that a judge could allow."""


class _EndedError(Exception):
    """Ends a case that has no figure to take any more."""


def measure(
    bench: Bench, case: MessageCase, *, key: str, take: Callable[[Bench, MessageCase], Ring] = Ring
) -> Measurement:
    """Measure a message case in a ring of its own, got by ``take``.

    Faults of the device are recorded in the measurement; where already the ring cannot be had, RuntimeFault is raised.

    The arm ``steady`` has the seconds of every timed iteration: to the ACK for a one-way message, half a lap of a
    round trip.
    """
    with bench.borrow(case, take) as ring:
        return _measure(bench, ring, key)


def _measure(bench: Bench, ring: Ring, key: str) -> Measurement:
    started = time.monotonic()
    run = _Run(ring)
    before = bench.telemetry.snapshot(ring.owners)
    try:
        bench.refuse_lost(ring.owners)
        run.take()
        after = bench.telemetry.snapshot(ring.owners)
        run.count_link_bytes(before, after)
    except _EndedError:
        pass
    except RuntimeFault as fault:
        bench.note_fault(ring.case, fault)
        run.faults.append(Fault("DEVICE_ERROR", f"{key}: {fault}"))
    else:
        run.faults += [Fault("INVALID", reason) for reason in reasons_to_reject(before, after)]
        run.facts["telemetry"] = {"before": before, "after": after}
    message, method = ring.case.transfer, ring.method
    return Measurement(
        key=key,
        transfer=message,
        op=message.op,
        link_class=method.link_class,
        nbytes=message.nbytes,
        method=method.to_json(),
        digest=method.digest(),
        arms=tuple(run.arms),
        checks=tuple(run.checks),
        faults=tuple(run.faults),
        warnings=(*ring.warnings, *run.warnings),
        context=run.context(),
        emulated=bench.node.emulated,
        validated=ring.case.validate != "off",
        wall_seconds=time.monotonic() - started,
    )


class _Run:
    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.case: MessageCase = ring.case
        self.message = ring.case.transfer
        self.arms: list[Arm] = []
        self.checks: list[Check] = []
        self.faults: list[Fault] = []
        self.warnings: list[str] = []
        self.facts: dict[str, Any] = {}
        self._sent = 0

    def take(self) -> None:
        """Try, then time; raises ``_EndedError`` where no wait could end, one was given up, or data is wrong."""
        self._insist_on_deadlines()
        if self.case.validate == "end":
            self._send(TRIAL_ITERATIONS, hashed=True, what="trial")
        iterations = self.case.warmups + self.case.samples
        for attempt in range(1, TRIES + 1):
            launch = self._send(iterations, hashed=self.case.validate == "each", what="timed")
            objection = self._objection(launch)
            if objection is None:
                self._keep(launch)
                return
            if attempt < TRIES:
                self.warnings.append(f"the timed messages were sent again: {objection}")
        self.faults.append(Fault("INVALID", f"{objection}, in the last of {TRIES} tries"))

    def context(self) -> dict[str, Any]:
        """Return the plain facts worth keeping beside the figures; times in seconds, rates in GB/s."""
        found = {
            "runtime": self.ring.bench.node.runtime,
            "launch_device": self.ring.sender.index,
            "link_gbps": self.ring.link.gbps,
            "source_of_rate": self.ring.link.source_of_rate,
            "order": self.message.protocol.order,
            "seconds_are": "half a round trip" if self.message.round_trip else "a message and its ACK",
            **self.facts,
        }
        if not self.message.round_trip:
            found["wire_efficiency"] = self.message.nbytes / self._wire_bytes
        if self.arms and not self.message.round_trip:
            found["wire_gbps"] = self._wire_bytes / self.arms[0].median_seconds / 1e9
        return found

    def count_link_bytes(self, before: Snapshot, after: Snapshot) -> None:
        """Keep what the links' own counters saw beside the bytes of all lines that were sent."""
        counted = None if self.message.loopback else link_bytes(before, after, str(self.ring.sender.index))
        if counted is not None:
            claimed = self._sent * self._wire_bytes
            self.facts["link_bytes"] = {"sent": counted[0], "received": counted[1], "claimed": claimed}

    @property
    def _wire_bytes(self) -> int:
        return self.ring.lines * self.message.protocol.line_bytes

    @property
    def _words(self) -> int:
        """8-byte words of data in a message; the last line is filled up."""
        return self.ring.lines * self.message.protocol.data_bytes // 8

    def _insist_on_deadlines(self) -> None:
        for side in (self.ring.sender, self.ring.receiver):
            hz = self.ring.runtime.deadline_hz(side.index)
            if not 0 < hz < math.inf:
                said = f"the clock that ends waits on GPU {side.index} has a rate of {hz:g} Hz: nothing was sent"
                self.faults.append(Fault("INVALID", said))
                raise _EndedError

    def _send(self, iterations: int, *, hashed: bool, what: str) -> Launch:
        """Send messages and prove them; raises ``_EndedError`` where a wait was given up or data is wrong."""
        send = self.ring.ping_pong if self.message.round_trip else self.ring.send
        launch = send(iterations, hashed=hashed)
        self._sent += iterations
        late = self._late(launch)
        if late is not None:
            self.faults.append(Fault("TIMEOUT", f"{late} of {iterations} in the {what} pass"))
            raise _EndedError
        if self.case.validate != "off":
            self._prove(launch, what, iterations)
        return launch

    def _late(self, launch: Launch) -> str | None:
        """Say in words whose wait was given up first; at the same iteration it is the receiver that misses more."""
        there, back = ("the line", "the line to come back") if self.message.round_trip else ("the flag", "the ACK")
        waits = [
            (report.given_up, place, side.index, what)
            for place, (report, side, what) in enumerate(
                ((launch.receiver, self.ring.receiver, there), (launch.sender, self.ring.sender, back))
            )
            if report.given_up is not None
        ]
        if not waits:
            return None
        (iteration, block), _, gpu, what = min(waits, key=lambda wait: (wait[0][0], wait[1]))
        return (
            f"{self.message.protocol.title} {format_size(self.message.nbytes)}: block {block} on GPU {gpu} waited "
            f"{self.case.timeout_seconds:g} s for {what} {'in lap' if self.message.round_trip else 'of iteration'} "
            f"{iteration}"
        )

    def _prove(self, launch: Launch, what: str, iterations: int) -> None:
        """Keep what comparing every word gave, and whether every word was there to be compared."""
        report = launch.sender if self.message.round_trip else launch.receiver
        name = f"the {what} {'laps' if self.message.round_trip else 'messages'}"
        words = 2 * self._words * iterations
        if report.wrong_words:
            check = Check(name, words, report.wrong_words, report.wrong_bytes, report.first, report.last, report.mask)
        elif report.sum != (expected := self._expected_sum(launch, iterations)):
            said = f"sum {report.sum:#x} instead of {expected:#x}: a word was not taken, or more than once"
            check = Check.of_sum(name, words, said)
        else:
            check = Check(name, words)
        self.checks = [kept for kept in self.checks if kept.what != name] + [check]
        if not check.passed:
            raise _EndedError

    def _expected_sum(self, launch: Launch, iterations: int) -> int:
        flags = sum(range(launch.first_flag, launch.first_flag + iterations))
        if self.message.round_trip:  # one message of as many words as there are laps, each with another flag
            return (PLACE_STEP * _sum_below(iterations) + PLACE_TURN * (flags + LEADERS_SEED * iterations)) % MODULUS
        return (PLACE_STEP * _sum_below(self._words) * iterations + PLACE_TURN * flags * self._words) % MODULUS

    def _objection(self, launch: Launch) -> str | None:
        """Say why the timed messages cannot be believed; ``None`` when they can."""
        if launch.gate_timed_out:
            return "the start gate ran into its deadline before everything was queued"
        hz = self.ring.runtime.stamp_hz(self.ring.sender.index)
        ticks = launch.ticks.astype(np.int64)
        flaw, span = None, math.nan
        if not 0 < hz < math.inf:
            flaw = f"its rate is {hz:g} Hz"
        elif ticks[0] == 0 or not bool((np.diff(ticks) > 0).all()):
            flaw = "an iteration left no stamp of its own"
        else:
            span = float(ticks[-1] - ticks[0]) / hz
        facts = self.ring.bench.clock_facts(self.ring.sender.index)
        return Clocks(launch.event_seconds, span, kernel_flaw=flaw).objection(facts.launch_seconds)

    def _keep(self, launch: Launch) -> None:
        hz = self.ring.runtime.stamp_hz(self.ring.sender.index)
        ticks = launch.ticks[self.case.warmups :].astype(np.int64)
        seconds = np.diff(ticks) / hz / (2 if self.message.round_trip else 1)
        self.arms.append(
            Arm(
                "steady",
                1,
                seconds=tuple(map(float, seconds)),
                event_seconds=(launch.event_seconds,),
            )
        )


def _sum_below(count: int) -> int:
    return count * (count - 1) // 2

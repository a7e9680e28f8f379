"""The clocks of one sample, and whether they tell the same story."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.gate import DEADLINE_SECONDS, Gate

COMPARED_FROM_SECONDS = 200e-6
"""Where both device clocks show less, their constant parts outweigh what they measure: they are not compared."""
KERNEL_SLACK_SECONDS, HOST_SLACK_SECONDS, SLACK_SHARE = 10e-6, 50e-6, 0.03
MAX_LAUNCH_SECONDS = 50e-6
"""No launch takes longer: an event clock that is stuck high would otherwise pass for one that does."""
_EMPTY_TRIES = 5


@dataclass(frozen=True)
class Clocks:
    """One sample's span in seconds by each clock; ``nan`` where that clock was not there.

    ``event``: from the start event behind the gate to the stop event. ``kernel``: from the first block's start stamp
    to the last block's stop stamp. ``host``: from the gate's release to the end of the host's wait.
    """

    event: float = math.nan
    kernel: float = math.nan
    host: float = math.nan
    host_only: bool = False
    """The host did the work itself, so that its clock is the only one; else a missing event is an objection."""
    kernel_flaw: str | None = None
    """Why the kernel clock, which should have been there, cannot be read."""

    @property
    def seconds(self) -> float:
        """The span the sample is judged by."""
        return self.host if self.host_only else self.event

    def objection(self, launch_seconds: float = 0.0) -> str | None:
        """Say, in one line naming both clocks, why the sample cannot be believed; ``None`` when it can.

        ``launch_seconds`` is what the events see of a launch and the kernel's stamps do not: some 3 us on one machine,
        above 10 on another.
        """
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            return f"event clock shows {self.seconds} s, host clock {_us(self.host)}"
        if self.host_only:
            return None
        if self.kernel_flaw is not None:
            return f"event clock shows {_us(self.event)}, kernel clock nothing: {self.kernel_flaw}"
        if self.kernel <= 0:
            return f"event clock shows {_us(self.event)}, kernel clock {_us(self.kernel)}"
        if not (self.event >= COMPARED_FROM_SECONDS or self.kernel >= COMPARED_FROM_SECONDS):
            return None
        share = SLACK_SHARE * self.event
        for name, other, unseen, slack in (
            ("kernel", self.kernel, launch_seconds, max(KERNEL_SLACK_SECONDS, share)),
            ("host", self.host, 0.0, HOST_SLACK_SECONDS + share),
        ):
            if abs(other + unseen - self.event) > slack:
                return f"event clock shows {_us(self.event)}, {name} clock {_us(other)}"
        return None


def span_of_stamps(stamps: npt.NDArray[np.uint64], hz: float, not_before: int) -> tuple[float, int, str | None]:
    """Return the span in seconds of ``stamps[launch, block, (start, stop)]``, the last stop, and any flaw in words.

    ``not_before`` is the last stop of the sample before: an older stamp means that a block left none this time.
    """
    if not 0 < hz < math.inf:
        return math.nan, not_before, f"its rate is {hz:g} Hz"
    start, stop = int(stamps[0, :, 0].min()), int(stamps[-1, :, 1].max())
    oldest, earliest_stop = int(stamps.min()), int(stamps[-1, :, 1].min())
    if oldest == 0 or oldest < not_before or earliest_stop < start:
        return math.nan, not_before, "a block left no stamp, it did not run"
    return (stop - start) / hz, stop, None


def empty_pair_seconds(context: DeviceContext, gate: Gate) -> float:
    """Return the median time between two events with nothing in between: what every event span includes."""
    return float(np.median([_event_span(context, gate, lambda: None) for _ in range(_EMPTY_TRIES)]))


def launch_seconds(context: DeviceContext, gate: Gate) -> float:
    """Return the median time that two events around an empty kernel see beyond the kernel's own stamps, bounded.

    0 where the stamp clock has no rate: nothing is compared with it then.
    """
    hz, stamps = context.runtime.stamp_hz(context.index), context.results.pointer
    if hz <= 0:
        return 0.0
    beyond = []
    for _ in range(_EMPTY_TRIES):
        span = _event_span(context, gate, lambda: context.launch_single("tb_nothing", 1, (np.uint64(stamps),)))
        start, stop = map(int, context.read_words(stamps, 2))
        beyond.append(span - (stop - start) / hz)
    return min(max(0.0, float(np.median(beyond))), MAX_LAUNCH_SECONDS)


def _event_span(context: DeviceContext, gate: Gate, queue: Callable[[], None]) -> float:
    runtime = context.runtime
    with gate.closed(context):
        runtime.record(context.start, context.stream)
        queue()
        runtime.record(context.stop, context.stream)
    context.synchronize()
    return runtime.elapsed_seconds(context.start, context.stop)


def skew_seconds(context: DeviceContext) -> float:
    """Return how far the stamp clocks of the device's dies lie apart; 0 where there is one die.

    One block a die meets at a counter and stamps, so the figure is an upper bound: it holds the meeting's jitter.
    """
    dies = context.device.xccs
    hz = context.runtime.stamp_hz(context.index)
    if dies < 2 or hz <= 0:
        return 0.0
    arrived = context.results.pointer
    stamps = arrived + 64
    context.write_words(arrived, [0] * (8 + 2 * dies))
    ticks = np.uint64(DEADLINE_SECONDS * context.runtime.deadline_hz(context.index))
    context.launch_single("tb_skew", dies, (np.uint64(arrived), np.uint64(stamps), ticks))
    context.synchronize()
    seen = context.read_words(stamps, 2 * dies)[::2]
    return float(int(seen.max()) - int(seen.min())) / hz


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"

"""What one case gave, as plain data: samples, checks, faults. Judging happens elsewhere."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pytest_transferbench.transfer import AnyTransfer, Message


class GBps(float):
    """A bandwidth in GB/s (1e9 bytes a second) that prints with its unit."""

    def __repr__(self) -> str:
        return f"{float(self):.1f} GB/s"

    __str__ = __repr__


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Write two bandwidths in GB/s with as few decimals as show that they differ, at least one and at most six."""
    for decimals in range(1, 7):
        texts = f"{float(one):.{decimals}f} GB/s", f"{float(other):.{decimals}f} GB/s"
        if texts[0] != texts[1]:
            return texts
    return str(GBps(one)), str(GBps(other))


@dataclass(frozen=True)
class Finding:
    """One verdict as data: its word (``CORRUPT``), one line that says why, and whether it fails the item."""

    verdict: str
    detail: str
    fails: bool = False


@dataclass(frozen=True)
class Fault:
    """Something that kept a case from being measured as asked.

    ``verdict`` is the word it will be judged as: ``DEVICE_ERROR``, ``TIMEOUT`` or ``INVALID``.
    """

    verdict: str
    detail: str


@dataclass(frozen=True)
class Check:
    """The outcome of comparing one destination with what it must hold, or one read with its checksum.

    Indices count 32-bit words from the start of the destination and are -1 where nothing was wrong, and where a sum
    tells that something was: ``wrong_words`` and ``wrong_bytes`` are then the least that can be.
    ``wrong_bytes`` of the wrong words' bytes differ. ``xor_mask`` is the OR of (found xor expected) over all wrong
    words. ``found`` says in words what was there instead. ``guard_words`` and ``guard_bytes`` were overwritten around
    the destination, and ``guard_found`` says where. ``reread_agrees`` tells whether a second look through a DMA
    read-back saw the same.
    """

    what: str
    words: int
    wrong_words: int = 0
    wrong_bytes: int = 0
    first: int = -1
    last: int = -1
    xor_mask: int = 0
    found: str = ""
    guard_words: int = 0
    guard_bytes: int = 0
    guard_found: str = ""
    reread_agrees: bool | None = None

    @classmethod
    def of_sum(cls, what: str, words: int, found: str) -> Self:
        """Return the outcome of adding up ``words`` words whose sum is not the right one."""
        return cls(what, words, wrong_words=1, wrong_bytes=1, found=found)

    @property
    def passed(self) -> bool:
        return self.wrong_words == 0 and self.guard_words == 0


@dataclass(frozen=True)
class Arm:
    """The samples of one arm (``cold``, ``warm`` or ``steady``).

    ``seconds`` are per copy, one entry a sample, in the order taken; the other clocks are spans of the whole
    sample in seconds and ``nan`` where that clock was not there. ``copies`` is how many passes over the bytes a
    sample held. Of Messages a sample is one iteration, and ``event_seconds`` is the one span of all, warm-ups included.
    ``rejected`` names every sample that was thrown out and why; those are not in ``seconds``.
    """

    name: str
    copies: int
    seconds: tuple[float, ...]
    event_seconds: tuple[float, ...] = ()
    kernel_seconds: tuple[float, ...] = ()
    host_seconds: tuple[float, ...] = ()
    rejected: tuple[str, ...] = ()

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds) if self.seconds else math.nan


@dataclass(frozen=True)
class Measurement:
    """Everything one case gave.

    ``method`` is :meth:`Method.to_json <pytest_transferbench.transfer.Method.to_json>` and ``digest`` its digest.
    ``context`` holds plain facts worth keeping beside the figures: launch device, memory owners, blocks, clock
    states, cross-checks that were made or could not be made. ``nbytes`` is that of one Transfer, counted once, as
    TransferBench does; bandwidth is that of all Transfers that ran at the same time.
    """

    key: str
    transfer: AnyTransfer
    op: str
    link_class: str
    nbytes: int
    method: Mapping[str, Any]
    digest: str
    arms: tuple[Arm, ...] = ()
    checks: tuple[Check, ...] = ()
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    emulated: str | None = None
    validated: bool = True
    """False when the run was asked not to check the data."""
    slice_identity_proved: bool = True
    """False with user-supplied data: equal slices cannot tell which of them was read."""
    wall_seconds: float = math.nan
    verdicts: tuple[Finding, ...] = ()
    judged: bool = True
    control: bool = False
    """True for a case that shows an artefact on purpose: it is never judged."""

    def __repr__(self) -> str:
        # Failed assertions show it, and the whole of it would hide what failed.
        return f"Measurement({self.key!r}, {', '.join(finding.verdict for finding in self.verdicts) or 'not judged'})"

    def arm(self, name: str) -> Arm | None:
        """Return the arm called ``name``, or None when it was not measured."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def arm_gbps(self, name: str) -> GBps:
        """Return the median bandwidth of an arm; ``nan`` when it has no samples."""
        arm = self.arm(name)
        seconds = arm.median_seconds if arm else math.nan
        return GBps(self.transfer.total_bytes / seconds / 1e9 if seconds else math.nan)

    @property
    def gbps(self) -> GBps:
        """The headline: median of the steady samples."""
        return self.arm_gbps("steady")

    @property
    def p10_gbps(self) -> GBps:
        """The bandwidth that nine steady samples in ten reach (numpy's default interpolation)."""
        arm = self.arm("steady")
        if arm is None or len(arm.seconds) < 2:
            return self.gbps
        ninetieth = statistics.quantiles(arm.seconds, n=10, method="inclusive")[-1]
        return GBps(self.transfer.total_bytes / ninetieth / 1e9)

    @property
    def seconds(self) -> float:
        """Median seconds of a steady copy or message; half of a round trip."""
        arm = self.arm("steady")
        return arm.median_seconds if arm else math.nan

    @property
    def p99_seconds(self) -> float:
        """The seconds that 99 in 100 steady copies or messages do not exceed (numpy's default interpolation)."""
        arm = self.arm("steady")
        if arm is None or len(arm.seconds) < 2:
            return self.seconds
        return statistics.quantiles(arm.seconds, n=100, method="inclusive")[-1]

    @property
    def cold_gbps(self) -> GBps:
        return self.arm_gbps("cold")

    @property
    def warm_gbps(self) -> GBps:
        return self.arm_gbps("warm")

    @property
    def warm_cold(self) -> float:
        """Warm over cold bandwidth; ``nan`` when either arm is missing."""
        return float(self.warm_gbps) / float(self.cold_gbps) if self.cold_gbps else math.nan

    @property
    def wrong_words(self) -> int:
        """Wrong 32-bit words over all checks, guard zones included; where a sum was wrong, the least there can be."""
        return sum(check.wrong_words + check.guard_words for check in self.checks)

    @property
    def wrong_bytes(self) -> int:
        """Wrong bytes over all checks, guard zones included."""
        return sum(check.wrong_bytes + check.guard_bytes for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return plain types only: what the journal stores and what crosses pytest-xdist."""
        data = dataclasses.asdict(self)
        data["transfer"] = self.transfer.notation()
        data["ends"] = list(self.transfer.end_names)
        data["protocol"] = self.transfer.protocol.name if isinstance(self.transfer, Message) else None
        data["total_bytes"] = self.transfer.total_bytes
        data["link_class"] = str(self.link_class)  # xdist carries exact types alone, no StrEnum
        data["figures"] = {
            "gbps": float(self.gbps),
            "p10_gbps": float(self.p10_gbps),
            "cold_gbps": float(self.cold_gbps),
            "warm_gbps": float(self.warm_gbps),
            "warm_cold": self.warm_cold,
            "seconds": self.seconds,
            "p99_seconds": self.p99_seconds,
        }
        return data

"""The verdicts: each failing one is an exception, and :func:`judge` finds those that a measurement deserves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_transferbench.judge.ceilings import Ceiling
from pytest_transferbench.measurement import Arm, Check, Finding, Measurement, told_apart


class TransferFailure(AssertionError):  # noqa: N818 - a verdict, read in reports as what it is
    """A failing verdict, raised from the ``transferbench(...)`` call.

    ``finding`` is the verdict, ``measurement`` everything that was measured. The text is one line that says it all,
    then the other verdicts and the figures.
    """

    def __init__(self, finding: Finding, measurement: Measurement) -> None:
        # Both arguments reach the base class, so that copies and pickles are rebuilt from them.
        super().__init__(finding, measurement)
        self.finding = finding
        self.measurement = measurement

    def __str__(self) -> str:
        # The node id says which case it is; its key again would push the figure out of a narrow summary line.
        lines = [f"{self.finding.verdict}: {_one_line(self.finding.detail)}"]
        lines += [
            f"also {other.verdict}: {_one_line(other.detail)}"
            for other in self.measurement.verdicts
            if other != self.finding
        ]
        # Data that did not arrive, or that no clock agrees on, has no bandwidth.
        if isinstance(self, Impossible | Contaminated | Slow):
            lines.append(_figures(self.measurement))
        return "\n".join(lines)


class DeviceError(TransferFailure):
    """A device call failed, or the device is lost."""


class TimedOut(TransferFailure):
    """A kernel or the item ran past its deadline."""


class Corrupt(TransferFailure):
    """The destination does not hold what was sent."""


class Invalid(TransferFailure):
    """The samples do not measure what they claim to: gate, clocks, throttling, NaN, infinity or zero."""


class Impossible(TransferFailure):
    """Faster than the link can carry."""


class Contaminated(TransferFailure):
    """A cache served part of the bytes: a warm copy is too much faster than a cold one."""


class Slow(TransferFailure):
    """Slower than a floor."""


FAILING: dict[str, type[TransferFailure]] = {
    "DEVICE_ERROR": DeviceError,
    "TIMEOUT": TimedOut,
    "CORRUPT": Corrupt,
    "INVALID": Invalid,
    "IMPOSSIBLE": Impossible,
    "CONTAMINATED": Contaminated,
    "SLOW": Slow,
}
"""The failing verdicts, most important first. The first that applies is raised."""

for _failure in (TransferFailure, *FAILING.values()):
    # The name under which users import them is the one that reports print and pickles look up.
    _failure.__module__ = "pytest_transferbench"

NEW = Finding("NEW", "no baseline")
MAX_REJECTED_PERCENT = 10
"""A case that lost more of its samples than this, over all arms, is INVALID."""


@dataclass(frozen=True)
class Limits:
    """When a pull counts as contaminated by a cache.

    ``warm_cold`` is the largest ratio of warm to cold bandwidth with rotation on; with rotation off, or over less than
    caches can hold, a clean machine reaches more, so ``warm_cold_unrotated`` applies where that is larger. Below
    ``contaminated_min_nbytes`` bytes, and where cold and warm copy are no more than ``contaminated_min_seconds``
    apart, the ratio says nothing.
    """

    warm_cold: float = 1.15
    warm_cold_unrotated: float = 1.35
    contaminated_min_nbytes: int = 4 * 2**20
    contaminated_min_seconds: float = 5e-6


DEFAULT_LIMITS = Limits()


def limits_for(measurement: Measurement, limits: Limits = DEFAULT_LIMITS) -> float:
    """Return the largest warm/cold ratio this measurement may have; infinite where the ratio is only shown."""
    cold, warm = measurement.arm("cold"), measurement.arm("warm")
    if measurement.op != "pull" or measurement.nbytes < limits.contaminated_min_nbytes or cold is None or warm is None:
        return math.inf
    if not cold.median_seconds - warm.median_seconds > limits.contaminated_min_seconds:
        return math.inf
    return limits.warm_cold if measurement.method["rotated"] else max(limits.warm_cold, limits.warm_cold_unrotated)


def judge(
    measurement: Measurement,
    *,
    ceiling: Ceiling | None,
    limits: Limits = DEFAULT_LIMITS,
    floor_gbps: float | None = None,
    floor_source: str = "",
) -> tuple[Finding, ...]:
    """Return every verdict that ``measurement`` deserves, the most important first; at least one.

    ``ceiling`` is what the way can carry, ``None`` where nobody knows; ``floor_gbps`` is a user's lower bound of the
    steady median in GB/s, ``floor_source`` says in words where it comes from. Bandwidth is judged only where the data
    arrived and the samples are valid. Raises ``ValueError`` for a floor that is no positive number and for a fault of
    no known verdict.
    """
    if floor_gbps is not None and not 0 < floor_gbps < math.inf:
        raise ValueError(f"bad floor {floor_gbps}: use a positive number of GB/s")
    findings = [*_faults(measurement), *_corruption(measurement), *_invalid_samples(measurement)]
    if not findings:
        findings += _impossible(measurement, ceiling)
        findings += _contaminated(measurement, limits)
        findings += _slow(measurement, floor_gbps, floor_source)
    if not findings:
        return (NEW,)
    order = list(FAILING)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.verdict)))


def exception_for(finding: Finding, measurement: Measurement) -> TransferFailure:
    """Return the exception of a failing ``finding``, to be raised; ``ValueError`` for a verdict that passes."""
    if finding.verdict not in FAILING:
        raise ValueError(f"{finding.verdict} is no failing verdict: only {', '.join(FAILING)} are")
    return FAILING[finding.verdict](finding, measurement)


def _faults(measurement: Measurement) -> Iterator[Finding]:
    for fault in measurement.faults:
        if fault.verdict not in FAILING:
            raise ValueError(f"a fault of unknown verdict {fault.verdict!r}: {fault.detail}")
        yield Finding(fault.verdict, _one_line(fault.detail), fails=True)


def _corruption(measurement: Measurement) -> Iterator[Finding]:
    for check in measurement.checks:
        if not check.passed:
            yield Finding("CORRUPT", _what_is_wrong(check), fails=True)


def _what_is_wrong(check: Check) -> str:
    parts = []
    if check.wrong_words:
        if check.first >= 0:
            parts.append(f"{check.wrong_words} of {check.words} words wrong ({_count(check.wrong_bytes, 'byte')})")
            parts.append(f"first {check.first}, last {check.last}, mask 0x{check.xor_mask:08x}")
        else:  # a sum tells that something is wrong, neither how much nor where
            parts.append(f"at least {check.wrong_words} of {check.words} words wrong")
        if check.found:
            parts.append(f"found: {check.found}")
    if check.guard_words:
        count = f"{_count(check.guard_words, 'word')} of the guard zones overwritten"
        parts.append(f"{count} ({_count(check.guard_bytes, 'byte')})")
        if check.guard_found:
            parts.append(check.guard_found)
    parts.append(f"in {check.what}")
    if check.reread_agrees is not None:
        seen = "agrees" if check.reread_agrees else "disagrees: suspect the way of checking"
        parts.append(f"a DMA read-back {seen}")
    return _one_line(", ".join(parts))


def _invalid_samples(measurement: Measurement) -> Iterator[Finding]:
    # With a fault or wrong data there may be no samples, and none are needed to fail.
    if measurement.faults or any(not check.passed for check in measurement.checks):
        return
    details = list(_rejections(measurement))
    if not details and not measurement.arm("steady"):
        details.append("no steady samples")  # too many rejected ones end a case early, and then say why themselves
    for arm in measurement.arms:
        details += _flaws(arm)
    if measurement.validated and not any(check.words > 0 for check in measurement.checks):
        details.append("validation was asked for and no word was checked")
    for detail in details:
        yield Finding("INVALID", detail, fails=True)


def _rejections(measurement: Measurement) -> Iterator[str]:
    rejected = [f"{arm.name} {reason}" for arm in measurement.arms for reason in arm.rejected]
    taken = len(rejected) + sum(len(arm.seconds) for arm in measurement.arms)
    if 100 * len(rejected) > MAX_REJECTED_PERCENT * taken:
        yield (
            f"{len(rejected)} of {taken} samples rejected, more than {MAX_REJECTED_PERCENT} %, "
            f"the first because {_one_line(rejected[0])}"
        )


def _flaws(arm: Arm) -> Iterator[str]:
    if not arm.seconds:
        yield f"no {arm.name} samples"
    for index, seconds in enumerate(arm.seconds):
        if not 0 < seconds < math.inf:
            yield f"{arm.name} sample {index} took {seconds} s"
            return


def _impossible(measurement: Measurement, ceiling: Ceiling | None) -> Iterator[Finding]:
    if ceiling is None:
        return
    for name in ("steady", "warm", "cold"):
        figure = measurement.arm_gbps(name)
        if figure > ceiling.gbps:
            said, limit = told_apart(figure, ceiling.gbps)
            yield Finding("IMPOSSIBLE", f"{name} {said} is above the ceiling of {limit} ({ceiling.source})", fails=True)


def _contaminated(measurement: Measurement, limits: Limits) -> Iterator[Finding]:
    limit = limits_for(measurement, limits)
    if measurement.warm_cold > limit:
        yield Finding(
            "CONTAMINATED",
            f"warm {measurement.warm_gbps} is {measurement.warm_cold:.3f} x cold {measurement.cold_gbps}, "
            f"above the limit of {limit:g}: a cache serves part of the bytes ({_slices(measurement)})",
            fails=True,
        )


def _slices(measurement: Measurement) -> str:
    method = measurement.method
    slices = f"{method['slices']} source slice{'' if method['slices'] == 1 else 's'}"
    if method["rotated"]:
        return slices
    return f"{slices}, {'too few for rotation' if method['rotate_bytes'] else 'rotation off'}"


def _slow(measurement: Measurement, floor_gbps: float | None, source: str) -> Iterator[Finding]:
    if floor_gbps is not None and measurement.gbps < floor_gbps:
        said, floor = told_apart(measurement.gbps, floor_gbps)
        percent = 100 * (1 - measurement.gbps / floor_gbps)
        why = f" ({source})" if source else ""
        yield Finding("SLOW", f"{said} is {percent:.1f} % under the floor of {floor}{why}", fails=True)


def _figures(measurement: Measurement) -> str:
    arms = [f"{arm.name} {measurement.arm_gbps(arm.name)}" for arm in measurement.arms]
    return f"measured: {', '.join(arms)}; method {measurement.digest}"


def _count(count: int, unit: str) -> str:
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _one_line(text: str) -> str:
    return " ".join(text.split())

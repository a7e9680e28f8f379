"""Is it good: verdicts and ceilings, pure functions of what was measured."""

from pytest_transferbench.judge.ceilings import RUN_CEILING_FACTOR, Ceiling, RunCeilings, ceiling_for
from pytest_transferbench.judge.verdict import (
    DEFAULT_LIMITS,
    FAILING,
    NEW,
    Contaminated,
    Corrupt,
    DeviceError,
    Impossible,
    Invalid,
    Limits,
    Slow,
    TimedOut,
    TransferFailure,
    exception_for,
    judge,
    limits_for,
)

__all__ = [
    "DEFAULT_LIMITS",
    "FAILING",
    "NEW",
    "RUN_CEILING_FACTOR",
    "Ceiling",
    "Contaminated",
    "Corrupt",
    "DeviceError",
    "Impossible",
    "Invalid",
    "Limits",
    "RunCeilings",
    "Slow",
    "TimedOut",
    "TransferFailure",
    "ceiling_for",
    "exception_for",
    "judge",
    "limits_for",
]

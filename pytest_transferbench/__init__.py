"""Data-transfer benchmarks as parametrized pytest tests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_transferbench.judge.verdict import (
        Contaminated,
        Corrupt,
        DeviceError,
        Impossible,
        Invalid,
        Slow,
        TimedOut,
        TransferFailure,
    )
    from pytest_transferbench.measurement import Finding, GBps, Measurement
    from pytest_transferbench.node import Node
    from pytest_transferbench.transfer import (
        Case,
        Executor,
        Memory,
        Message,
        MessageCase,
        MessageMethod,
        Method,
        Protocol,
        RotationPlan,
        Test,
        Transfer,
        parse_transfer,
    )

_HOMES = {
    "transfer": (
        "Case",
        "Executor",
        "Memory",
        "Message",
        "MessageCase",
        "MessageMethod",
        "Method",
        "Protocol",
        "RotationPlan",
        "Test",
        "Transfer",
        "parse_transfer",
    ),
    "measurement": ("Finding", "GBps", "Measurement"),
    "node": ("Node",),
    "judge.verdict": (
        "Contaminated",
        "Corrupt",
        "DeviceError",
        "Impossible",
        "Invalid",
        "Slow",
        "TimedOut",
        "TransferFailure",
    ),
}

__all__ = [
    "Case",
    "Contaminated",
    "Corrupt",
    "DeviceError",
    "Executor",
    "Finding",
    "GBps",
    "Impossible",
    "Invalid",
    "Measurement",
    "Memory",
    "Message",
    "MessageCase",
    "MessageMethod",
    "Method",
    "Node",
    "Protocol",
    "RotationPlan",
    "Slow",
    "Test",
    "TimedOut",
    "Transfer",
    "TransferFailure",
    "parse_transfer",
]


def __getattr__(name: str) -> Any:
    # Looked up when first used: pytest imports this package in every project that has it installed.
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))

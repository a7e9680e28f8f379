"""What JUnit XML carries of a measurement: one property a figure."""

from __future__ import annotations

import math

from pytest_transferbench.report.transport import Record

_FIGURES = ("gbps", "p10_gbps", "cold_gbps", "warm_gbps", "warm_cold")
_OF_MESSAGES = ("seconds", "p99_seconds")
_HALF_ROUND_TRIP = "half_round_trip_"


def properties(record: Record) -> list[tuple[str, object]]:
    """Return names and values for ``user_properties``: figures are plain floats, those not measured are left out."""
    found: list[tuple[str, object]] = [
        ("transfer_key", record["key"]),
        ("transfer_verdict", record.verdict),
        ("transfer_bytes", record["nbytes"]),
        ("transfer_wrong_words", sum(check["wrong_words"] + check["guard_words"] for check in record["checks"])),
        ("transfer_wrong_bytes", sum(check["wrong_bytes"] + check["guard_bytes"] for check in record["checks"])),
    ]
    if record["protocol"]:
        found.append(("transfer_protocol", record["protocol"]))
        found += [(f"transfer_{name}", record["method"][name]) for name in ("lines", "blocks") if record["method"]]
    if record["control"]:
        found.append(("transfer_control", "true"))
    if record["emulated"]:
        found.append(("transfer_emulated", record["emulated"]))
    if record.best_subexecutors:
        found.append(("transfer_best_subexecutors", record.best_subexecutors))
    if record.has_bandwidth and record["op"] == "pingpong":
        found += [(f"transfer_{_HALF_ROUND_TRIP}{name}", record.figure(name)) for name in _OF_MESSAGES]
    elif record.has_bandwidth:
        names = (*_FIGURES, *_OF_MESSAGES) if record["protocol"] else _FIGURES
        figures = {name: record.figure(name) for name in names}
        found += [(f"transfer_{name}", value) for name, value in figures.items() if math.isfinite(value)]
        if record["protocol"]:
            found += [(f"transfer_{name}", record["context"][name]) for name in ("wire_gbps", "wire_efficiency")]
        if record["protocol"] and record["context"].get("ceiling_gbps"):
            found.append(("transfer_ceiling_gbps", record["context"]["ceiling_gbps"]))
    return found

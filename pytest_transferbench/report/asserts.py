"""Comparisons of bandwidths that read like one: ``assert 371.2 GB/s > 500.0 GB/s``."""

from __future__ import annotations

from pytest_transferbench.measurement import GBps, told_apart


def explain(op: str, left: object, right: object) -> list[str] | None:
    """Return pytest's explanation of a failed comparison with a bandwidth in it, or None for any other."""
    if not isinstance(left, GBps) and not isinstance(right, GBps):
        return None
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    # A floor is often missed by hundredths: "371.2 GB/s > 371.2 GB/s" would explain nothing.
    this, that = told_apart(left, right)
    return [f"{this} {op} {that}"]

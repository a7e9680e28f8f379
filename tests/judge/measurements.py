"""Measurements made up for the judge: a healthy one, and what to change about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pytest_transferbench.measurement import Arm, Check, Measurement
from pytest_transferbench.transfer import Method, Transfer, parse_transfer

MIB = 2**20
METHOD = Method(
    samples=25,
    copies=6,
    sub_iterations=1,
    warmups=3,
    rotate_bytes=256 * MIB,
    slices=4,
    pitch=64 * MIB,
    rotated=True,
    byte_offset=0,
    subexecutors=64,
    block_threads=512,
    unroll=8,
    source_kind="G",
    destination_kind="G",
    gate="kernel",
    link_class="NVLink",
)
GOOD_CHECK = Check("destination G0", words=16 * MIB)


def at_gbps(name: str, gbps: float, nbytes: int = 64 * MIB, samples: int = 25, **more: Any) -> Arm:
    """Return an arm of equal samples at ``gbps``."""
    return Arm(name, copies=6, seconds=(nbytes / gbps / 1e9,) * samples, **more)


def measured(
    text: str = "(G1->G0->G0 0 64M)",
    *,
    gbps: Mapping[str, float] | None = None,
    method: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Measurement:
    """Return a measurement of the Transfer ``text``: steady 371.2, warm 357, cold 354 GB/s, data right."""
    transfer: Transfer = parse_transfer(text)
    full_method = dataclasses.replace(METHOD, **(method or {}))
    figures = {"steady": 371.2, "warm": 357.0, "cold": 354.0} if gbps is None else gbps
    defaults: dict[str, Any] = {
        "key": f"test_p2p/{transfer.case_name()}",
        "transfer": transfer,
        "op": transfer.op,
        "link_class": full_method.link_class,
        "nbytes": transfer.nbytes,
        "method": full_method.to_json(),
        "digest": full_method.digest(),
        "arms": tuple(at_gbps(name, figure, transfer.nbytes) for name, figure in figures.items()),
        "checks": (GOOD_CHECK,),
    }
    return Measurement(**{**defaults, **fields})

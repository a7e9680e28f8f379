"""A case: one Transfer or Test and how it is to be measured; and the Method, which says how it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_transferbench.transfer.test import TransferOrTest

METHOD_VERSION = 1
"""Raised whenever the same settings would give another figure than before: older baselines then no longer match."""

NOMINAL_GBPS: Mapping[str, int] = {
    "local": 1500,
    "on-die": 1000,
    "xGMI": 50,
    "NVLink": 400,
    "PCIe": 50,
    "UALoE": 800,
    "host": 50,
}
"""About what a link class carries one way, in GB/s. It only sizes samples: it is never a ceiling or a floor."""

MIN_COPIES = 4
MAX_COPIES = 250
"""With the gate, stamps and events a stream then holds at most 256 operations."""
VIRTUAL_MIN_COPIES, VIRTUAL_MAX_COPIES = 2, 16
VIRTUAL_SAMPLE_BYTES = 2 << 30


def copies_per_sample(nbytes: int, link_class: str, *, virtual_clock: bool = False) -> int:
    """Return how many copies of ``nbytes`` bytes one sample holds: about 1 ms of them, 4 to 250.

    A pure function, so that every process measures alike and the count can be part of the digest. A virtual clock
    has no noise to average, while its copies are really made, by a CPU: there a sample holds about 2 GiB, 2 to 16
    copies, enough for its first copy, which hides nothing behind another, not to weigh much. Raises ``ValueError``
    for a size below 1 and for a link class that :data:`NOMINAL_GBPS` does not know.
    """
    if nbytes < 1:
        raise ValueError(f"bad size {nbytes}: a copy has at least 1 byte")
    if link_class not in NOMINAL_GBPS:
        raise ValueError(f"unknown link class {link_class!r}: use {', '.join(NOMINAL_GBPS)}")
    if virtual_clock:
        return min(VIRTUAL_MAX_COPIES, max(VIRTUAL_MIN_COPIES, -(-VIRTUAL_SAMPLE_BYTES // nbytes)))
    bytes_per_millisecond = NOMINAL_GBPS[link_class] * 10**6
    return min(MAX_COPIES, max(MIN_COPIES, -(-bytes_per_millisecond // nbytes)))


@dataclass(frozen=True, slots=True)
class Case:
    """One Transfer or Test and how to measure it: what one test item runs.

    ``samples`` are timed; a copy passes ``sub_iterations`` times over the bytes inside one launch or call;
    ``warmups`` is the least number of untimed copies. ``rotate_bytes`` is the rotation budget in bytes, ``None``
    chosen by the caches, 0 off; ``byte_offset`` moves every buffer's start. ``validate`` looks at the data at the
    ``end``, after ``each`` sample, or not at all (``off``). ``floor_gbps`` and ``warm_cold_limit`` replace the limits
    of the judge. A ``control`` shows an artefact on purpose and never becomes a baseline. Raises ``ValueError`` in
    one line.
    """

    transfer: TransferOrTest
    samples: int = 25
    sub_iterations: int = 1
    warmups: int = 3
    rotate_bytes: int | None = None
    byte_offset: int = 0
    validate: str = "end"
    variant: str = ""
    floor_gbps: float | None = None
    warm_cold_limit: float | None = None
    control: bool = False

    def __post_init__(self) -> None:
        for name, least in (("samples", 1), ("sub_iterations", 1), ("warmups", 0), ("byte_offset", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"bad {name} {getattr(self, name)}: use {least} or more")
        if self.byte_offset % 4:
            raise ValueError(f"bad byte_offset {self.byte_offset}: use a multiple of 4")
        if self.rotate_bytes is not None and self.rotate_bytes < 0:
            raise ValueError(
                f"bad rotate_bytes {self.rotate_bytes}: use 0 (off) or more, or None to let the caches decide"
            )
        if self.validate not in ("end", "each", "off"):
            raise ValueError(f"bad validate {self.validate!r}: use end, each or off")
        for name in ("floor_gbps", "warm_cold_limit"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
                raise ValueError(f"bad {name} {limit!r}: use a positive number")
        if self.variant:
            self.transfer.case_name(self.variant)  # refuses one that makes no name

    @property
    def name(self) -> str:
        """The case's id: :meth:`Transfer.case_name` with this variant."""
        return self.transfer.case_name(self.variant)


@dataclass(frozen=True, kw_only=True)
class Method:
    """Everything about the way of measuring that two figures must share to be compared.

    ``transfers`` run at the same time, each by ``subexecutors``. ``copies`` are the copies in a sample;
    ``rotate_bytes`` is the resolved budget, ``slices`` and ``pitch`` the plan that came of it, ``rotated`` whether
    that is more than caches can hold. ``block_threads`` and ``unroll`` are 0 where no kernel runs. ``source_kind`` and
    ``destination_kind`` are memory letters; where the Transfers of a Test differ, letters and link classes are joined
    by ``+``. ``gate`` is what held the copies back until all were queued: ``kernel``, ``host`` or ``none``.
    """

    version: int = METHOD_VERSION
    transfers: int = 1
    samples: int
    copies: int
    sub_iterations: int
    warmups: int
    rotate_bytes: int
    slices: int
    pitch: int
    rotated: bool
    byte_offset: int
    subexecutors: int
    block_threads: int
    unroll: int
    source_kind: str
    destination_kind: str
    gate: str
    link_class: str

    def to_json(self) -> dict[str, Any]:
        """Return plain types only, one entry a field."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Method:
        """Rebuild a method from :meth:`to_json`."""
        return cls(**data)

    def digest(self) -> str:
        """Return 12 hexadecimal digits that change whenever any field does, and are the same in every process."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def differences(self, other: Method) -> tuple[str, ...]:
        """Return one line, ``field mine -> theirs``, for every field that ``other`` has differently."""
        mine, theirs = self.to_json(), other.to_json()
        return tuple(f"{name} {mine[name]} -> {theirs[name]}" for name in mine if mine[name] != theirs[name])


def _plain(value: int | str) -> int | str:
    """Strip what only looks like a plain type (a StrEnum link class): xdist carries exact types alone."""
    if isinstance(value, bool):
        return value
    return str(value) if isinstance(value, str) else int(value)

"""How a case was measured: all that two figures must share to be compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

METHOD_VERSION = 1
"""Raised whenever the same settings would give another figure than before: older baselines then no longer match."""


class _Digested:
    """What methods of every kind can do: they are frozen dataclasses of numbers and words."""

    def to_json(self) -> dict[str, Any]:
        """Return plain types only, one entry a field."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a method from :meth:`to_json`."""
        return cls(**data)

    def digest(self) -> str:
        """Return 12 hexadecimal digits that change whenever any field does, and are the same in every process."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def differences(self, other: Self) -> tuple[str, ...]:
        """Return one line, ``field mine -> theirs``, for every field that ``other`` has differently."""
        mine, theirs = self.to_json(), other.to_json()
        return tuple(f"{name} {mine[name]} -> {theirs[name]}" for name in mine if mine[name] != theirs[name])


@dataclass(frozen=True, kw_only=True)
class Method(_Digested):
    """Everything about the way of measuring that two figures must share to be compared.

    ``transfers`` run at the same time, each by ``subexecutors``. ``copies`` are the copies in a sample;
    ``rotate_bytes`` is the resolved budget, ``slices`` and ``pitch`` the plan that came of it, ``rotated`` whether
    that is more than caches can hold. ``block_threads`` and ``unroll`` are 0 where no kernel runs. ``part`` is the
    XCC or the DMA engine that alone does the work, -1 where the runtime chooses. ``source_kind`` and
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
    part: int = -1
    source_kind: str
    destination_kind: str
    gate: str
    link_class: str


@dataclass(frozen=True, kw_only=True)
class MessageMethod(_Digested):
    """Everything about the way of measuring that two figures of a :class:`Message` must share to be compared.

    ``samples`` are the timed iterations, ``lines`` and ``blocks`` what a message is made of and sent by.
    ``ring_kind`` is the letter of the memory that ring and ACK lie in. ``hashed`` tells that the payload of the timed
    iterations too was hashed.
    """

    version: int = METHOD_VERSION
    protocol: str
    samples: int
    warmups: int
    lines: int
    blocks: int
    block_threads: int
    ring_kind: str
    hashed: bool
    link_class: str


def _plain(value: int | str) -> int | str:
    """Strip what only looks like a plain type (a StrEnum link class): xdist carries exact types alone."""
    if isinstance(value, bool):
        return value
    return str(value) if isinstance(value, str) else int(value)

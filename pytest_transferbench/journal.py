"""Results on disk, one line an item, each safe before the next item starts.

A journal is JSON Lines. A line of type ``header`` opens every session and holds the versions and the node; a line of
type ``item`` follows for every test item. JSON has no NaN and no infinity: both are written as ``null``.
"""

from __future__ import annotations

import enum
import json
import math
import numbers
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pytest_transferbench.node import Node

SCHEMA_VERSION = 1
"""Raised when a line's shape changes so that an older reader would misread it."""


class Journal:
    """An open journal file.

    A file that already exists is continued, never overwritten: the new session starts with a header of its own.
    Missing folders are made. Raises ``OSError`` where the file cannot be opened or written.
    """

    def __init__(self, path: Path, *, versions: Mapping[str, str], node: Node | None) -> None:
        """Open ``path`` and write this session's header; ``node`` is ``None`` where none was probed."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # A session that was killed may have left half a line, which must not swallow the next one.
        unfinished = _ends_within_a_line(path)
        self._file = path.open("a", encoding="utf-8")
        if unfinished:
            self._file.write("\n")
        self._append("header", {"versions": versions, "node": None if node is None else node.to_json()})

    def record(
        self,
        *,
        nodeid: str,
        outcome: str,
        key: str | None = None,
        verdict: str | None = None,
        detail: str | None = None,
        measurement: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one item and return when it is on disk.

        ``outcome`` is pytest's word for the item; ``key`` and ``measurement``
        (:meth:`Measurement.to_json <pytest_transferbench.measurement.Measurement.to_json>`) are ``None`` for an item
        that measured nothing. ``verdict`` is the most important one, ``None`` where there is none; ``detail`` says
        how an item ended whose process died.
        """
        line = {"nodeid": nodeid, "key": key, "outcome": outcome, "verdict": verdict, "detail": detail}
        self._append("item", {**line, "measurement": measurement})

    def close(self) -> None:
        """Close the file; a second call is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line_type: str, fields: Mapping[str, Any]) -> None:
        line = {"type": line_type, "schema": SCHEMA_VERSION, "time": time.time(), **fields}
        self._file.write(json.dumps(to_plain(line), allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@dataclass(frozen=True)
class JournalSession:
    """One session of a journal: its header line and its item lines, as written."""

    header: Mapping[str, Any]
    items: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class JournalContents:
    """What :func:`read_journal` found. ``problems`` has one line for every line of the file that was left out."""

    sessions: tuple[JournalSession, ...]
    problems: tuple[str, ...]

    @property
    def items(self) -> tuple[Mapping[str, Any], ...]:
        """The items of all sessions, in the order written."""
        return tuple(item for session in self.sessions for item in session.items)


def read_journal(path: Path) -> JournalContents:
    """Return the sessions in the journal at ``path``.

    A line that was cut off, as a killed session leaves one at its end, and any other line that is no journal line of
    this version is left out and named in ``problems``. Raises ``OSError`` where the file cannot be read.
    """
    sessions: list[tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = []
    problems: list[str] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        entry = _read_line(line)
        if isinstance(entry, str):
            cut_off = " (the last line, cut off)" if number == len(lines) else ""
            problems.append(f"{path.name} line {number}{cut_off}: {entry}; left out")
        elif entry["type"] == "header":
            sessions.append((entry, []))
        elif not sessions:
            problems.append(f"{path.name} line {number}: an item before any header; left out")
        else:
            sessions[-1][1].append(entry)
    return JournalContents(
        tuple(JournalSession(header, tuple(items)) for header, items in sessions),
        tuple(problems),
    )


def to_plain(value: Any) -> Any:
    """Return ``value`` in the types JSON has.

    NaN and infinity become ``None``; numbers of any library and enumerations become their plain value; tuples and
    sets become lists and keys texts. What has no JSON type is kept as its ``repr``: a result is worth more than the
    exactness of a remark beside it.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return to_plain(value.value)
    if isinstance(value, str | os.PathLike):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays, and its booleans, which are no numbers
        return to_plain(value.tolist())
    return repr(value)


def _read_line(line: bytes) -> Mapping[str, Any] | str:
    """Return the entry in ``line``, or in a few words why there is none."""
    try:
        entry = json.loads(line)
    except ValueError:  # undecodable bytes included
        return "not JSON"
    if not isinstance(entry, dict) or entry.get("type") not in ("header", "item"):
        return "no journal line"
    if entry.get("schema") != SCHEMA_VERSION:
        return f"schema {entry.get('schema')}, this version reads {SCHEMA_VERSION}"
    return entry


def _ends_within_a_line(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"

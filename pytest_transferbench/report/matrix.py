"""The source x destination matrix, as text."""

from __future__ import annotations

from collections.abc import Mapping

_CORNER = "SRC\\DST"


def matrix_lines(cells: Mapping[tuple[str, str], str]) -> list[str]:
    """Return the matrix of ``cells``, keyed by (source, destination): rows are sources, columns destinations.

    Only ends that occur have a row or a column; a pair that was not measured shows a dash.
    """
    rows = sorted({source for source, _ in cells}, key=place)
    columns = sorted({destination for _, destination in cells}, key=place)
    first = max(len(_CORNER), *(len(row) for row in rows))
    width = max(6, *(len(cell) for cell in cells.values()), *(len(column) for column in columns))
    lines = [f"{_CORNER:>{first}} " + " ".join(f"{column:>{width}}" for column in columns)]
    lines += [
        f"{row:>{first}} " + " ".join(f"{cells.get((row, column), '-'):>{width}}" for column in columns) for row in rows
    ]
    return lines


def place(name: str) -> tuple[bool, str, int]:
    """Return what memories are sorted by: the host first, then GPUs by index, G2 before G10."""
    letter, digits = name[:1], name[1:]
    return letter != "C", letter, int(digits) if digits.isdigit() else -1

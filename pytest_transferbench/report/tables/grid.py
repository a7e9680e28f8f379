"""Cells in columns, and what a cell shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import Transfer, TransferOrTest, parse_transfers, together

ABSENT = "-"


def grid(rows: Sequence[Sequence[str]], least: int = 8, rules: Sequence[int] = (1,)) -> Iterator[str]:
    """Yield ``rows`` in columns that their longest cell, or ``least`` characters, make, with a bar before ``rules``."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    widths = [width if place == 0 else max(least, width) for place, width in enumerate(widths)]
    for row in rows:
        cells = (
            f"{'| ' if place in rules else ''}{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield " ".join(cells).rstrip()


def cell(record: Record | None, decimals: int = 2) -> str:
    """Return the steady median of a record, its verdict where it has none or fails, or a dash where there is none."""
    if record is None:
        return ABSENT
    if not record.has_bandwidth:
        return record.verdict
    figure = f"{float(record.gbps):.{decimals}f}"
    return f"{figure} {record.verdict}" if record.fails else figure


def transfer_of(record: Record) -> TransferOrTest:
    """Return what a record is about."""
    return together(parse_transfers(record["transfer"]))


def first_of(record: Record) -> Transfer:
    """Return the Transfer that a record is about, of a Test the first."""
    return transfer_of(record).transfers[0]


def tail_text(record: Record, *shapes: str) -> str:
    """Return the variant that tells two functions' cases apart, after a blank; without words of the kernel's shape."""
    words = [word for word in record.tail.split("-") if word and word not in shapes]
    return f" {'-'.join(words)}" if words else ""

"""Batched copies beside plain ones, as TransferBench's bmasweep prints them: a row a size, a column an executor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytest_transferbench.report.tables.grid import ABSENT, cell, first_of, grid, tail_text
from pytest_transferbench.report.transport import Record

_TITLES = {"dma": "DMA", "batch": "BMA", "gfx": "GFX", "cpu": "CPU"}
_ORDER = list(_TITLES.values())

Column = tuple[str, int]


def lines(records: list[Record]) -> Iterator[str]:
    """Yield a table for each pair, with the batch efficiency T(k)/T(1) behind the figures."""
    pairs: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        pairs[record["op"], *record["ends"], record["link_class"], tail_text(record)].append(record)
    for (op, source, destination, link_class, tail), found in pairs.items():
        cells = {(record["nbytes"], _column(record)): record for record in found}
        columns = sorted({column for _, column in cells}, key=lambda column: (_ORDER.index(column[0]), column[1]))
        batches = [column for column in columns if column[0] == "BMA" and column[1] > 1]
        batches = batches if ("BMA", 1) in columns else []
        yield f"{op} {source} -> {destination} ({link_class}){tail}, GB/s (steady median); T(k)/T(1): batch efficiency"
        rows = [["Bytes", *map(_title, columns), *(f"T({count})/T(1)" for _, count in batches)]]
        for nbytes in sorted({nbytes for nbytes, _ in cells}):
            row = {column: cells.get((nbytes, column)) for column in columns}
            figures = [cell(row[column]) for column in columns]
            ratios = [_ratio(row[column], row["BMA", 1]) for column in batches]
            rows.append([str(nbytes), *figures, *ratios])
        plain = sum(column[0] == "DMA" for column in columns)
        yield from grid(rows, rules=sorted({1, 1 + plain, 1 + len(columns)} & {*range(1, len(rows[0]))}))
        yield ""


def _column(record: Record) -> Column:
    executor, count = first_of(record).executor.word, first_of(record).subexecutors
    return _TITLES[executor], max(1, count) if executor == "batch" else count


def _title(column: Column) -> str:
    executor, count = column
    return f"{executor} ({count})" if count else executor


def _ratio(several: Record | None, one: Record | None) -> str:
    if several is None or one is None or not several.has_bandwidth or not one.has_bandwidth:
        return ABSENT
    return f"{several.gbps / one.gbps:.3f}"

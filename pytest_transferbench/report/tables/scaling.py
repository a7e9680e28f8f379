"""Bandwidth against the number of SubExecutors, as TransferBench's scaling prints it, with the best below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytest_transferbench.report.matrix import place
from pytest_transferbench.report.tables.grid import cell, first_of, grid, tail_text
from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import format_size


def lines(records: list[Record]) -> Iterator[str]:
    """Yield a table for each executor and size: rows are SubExecutors, columns the far ends."""
    homes: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        executor = first_of(record).executor
        homes[str(executor), executor.word, format_size(record["nbytes"]), tail_text(record)].append(record)
    for (home, word, size, tail), found in homes.items():
        cells = {(first_of(record).subexecutors, _column(record)): record for record in found}
        columns = sorted({column for _, column in cells}, key=lambda column: (place(column[1]), column))
        yield f"{word} of {home} {size}{tail}, GB/s (steady median); rows SubExecutors, columns the far ends"
        rows = [["SubExecutors", *(f"{'to' if op != 'pull' else 'from'} {end}" for op, end in columns)]]
        for count in sorted({count for count, _ in cells}):
            name = str(count) if count else "chosen"
            rows.append([name, *(cell(cells.get((count, column))) for column in columns)])
        rows.append(["best", *(_best([r for (_, c), r in cells.items() if c == column]) for column in columns)])
        yield from grid(rows)
        yield ""


def _column(record: Record) -> tuple[str, str]:
    """What it is, and its far end: whence it is pulled, else where it goes."""
    source, destination = record["ends"]
    return ("pull", source) if record["op"] == "pull" else ("push", destination)


def _best(found: list[Record]) -> str:
    """The highest figure and the number of SubExecutors it takes, as TransferBench writes it: ``48.62( 16)``."""
    measured = [record for record in found if record.has_bandwidth and not record.fails]
    if not measured:
        return "-"
    best = max(measured, key=lambda record: record.gbps)
    return f"{float(best.gbps):.2f}({best['method']['subexecutors']:>3})"

"""What a kernel's shape is worth, as TransferBench's gfxsweep prints it: SubExecutors x unroll, for each block size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytest_transferbench.report.tables.grid import cell, first_of, grid, tail_text
from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import format_size


def lines(records: list[Record]) -> Iterator[str]:
    """Yield a table for each pair, size and number of threads a block, and below each pair's the best shape."""
    pairs: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        about = record["op"], *record["ends"], record["link_class"], format_size(record["nbytes"])
        pairs[(*about, tail_text(record, *_shape_words(record)))].append(record)
    for (op, source, destination, link_class, size, tail), found in pairs.items():
        by_threads: dict[int, list[Record]] = defaultdict(list)
        for record in found:
            by_threads[_shape(record, "block_threads")].append(record)
        for threads, same in by_threads.items():
            block = f"{threads} threads a block" if threads else "not measured"
            yield f"{op} gfx {source} -> {destination} ({link_class}) {size}{tail}, {block}, GB/s (steady median)"
            yield from grid(_rows(same))
        yield from _best(found)
        yield ""


def _rows(same: list[Record]) -> list[list[str]]:
    cells = {(first_of(record).subexecutors, _shape(record, "unroll")): record for record in same}
    unrolls = sorted({unroll for _, unroll in cells})
    rows = [["SubExecutors\\unroll", *map(str, unrolls)]]
    for count in sorted({count for count, _ in cells}):
        rows.append([str(count) if count else "chosen", *(cell(cells.get((count, unroll))) for unroll in unrolls)])
    return rows


def _best(found: list[Record]) -> Iterator[str]:
    measured = [record for record in found if record.has_bandwidth and not record.fails]
    if measured:
        best = max(measured, key=lambda record: record.gbps)
        method = best["method"]
        yield (
            f"best: {float(best.gbps):.2f} GB/s, {method['subexecutors']} SubExecutors x {method['block_threads']} "
            f"threads, unroll {method['unroll']}"
        )


def _shape(record: Record, name: str) -> int:
    """A kernel's threads a block or its unroll; 0 where nothing ran."""
    return int(record["method"].get(name, 0))


def _shape_words(record: Record) -> list[str]:
    """How a case's name tells the shape that was asked for."""
    return [f"b{_shape(record, 'block_threads')}", f"u{_shape(record, 'unroll')}"]

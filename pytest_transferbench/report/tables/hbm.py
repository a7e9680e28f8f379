"""What a GPU's own memory gives a kernel that only reads, only writes, or copies: a row a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytest_transferbench.report.matrix import place
from pytest_transferbench.report.tables.grid import ABSENT, cell, first_of, grid, tail_text
from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import format_size

_KINDS = ("read", "write", "copy")


def lines(records: list[Record]) -> Iterator[str]:
    """Yield a table for each size; of a copy also what it reads and writes together, and its share of the memory's."""
    sizes: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        shape = first_of(record).subexecutors
        blocks = f", {shape} SubExecutors" if shape else ""
        sizes[format_size(record["nbytes"]), f"{tail_text(record)}{blocks}"].append(record)
    for (size, tail), found in sizes.items():
        cells = {(str(first_of(record).executor), _kind(record)): record for record in found}
        yield f"local memory by gfx {size}{tail}, GB/s (steady median); r+w: what a copy reads and writes together"
        rows = [["GPU", *_KINDS, "r+w", "of the memory's rate"]]
        for gpu in sorted({gpu for gpu, _ in cells}, key=place):
            both = _read_and_written(cells.get((gpu, "copy")))
            rows.append([gpu, *(cell(cells.get((gpu, kind)), 1) for kind in _KINDS), *both])
        yield from grid(rows, rules=(1, 4))
        yield ""


def _kind(record: Record) -> str:
    source, destination = record["ends"]
    return "write" if source == "N" else "read" if destination == "N" else "copy"


def _read_and_written(copy: Record | None) -> tuple[str, str]:
    if copy is None or not copy.has_bandwidth:
        return ABSENT, ABSENT
    ceiling = copy["context"].get("ceiling_gbps")
    share = f"{100 * copy.gbps / ceiling:.1f} %" if ceiling else ABSENT
    return f"{2 * copy.gbps:.1f}", share

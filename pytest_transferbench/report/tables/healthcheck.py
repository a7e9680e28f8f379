"""Each figure beside the floor it was held against, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_transferbench.report.tables.grid import cell, grid
from pytest_transferbench.report.transport import Record


def lines(records: list[Record]) -> Iterator[str]:
    """Yield one table, a row a case; below it where the floors come from, each once."""
    sources: dict[str, str] = {}
    rows = [["healthcheck", "GB/s", "floor", "of the floor", "", "by"]]
    for record in records:
        floor = record["context"].get("floor_gbps")
        figures = ["-", "-"]
        note = ""
        if floor is not None:
            share = f"{100 * record.gbps / floor:.0f} %" if record.has_bandwidth else "-"
            figures = [f"{floor:.1f}", share]
            source = str(record["context"].get("floor", ""))
            note = sources.setdefault(source, f"[{len(sources) + 1}]")
        verdict = "FAIL" if record.fails else "PASS" if floor is not None else "shown"
        figure = "-" if not record.has_bandwidth else f"{float(record.gbps):.1f}"
        rows.append([record.name, figure, *figures, verdict if record.has_bandwidth else cell(record), note])
    longest = max(len(row[0]) for row in rows)
    yield from grid([[f"{row[0]:<{longest}}", *row[1:]] for row in rows], least=4)
    yield from (f"{note} {source}" for source, note in sources.items())
    yield ""

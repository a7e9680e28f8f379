"""Shapes of the summary beside the source x destination matrix, a file each: what TransferBench prints of a preset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from pytest_transferbench.report.tables import bmasweep, gfxsweep, hbm, healthcheck, scaling, smoketest
from pytest_transferbench.report.transport import Record

TABLES: Mapping[str, Callable[[list[Record]], Iterator[str]]] = {
    "bmasweep": bmasweep.lines,
    "gfxsweep": gfxsweep.lines,
    "hbm": hbm.lines,
    "healthcheck": healthcheck.lines,
    "scaling": scaling.lines,
    "smoketest": smoketest.lines,
}
"""Each yields its lines, with an empty one behind every table, of the records that ask for it."""


def table_of(record: Record) -> str:
    """Return the table that a record asks for, empty for a matrix."""
    return str(record["context"].get("table", ""))


def table_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yield every table that ``records`` ask for; those of two suites are never in one."""
    of_each: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if table_of(record):
            of_each[record.suite, table_of(record)].append(record)
    for (_, name), found in of_each.items():
        yield from TABLES[name](found)

"""Whether the bytes arrive, as TransferBench's smoketest prints it: a row a kind of copy, a mark a size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytest_transferbench.report.tables.grid import first_of, grid, transfer_of
from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import Transfer, format_size

_ROWS = (
    "Copy (H2D)",
    "Copy (D2H)",
    "Copy (D2D) (Remote Write)",
    "Copy (D2D) (Remote Read)",
    "Copy (Local)",
    "Broadcast (One to All)",
    "Gather (All to One)",
    "Reduce (Sum)",
)
_EXECUTORS = ("dma", "batch", "gfx", "cpu")
_PASS, _FAIL, _SKIP = "*", "F", "."


def lines(records: list[Record]) -> Iterator[str]:
    """Yield one table; a mark is F where any of its cases failed, a dot where none was measured."""
    cases: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        cases[_row(record), _column(record), record["nbytes"]].append(record)
    sizes = sorted({nbytes for _, _, nbytes in cases})
    columns = sorted({column for _, column, _ in cases}, key=lambda c: (_EXECUTORS.index(c.split()[0].lower()), c))
    meaning = f"{_PASS} right, {_FAIL} failed, {_SKIP} not run"
    yield f"smoketest, a mark for each of {' '.join(map(format_size, sizes))}: {meaning}"
    rows = [["Name", *columns]]
    longest = max(len(row) for row, _, _ in cases)
    for row in (row for row in _ROWS if any(row == name for name, _, _ in cases)):
        marks = ["".join(_mark(cases.get((row, column, size), [])) for size in sizes) for column in columns]
        rows.append([f"{row:<{longest}}", *marks])
    rows[0][0] = f"{'Name':<{longest}}"
    yield from grid(rows, least=5, rules=range(1, len(columns) + 1))
    failed = sum(record.fails for record in records)
    yield f"{failed} of {len(records)} failed" if failed else f"all {len(records)} passed"
    yield ""


def _mark(found: list[Record]) -> str:
    if not found:
        return _SKIP
    return _FAIL if any(record.fails for record in found) else _PASS


def _row(record: Record) -> str:
    """What kind of copy a record is, by TransferBench's names; a sum of several sources has one of ours."""
    test, op = transfer_of(record), record["op"]
    if not isinstance(test, Transfer):
        return "Gather (All to One)" if op == "pull" else "Broadcast (One to All)"
    sources, destinations = {end.on for end in test.sources}, {end.on for end in test.destinations}
    if len(test.sources) > 1:
        return "Reduce (Sum)"
    if len(test.destinations) > 1:
        return "Broadcast (One to All)"
    if sources != destinations:
        return "Copy (H2D)" if "host" in sources else "Copy (D2H)"
    remote = {"push": "Copy (D2D) (Remote Write)", "pull": "Copy (D2D) (Remote Read)"}
    return remote.get(op, "Copy (Local)")


def _column(record: Record) -> str:
    """``GFX``, or ``GFX 1`` where SubExecutors were asked for."""
    transfer = first_of(record)
    return f"{transfer.executor.word.upper()} {transfer.subexecutors or ''}".strip()

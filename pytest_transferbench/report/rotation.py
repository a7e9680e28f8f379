"""The two columns of a rotation study side by side: the same transfers without rotation and with it, by size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import format_size

_FIGURES = ("cold", "warm", "w/c", "steady")


class Study:
    """Transfers measured both ways, and which records their table shows."""

    def __init__(self, records: Iterable[Record]) -> None:
        ways: dict[tuple[object, ...], dict[bool, Record]] = defaultdict(dict)
        for record in records:
            if record["method"] and not record["protocol"]:
                ways[_transfer(record)][bool(record["method"]["rotate_bytes"])] = record
        self._pairs = [(both[False], both[True]) for both in ways.values() if len(both) == 2]
        self._shown = {id(record) for both in self._pairs for record in both}

    def shows(self, record: Record) -> bool:
        """Tell whether the tables have a row with ``record``."""
        return id(record) in self._shown

    def lines(self) -> Iterator[str]:
        """Yield one table for each way of moving bytes, a row a size, smallest first."""
        tables: dict[str, list[tuple[Record, Record]]] = defaultdict(list)
        for off, on in self._pairs:
            tables[_caption(on)].append((off, on))
        for caption, pairs in tables.items():
            yield f"{caption}, GB/s without and with source rotation (w/c is warm over cold)"
            yield f"{'':>6}  {_row('off', *[''] * 3)}  {_row('on', *[''] * 3)}".rstrip()
            yield f"{'size':>6}  {_row(*_FIGURES)}  {_row(*_FIGURES)}"
            for off, on in sorted(pairs, key=lambda pair: int(pair[1]["nbytes"])):
                verdicts = [f"{name} {record.verdict}" for name, record in (("off", off), ("on", on)) if _fails(record)]
                cells = f"{format_size(on['nbytes']):>6}  {_row(*_cells(off))}  {_row(*_cells(on))}"
                yield f"{cells}  {', '.join(verdicts)}".rstrip()
            yield ""


def _transfer(record: Record) -> tuple[object, ...]:
    method = record["method"]
    return record["key"].partition("/")[0], record["transfer"], method["sub_iterations"], method["byte_offset"]


def _caption(record: Record) -> str:
    """The case's name without its size and variant, and its passes where a launch makes more than one."""
    passes = record["method"]["sub_iterations"]
    name = record.name.partition(f"-{format_size(record['nbytes'])}")[0]
    return f"{name} ({record['link_class']})" + (f", {passes} passes in one launch" if passes > 1 else "")


def _cells(record: Record) -> Iterator[str]:
    if not record.has_bandwidth:
        yield from ("-",) * len(_FIGURES)
        return
    for name, decimals in (("cold_gbps", 1), ("warm_gbps", 1), ("warm_cold", 2), ("gbps", 1)):
        figure = record.figure(name)
        yield f"{figure:.{decimals}f}" if math.isfinite(figure) else "-"


def _row(*cells: str) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, (8, 8, 6, 8), strict=True))


def _fails(record: Record) -> bool:
    return any(finding["fails"] for finding in record["verdicts"])

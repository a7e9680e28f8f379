"""The two columns of a rotation study side by side: the same transfers without rotation and with it, by size."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import format_size

_FIGURES = ("cold", "warm", "w/c", "steady")
_WIDTHS = (8, 8, 6, 8)
_WIDTH = sum(_WIDTHS)


class Study:
    """Transfers measured both ways, and which records their table shows."""

    def __init__(self, records: Iterable[Record]) -> None:
        ways: dict[tuple[object, ...], tuple[list[Record], list[Record]]] = defaultdict(lambda: ([], []))
        for record in records:
            method = record["method"] if not record["protocol"] else None
            # A budget that caches can hold is neither: it shows what they answer, and is not off.
            if method and (method["rotated"] or not method["rotate_bytes"]):
                ways[_transfer(record)][method["rotated"]].append(record)
        # One that was measured more often than the other way has no row: it stands where it stood without the study.
        self._pairs = [pair for off, on in ways.values() for pair in zip(off, on, strict=False)]
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
            yield f"{caption}, GB/s (w/c: warm over cold)"
            yield f"{'':>6}  {'rotation off':^{_WIDTH}}  {'rotation on':^{_WIDTH}}".rstrip()
            yield f"{'size':>6}  {_row(*_FIGURES)}  {_row(*_FIGURES)}"
            rows = Counter(on["nbytes"] for _, on in pairs)
            for off, on in sorted(pairs, key=lambda pair: int(pair[1]["nbytes"])):
                cells = f"{format_size(on['nbytes']):>6}  {_row(*_cells(off))}  {_row(*_cells(on))}"
                names = f"{off.name} and {on.name}" if rows[on["nbytes"]] > 1 else ""
                yield f"{cells}  {'; '.join(filter(None, (names, *_notes(off, on))))}".rstrip()
            yield ""
        controls = [off for off, _ in self._pairs if off["control"]]
        if controls:
            yield f"off: {not_judged(len(controls))}; {_why_inflated(controls)}"
            yield ""


def not_judged(controls: int) -> str:
    """Return ``21 controls, not judged``."""
    return f"{controls} control{'' if controls == 1 else 's'}, not judged"


def _why_inflated(controls: Iterable[Record]) -> str:
    caches = {record["context"].get("last_level_cache_bytes") for record in controls} - {None}
    size = " and ".join(map(format_size, sorted(caches))) or "of unknown size"
    return f"they are to be inflated where a cache ({size} here) answers what is read again"


def _transfer(record: Record) -> tuple[object, ...]:
    method = record["method"]
    return record.suite, record["transfer"], method["sub_iterations"], method["byte_offset"]


def _caption(record: Record) -> str:
    """The case's name without its size and what is behind it, and its passes where a launch makes more than one."""
    passes = record["method"]["sub_iterations"]
    name = record.name.removesuffix(record.tail).removesuffix(f"-{format_size(record['nbytes'])}")
    return f"{name} ({record['link_class']})" + (f", {passes} passes in one launch" if passes > 1 else "")


def _cells(record: Record) -> Iterator[str]:
    if not record.has_bandwidth:
        yield from ("-",) * len(_FIGURES)
        return
    for name, decimals in (("cold_gbps", 1), ("warm_gbps", 1), ("warm_cold", 2), ("gbps", 1)):
        figure = record.figure(name)
        yield f"{figure:.{decimals}f}" if math.isfinite(figure) else "-"


def _row(*cells: str) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _notes(off: Record, on: Record) -> Iterator[str]:
    both = ("off", off), ("on", on)
    yield ", ".join(f"{name} {record.verdict}" for name, record in both if record.fails)
    shares = [(name, record.link_share) for name, record in both]
    seen = ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares if share is not None)
    yield f"links {on.link_way} {seen} of the bytes claimed" if seen else ""

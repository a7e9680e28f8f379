"""What the terminal shows of measurements: a figure beside each item, the matrix and the verdicts at the end."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pytest_transferbench.report.matrix import matrix_lines
from pytest_transferbench.report.messages import message_lines, message_row
from pytest_transferbench.report.rotation import Study, not_judged
from pytest_transferbench.report.tables import table_lines, table_of
from pytest_transferbench.report.transport import Record, headline, records
from pytest_transferbench.transfer import TransferOrTest, format_size, parse_transfers, together

_SAMPLE_NUMBER = re.compile(r"^sample \d+: ")
_NUMBER = re.compile(r"(?<!\w)\d+(\.\d+)?")  # not those in names, such as G0


def live_status(report: Any) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Return pytest's status of a passed item with its bandwidth in the verbose word; None for other reports.

    Failed ones keep pytest's word: it also opens their line in the short summary, which tools read.
    """
    record = headline(records(report))
    if record is None or report.when != "call" or not report.passed or hasattr(report, "wasxfail"):
        return None
    figure = f"{float(record.gbps):8.1f} GB/s"
    if not record.has_bandwidth:  # a control that its test lets pass
        figure = record.verdict
    elif record["op"] == "pingpong":
        figure = f"{1e6 * record.figure('seconds'):9.2f} us half round trip"
    elif record["protocol"]:
        figure = f"{1e6 * record.figure('seconds'):9.2f} us {float(record.gbps):8.3f} GB/s"
    best = f" with {record.best_subexecutors} SubExecutors" if record.best_subexecutors else ""
    word = f"PASSED {figure}{best}{' control' if record['control'] else ''}"
    return "passed", ".", (word, {"green": True})


class Results:
    """The measurements of a run, in the order reported; a repeated item counts with its last report."""

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}

    def add(self, report: Any) -> None:
        """Take the measurements of a report, if it has any."""
        found = records(report)
        if found and report.when == "teardown":  # after what was measured before it
            self._records.setdefault(report.nodeid, []).extend(found)
        elif found:
            self._records[report.nodeid] = found

    def __bool__(self) -> bool:
        return bool(self._records)

    def title(self, verbosity: int) -> str:
        """Return the section's title; what was not measured on a real machine says so."""
        emulated = sorted({str(record["emulated"]) for record in self._all() if record["emulated"]})
        shown = "transfer bandwidth" if verbosity >= 0 else "transfers"
        return shown + (f", EMULATED {', '.join(emulated)}" if emulated else "")

    def lines(self, verbosity: int) -> list[str]:
        """Return the summary: matrices, the items' details with ``-v``, and whatever needs a reader's eye."""
        judged = [record for record in self._all() if record["judged"]]
        measured = [record for record in judged if not record["protocol"]]
        study = Study(record for record in self._all() if not table_of(record))
        lines: list[str] = []
        if verbosity >= 0:
            lines += study.lines()
            lines += message_lines((record for record in judged if record["protocol"]), verbosity)
            lines += table_lines(measured)
            for group in _groups(r for r in measured if not study.shows(r) and not table_of(r)):
                lines += [*_matrix(group), ""]
        if verbosity > 0 and measured:
            lines += [*map(_detail, measured), *_clocks(measured), ""]
        lines += [
            f"not judged: {_detail(record)}"
            for record in self._all()
            if not record["judged"] and (verbosity > 0 or not study.shows(record))
        ]
        lines += _rejected(self._all()) + _warnings(self._all()) + _unproved(self._all())
        return lines + _verdicts(self._all())

    def _all(self) -> Iterator[Record]:
        for found in self._records.values():
            yield from found


def _verdicts(found: Iterable[Record]) -> list[str]:
    """How many have which verdict, and how many controls there are beside them; nothing where there is neither."""
    made = list(found)
    counts = Counter(record.verdict for record in made if record["judged"])
    controls = sum(record["control"] for record in made)
    if not counts and not controls:
        return []
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none"
    return [f"verdicts: {said}" + (f"; {not_judged(controls)}" if controls else "")]


def rotation_text(record: Record) -> str:
    """Return how the source rotated: ``rotation K=64 x 4M (pitch 4194304) = 256M``, or that it did not.

    Nothing where nothing ran.
    """
    method = record["method"]
    if not method:
        return ""
    if not method["rotate_bytes"]:
        return "no rotation"
    span = format_size(method["slices"] * method["pitch"])
    rotation = "rotation" if method["rotated"] else "rotation too little,"
    return f"{rotation} K={method['slices']} x {format_size(record['nbytes'])} (pitch {method['pitch']}) = {span}"


def blocks_text(record: Record) -> str:
    """Return who shared the work: blocks and threads of a kernel, threads of a CPU; nothing for a copy engine."""
    method = record["method"]
    if not method:
        return ""
    if not method["block_threads"]:
        by_threads = method["gate"] == "host" and method["part"] < 0
        return f"{method['subexecutors']} threads" if by_threads else ""
    each = " each" if _transfers(record) > 1 else ""
    return f"{method['subexecutors']} blocks x {method['block_threads']} threads{each}"


def _groups(measured: Iterable[Record]) -> Iterator[list[Record]]:
    """Records that share a matrix: one op, executor, size and variant of one suite, and no cell twice."""
    groups: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    taken: Counter[tuple[object, ...]] = Counter()
    for record in measured:
        transfer = _transfer(record)
        shape = transfer.op, _by(record), transfer.nbytes
        group = record.suite, *shape, _at_the_same_time(record), _variant(record)
        groups[*group, taken[*group, _ends(record)]].append(record)
        taken[*group, _ends(record)] += 1
    yield from groups.values()


def _matrix(group: list[Record]) -> list[str]:
    first = _transfer(group[0])
    by_ends = {_ends(record): record for record in group}
    caption = "; ".join(filter(None, [_by_row(by_ends, rotation_text), _by_row(by_ends, blocks_text), _ratios(group)]))
    cells = {
        ends: f"{float(record.gbps):.1f}" if record.has_bandwidth else record.verdict
        for ends, record in by_ends.items()
    }
    return [
        f"{first.op} {_by(group[0])} {format_size(first.nbytes)}{_variant(group[0])}{_at_the_same_time(group[0])}, "
        "GB/s (steady median; rows SRC, columns DST)",
        *([caption] if caption else []),
        *matrix_lines(cells),
    ]


def _ends(record: Record) -> tuple[str, str]:
    """The row and the column of a record in its matrix."""
    source, destination = record["ends"]
    return source, destination


def _transfer(record: Record) -> TransferOrTest:
    return together(parse_transfers(record["transfer"]))


def _by(record: Record) -> str:
    """Who moved the bytes; where the best number of SubExecutors was searched for, it differs from cell to cell."""
    transfer = _transfer(record)
    return transfer.by if record.best_subexecutors else transfer.by_in_name


def _variant(record: Record) -> str:
    """What tells two functions' cases of one Transfer apart, after a blank; nothing where it has no variant."""
    variant = record.tail.removeprefix(f"-{_transfer(record).place_in_name()}").removeprefix("-")
    return f" {variant}" if variant else ""


def _transfers(record: Record) -> int:
    """How many Transfers ran at the same time; the figures are those of all."""
    return len(_transfer(record).transfers)


def _at_the_same_time(record: Record) -> str:
    return f" x {_transfers(record)} at the same time" if _transfers(record) > 1 else ""


def _by_row(by_ends: Mapping[tuple[str, str], Record], text_of: Callable[[Record], str]) -> str:
    """The text of most cells, then every other text with the rows it is about, or the pairs where a row is mixed."""
    cells_of: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for ends, record in by_ends.items():
        cells_of[text_of(record)].append(ends)
    most, *others = sorted(cells_of, key=lambda text: -len(cells_of[text]))
    said = [most]
    for text in others:
        elsewhere = {source for other, cells in cells_of.items() if other != text for source, _ in cells}
        names = dict.fromkeys(
            f"{source}-{destination}" if source in elsewhere else source for source, destination in cells_of[text]
        )
        said.append(text and f"{' '.join(names)}: {text}")
    return ", ".join(part for part in said if part)


def _ratios(group: list[Record]) -> str:
    ratios = [r.figure("warm_cold") for r in group if r.has_bandwidth and math.isfinite(r.figure("warm_cold"))]
    if not ratios:
        return ""
    low, high = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
    return f"warm/cold {low}" if low == high else f"warm/cold {low} to {high}"


def _detail(record: Record) -> str:
    if record["protocol"]:
        return f"{record.name}: {message_row(record)}"
    if not record.has_bandwidth:
        return "; ".join(filter(None, [f"{record.name}: {record.verdict}", rotation_text(record)]))
    figures = ", ".join(
        f"{label} {record.figure(name):.1f}"
        for label, name in (("p10", "p10_gbps"), ("cold", "cold_gbps"), ("warm", "warm_gbps"))
        if math.isfinite(record.figure(name))
    )
    graph_gbps = record["context"].get("graph_gbps")
    if graph_gbps is not None:
        figures += f", graph {graph_gbps:.1f}"
    ratio = record.figure("warm_cold")
    parts = [f"{record.name}: {record.gbps} ({figures}; warm/cold {f'{ratio:.3f}' if math.isfinite(ratio) else '-'})"]
    parts.append(rotation_text(record))
    parts.append(blocks_text(record))
    if record["method"]:
        samples = record["method"]["samples"]
        parts.append(f"{record['method']['copies']} copies x {samples} sample{'' if samples == 1 else 's'}")
    parts.append(_counted(record))
    parts.append(record.verdict)
    return "; ".join(part for part in parts if part)


def _counted(record: Record) -> str:
    share = record.link_share
    return "" if share is None else f"links {record.link_way} {100 * share:.1f} % of the bytes claimed"


def _rejected(found: Iterable[Record]) -> list[str]:
    lines = []
    for record in found:
        # One cause differs from sample to sample in its numbers alone; the first stands for all.
        causes: dict[str, list[str]] = defaultdict(list)
        for reason in (reason for arm in record["arms"] for reason in arm["rejected"]):
            cause = _SAMPLE_NUMBER.sub("", reason)
            causes[_NUMBER.sub("", cause)].append(cause)
        if causes:
            most = sorted(causes.values(), key=len, reverse=True)
            said = "; ".join(f"{alike[0]} ({len(alike)})" for alike in most[:3])
            lines.append(f"samples taken again: {record.name}: {sum(map(len, most))}: {said}")
    return lines


def _warnings(found: Iterable[Record]) -> list[str]:
    """Each warning once, with the items it is about."""
    about: dict[str, list[str]] = defaultdict(list)
    for record in found:
        for warning in record["warnings"]:
            about[warning].append(record.name)
    return [
        f"warning: {warning} ({names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''})"
        for warning, names in about.items()
    ]


def _unproved(found: Iterable[Record]) -> list[str]:
    """A figure without proof looks like any other: whoever reads the screen is told."""
    without: dict[str, list[str]] = defaultdict(list)
    for record in found:
        if record.has_bandwidth and not record["validated"]:
            without["data not checked (validate off)"].append(record.name)
        elif record.has_bandwidth and not record["slice_identity_proved"]:
            without["not proved which slice was read (data of the test's own)"].append(record.name)
    return [f"{what}: {len(names)} items, {names[0]} the first" for what, names in without.items()]


def _clocks(measured: Iterable[Record]) -> list[str]:
    """What the clocks are worth, once for each device that launched; a virtual clock is exact."""
    lines: dict[int, str] = {}
    for context in (record["context"] for record in measured if not record["emulated"]):
        if context.get("empty_pair_seconds") is None or context["launch_device"] in lines:
            continue
        device, apart = context["launch_device"], context["empty_pair_seconds"] * 1e6
        line = f"clocks: two events with nothing between are {apart:.1f} us apart on G{device}"
        skew_seconds = context.get("skew_seconds") or 0.0
        if skew_seconds > 0:
            line += f"; its dies differ by at most {skew_seconds * 1e6:.1f} us"
        lines[device] = line
    return list(lines.values())

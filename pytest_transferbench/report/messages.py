"""Messages by LL flag protocols, a row each, as RCCL's llx_latency_bench prints them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pytest_transferbench.report.transport import Record
from pytest_transferbench.transfer import format_size, protocols

_RINGS = {"U": "uncached", "F": "fine-grained", "G": "coarse"}


def message_lines(records: Iterable[Record], verbosity: int) -> Iterator[str]:
    """Yield one table for each pair of GPUs, rows in the order measured; with ``-v`` what else there is to say."""
    tables: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        tables[_caption(record)].append(record)
    for caption, rows in tables.items():
        yield caption
        for record in rows:
            yield message_row(record) + (_more(record) if verbosity > 0 else "")
        if any(record["protocol"].endswith("-sc") and record["context"].get("runtime") == "cuda" for record in rows):
            yield "sc on NVIDIA: the flag is stored with release at system scope, there is no wait for the stores alone"
        yield from _most_on_the_wire(rows)
        yield ""


def message_row(record: Record) -> str:
    """Return ``LL128-sc 16777216 B nlines=139811 nb=64 T(A->B)= 377.65 us BW= 44.426 GB/s [OK]``, in columns."""
    row = f"{protocols(record['protocol'])[0].title:<11} {record['nbytes']:>9} B "
    if record["method"]:
        row += f"nlines={record['method']['lines']:<8} nb={record['method']['blocks']:<4} "
    if record.has_bandwidth:
        microseconds = 1e6 * record.figure("seconds")
        if record["op"] == "pingpong":
            row += f"half round trip={microseconds:>9.2f} us "
        else:
            row += f"T(A->B)={microseconds:>9.2f} us BW={float(record.gbps):>8.3f} GB/s "
    return row + _status(record)


def _caption(record: Record) -> str:
    source, destination = record["ends"]
    memory = _RINGS.get(record["method"].get("ring_kind", ""))  # none where it could not be had
    link_class = record["link_class"]
    if record["op"] == "pingpong":
        ring = f", {memory} memory" if memory else ""
        return f"ping-pong {source} <-> {destination} ({link_class}){ring}: half of a lap, median"
    ring = f", {memory} ring" if memory else ""
    return f"messages {source} -> {destination} ({link_class}){ring}: T includes the ACK's way back, median"


def _status(record: Record) -> str:
    """``[OK]`` is about the data, as in RCCL's tool; a verdict on the figure stands behind it."""
    wrong = [check for check in record["checks"] if check["wrong_words"]]
    if wrong:
        least = "at least " if any(check["first"] < 0 for check in wrong) else ""
        return f"[ERRORS: {least}{sum(check['wrong_words'] for check in wrong)}]"
    if not record.has_bandwidth:
        return f"[{record.verdict}]"
    data = "[OK]" if record["validated"] else "[NOT CHECKED]"
    return f"{data} {record.verdict}" if record.fails else data


def _more(record: Record) -> str:
    if not record.has_bandwidth:
        return ""
    parts = [f"p99 {1e6 * record.figure('p99_seconds'):.2f} us"]
    if record["op"] == "push":
        parts += [f"p10 {record.figure('p10_gbps'):.3f} GB/s", f"wire {_on_the_wire(record)}"]
    counted = record["context"].get("link_bytes")
    if counted is not None and counted["claimed"]:
        parts.append(f"links sent {100 * counted['sent'] / counted['claimed']:.1f} % of the bytes claimed")
    return f" {', '.join(parts)}, {record['method']['samples']} iterations"


def _most_on_the_wire(rows: Iterable[Record]) -> Iterator[str]:
    """How near the links' rate the messages came, flags and unused parts of lines included."""
    sent = [record for record in rows if record["op"] == "push" and record.has_bandwidth]
    if sent:
        most = max(sent, key=lambda record: float(record["context"]["wire_gbps"]))
        name = f"{protocols(most['protocol'])[0].title} {format_size(most['nbytes'])}"
        yield f"most on the wire: {_on_the_wire(most)}, by {name}"


def _on_the_wire(record: Record) -> str:
    context = record["context"]
    text = f"{context['wire_gbps']:.3f} GB/s ({100 * context['wire_efficiency']:.4g} % data"
    if context.get("ceiling_gbps"):  # it is that of the data in full lines
        share = context["wire_gbps"] * protocols(record["protocol"])[0].wire_efficiency / context["ceiling_gbps"]
        text += f", {100 * share:.3g} % of the ceiling"
    return f"{text})"

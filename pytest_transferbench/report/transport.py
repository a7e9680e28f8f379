"""The way of a measurement from where it was made to where it is reported: a report attribute of plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_transferbench.journal import to_plain
from pytest_transferbench.measurement import GBps, Measurement
from pytest_transferbench.transfer import format_size

ATTRIBUTE = "transferbench"
"""The report attribute. JUnit leaves it alone, and pytest-xdist carries it when it holds exact plain types."""

PROCESS_DIED = "???"
"""The phase that pytest-xdist gives the report it makes up for an item whose worker died."""

_NO_BANDWIDTH = ("DEVICE_ERROR", "TIMEOUT", "CORRUPT", "INVALID")


class Record(dict[str, Any]):
    """One measurement as :meth:`Measurement.to_json` gives it, with what reports ask of it."""

    @property
    def name(self) -> str:
        """The case's id, without the suite."""
        return str(self["key"]).partition("/")[2]

    @property
    def suite(self) -> str:
        """The module that measured it."""
        return str(self["key"]).partition("/")[0]

    @property
    def fails(self) -> bool:
        """Whether any verdict is one that fails."""
        return any(finding["fails"] for finding in self["verdicts"])

    @property
    def verdict(self) -> str:
        """The verdict's word; the most important one where there are several."""
        return str(self["verdicts"][0]["verdict"]) if self["verdicts"] else "NEW"

    @property
    def has_bandwidth(self) -> bool:
        """Whether the figures mean anything: data that did not arrive has no bandwidth."""
        return self.verdict not in _NO_BANDWIDTH

    def figure(self, name: str) -> float:
        """Return one of :meth:`Measurement.to_json`'s ``figures``, such as ``gbps``; NaN if not measured."""
        value = self["figures"][name]
        return math.nan if value is None else float(value)

    @property
    def tail(self) -> str:
        """What the id has behind the size: the executor's place and the variant, each after a dash."""
        return self.name.partition(f"-{format_size(self['nbytes'])}")[2]

    @property
    def link_way(self) -> str:
        """Which of the links' counters sees the bytes: those received by the GPU that pulls, or sent by another."""
        return "received" if self["op"] == "pull" else "sent"

    @property
    def link_share(self) -> float | None:
        """How many of the bytes claimed the links' counters saw; ``None`` where nothing counts them.

        A cache that answers in a link's place moves nothing over it.
        """
        counted = self["context"].get("link_bytes")
        if counted is None or self["link_class"] in ("local", "host") or not counted["claimed"]:
            return None
        return float(counted[self.link_way] / counted["claimed"])

    @property
    def best_subexecutors(self) -> int | None:
        """The number of SubExecutors that a search found best; ``None`` where nobody searched."""
        best: int | None = self["context"].get("best_subexecutors")
        return best

    @property
    def gbps(self) -> GBps:
        """The steady median."""
        return GBps(self.figure("gbps"))


def carry(measurements: Iterable[Measurement]) -> list[Any]:
    """Return ``measurements`` as the plain data that goes on a report, in the order made."""
    return [to_plain(measurement.to_json()) for measurement in measurements]


def records(report: Any) -> list[Record]:
    """Return the measurements on a report, in the order made; none for other people's reports."""
    return [Record(data) for data in getattr(report, ATTRIBUTE, ())]


def ends_transfer_item(report: Any) -> bool:
    """Tell whether a report says how one of our items ended: by its call, or by a setup that did not pass."""
    return hasattr(report, ATTRIBUTE)


def headline(data: Iterable[Mapping[str, Any]]) -> Record | None:
    """Return the measurement that stands for an item: the judged one, else its first control, if it has either."""
    made = [Record(entry) for entry in data]
    return next((record for what in ("judged", "control") for record in made if record[what]), None)

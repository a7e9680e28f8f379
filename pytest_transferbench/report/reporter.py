"""The process that reports: it keeps the journal while items finish, and shows the summary at the end."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pytest_transferbench import options
from pytest_transferbench.journal import Journal
from pytest_transferbench.node import Node
from pytest_transferbench.report import transport
from pytest_transferbench.report.terminal import Results

_ENDS_OF_OTHERS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""Exit statuses that other people's tests may bring about; those of an interruption or a crash are kept."""


class Reporter:
    """Hooks of the only process there is, or of xdist's controller.

    ``node`` returns the machine, or None while nobody has asked for it; ``collected`` how many transfer items there
    were in the end, ``announced`` until when a worker might run the item it died in, in seconds since the epoch, None
    for items of others, ``worker_error`` why a worker could not find out what to measure, ``pending_faults`` lines
    about faults of an emulated node that never happened. Raises ``UsageError`` when the journal at ``path`` cannot be
    written.
    """

    def __init__(
        self,
        config: pytest.Config,
        path: Path | None,
        node: Callable[[], Node | None],
        collected: Callable[[], int],
        announced: Callable[[str], float | None],
        worker_error: Callable[[], str | None],
        pending_faults: Callable[[], Iterable[str]],
    ) -> None:
        self._config = config
        self._node = node
        self._collected = collected
        self._announced = announced
        self._worker_error = worker_error
        self._pending_faults = pending_faults
        self._reported = False
        self._results = Results()
        self._journal: Journal | None = None
        self._no_journal = ""
        if path is not None and not config.option.collectonly:
            try:
                self._open_journal(path)
            except OSError as error:
                raise pytest.UsageError(f"the journal {path} cannot be written: {error.strerror}") from None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a finished item into the journal at once: what was measured survives whatever comes after it."""
        ends_at = self._announced(report.nodeid) if report.when == transport.PROCESS_DIED else None
        if ends_at is None and not transport.ends_transfer_item(report):
            return
        self._reported = True
        self._results.add(report)
        if self._journal is None and not self._no_journal:
            self._open_journal_in_cache()
        if self._journal is not None:
            try:
                if ends_at is None:
                    _write(self._journal, report)
                else:
                    _write_death(self._journal, report, ends_at)
            except OSError as error:
                self._end_journal(self._journal, error)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End as one process would where a worker was refused and none of its items was left to say so."""
        if self._unsaid() and session.exitstatus in _ENDS_OF_OTHERS:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the matrices and verdicts; without any transfer test but with our options, say where there are some."""
        if self._results:
            # Not section(): it writes after the last item's line, and the first line of ours then stands apart.
            verbosity = self._config.get_verbosity()
            terminalreporter.write_sep("=", self._results.title(verbosity))
            for line in self._results.lines(verbosity):
                terminalreporter.write_line(line)
            for line in self._pending_faults():
                terminalreporter.write_line(f"warning: {line}")
            terminalreporter.write_line(f"journal: {self._journal.path if self._journal else self._no_journal}")
        elif unsaid := self._unsaid():
            terminalreporter.write_line(f"ERROR: {unsaid}", red=True)
        elif terminalreporter.stats.get("error"):
            return  # a file that could not be collected may well have held some
        elif self._reported:
            return  # none was collected as one, yet a test asked for our fixtures while it ran
        elif (asked := options.asked_on_command_line(self._config)) and self._collected() == 0:
            terminalreporter.write_line(
                f"transferbench: {' '.join(asked)} given, but no transfer test was collected; those that come with the "
                "plugin: pytest --pyargs pytest_transferbench.suites.test_p2p"
            )

    def close(self) -> None:
        """Close the journal, if there is one."""
        if self._journal is not None:
            self._journal.close()

    def _unsaid(self) -> str | None:
        """Return a worker's refusal that no report has shown: every item it would have failed was deselected."""
        return None if self._reported else self._worker_error()

    def _end_journal(self, journal: Journal, error: OSError) -> None:
        """Go on without a journal: the items still to come can be measured though the disk is full."""
        self._journal = None
        self._no_journal = f"{journal.path} ends early, results after it are lost: {error.strerror}"
        with contextlib.suppress(OSError):  # closing writes once more what could not be written
            journal.close()

    def _open_journal(self, path: Path) -> None:
        versions = {"pytest": pytest.__version__, "python": platform.python_version()}
        self._journal = Journal(path, versions=versions, node=self._node())

    def _open_journal_in_cache(self) -> None:
        """A run is not lost because its results cannot be kept where nobody asked for them: the summary says so."""
        cache: pytest.Cache | None = getattr(self._config, "cache", None)
        if cache is None:
            self._no_journal = "none, pytest's cache is off"
            return
        name = time.strftime(f"%Y%m%dT%H%M%S-{os.getpid()}.jsonl")
        try:
            self._open_journal(cache.mkdir("transferbench") / name)
        except OSError as error:
            self._no_journal = f"none, {error}"


def _write(journal: Journal, report: pytest.TestReport) -> None:
    records = transport.records(report)
    for record in records:
        journal.record(
            nodeid=report.nodeid,
            outcome=report.outcome,
            key=record["key"],
            verdict=record.verdict,
            measurement=record,
        )
    if not records:
        journal.record(nodeid=report.nodeid, outcome=report.outcome)


def _write_death(journal: Journal, report: pytest.TestReport, ends_at: float) -> None:
    """Write an item whose worker died: from its deadline on, given in seconds since the epoch, that was the cause."""
    detail = str(report.longrepr)
    if time.time() < ends_at:
        journal.record(nodeid=report.nodeid, outcome=report.outcome, detail=detail)
    else:
        detail = f"the item's deadline passed: {detail}"
        journal.record(nodeid=report.nodeid, outcome=report.outcome, verdict="TIMEOUT", detail=detail)

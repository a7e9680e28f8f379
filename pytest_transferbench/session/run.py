"""One pytest process: what it was asked, the node it runs on, and the engine it keeps open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_transferbench import options
from pytest_transferbench.cases import (
    CONFIG,
    Plan,
    Request,
    build_cases,
    default_sizes,
    for_node,
    read_config,
    request_from_marks,
    selected_gpus,
)
from pytest_transferbench.isolation import xdist
from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import Node
from pytest_transferbench.options import MARK, Settings
from pytest_transferbench.session.best import TRIAL_SAMPLES, candidates
from pytest_transferbench.transfer import AnyCase, AnyTransfer, Config, MessageCase

if TYPE_CHECKING:
    from pytest_transferbench.engine import Bench
    from pytest_transferbench.judge import Ceiling, RunCeilings

# The doors to the rooms below. They import when first used: a project without transfer tests never opens one.


def probe(settings: Settings) -> Node:
    """Return the facts about this machine, found by a child process; raises ``ValueError`` in one line."""
    from pytest_transferbench.runtime import ProbeError, probe_node

    try:
        return probe_node(settings.runtime, settings.emulate)
    except ProbeError as error:
        raise ValueError(str(error)) from None


def activate(model: str) -> None:
    """Make this process run on the emulated node ``model``; raises ``ValueError`` in one line."""
    from pytest_transferbench.emulator import EmulatorError, activate

    try:
        activate(model)
    except EmulatorError as error:
        raise ValueError(str(error)) from None


def open_bench(node: Node, emulate: str | None) -> Bench:
    """Open the runtime in this process; raises ``RuntimeFault``."""
    from pytest_transferbench.engine import Bench

    return Bench.open(node, emulate)


def unsupported(case: AnyCase, node: Node) -> str | None:
    """Return why ``case`` cannot be run on ``node``, or None; raises ``ValueError`` where it never could."""
    from pytest_transferbench import latency
    from pytest_transferbench.engine import executors

    if isinstance(case, MessageCase):
        return latency.unsupported(case, node)
    return executors.unsupported(case.transfer, node, case.sub_iterations)


def estimate_seconds(case: AnyCase, node: Node) -> float:
    """Return about how long ``case`` takes."""
    from pytest_transferbench import engine, latency

    if isinstance(case, MessageCase):
        return latency.estimate_seconds(case, node)
    once = engine.estimate_seconds(case, node)
    if not case.best:
        return once
    trial = engine.estimate_seconds(replace(case, samples=min(case.samples, TRIAL_SAMPLES)), node)
    return once + len(candidates(case.transfer, node)) * trial


def measure_message(bench: Bench, case: MessageCase, key: str) -> Measurement:
    """Measure a message in buffers of its own; raises ``RuntimeFault`` where they cannot be had."""
    from pytest_transferbench import latency

    return latency.measure(bench, case, key=key)


class Run:
    """What hooks and fixtures of one process share.

    ``settings``, ``node`` and ``gpus`` exist once :meth:`ready` has returned True. ``error`` is the one line that
    says why they do not. ``refusal`` is why transfer items cannot run under this process's workers, or in this
    worker. ``items`` counts the transfer items collected, ``notes`` are lines about cases left out.
    """

    settings: Settings
    node: Node
    gpus: tuple[int, ...]

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._handed = xdist.received(config)
        self._resolved = False
        self._bench: Bench | None = None
        self._bench_error: str | None = None
        self._ceilings: RunCeilings | None = None
        self.error: str | None = None
        self.refusal: str | None = self._handed.get("refusal") or xdist.refusal(config)
        self._planned: list[AnyTransfer] = []
        self.items = 0
        self.notes: list[str] = []

    def ready(self) -> bool:
        """Resolve settings and node at the first call; False when that failed, with the line in ``error``."""
        if not self._resolved:
            self._resolved = True
            try:
                self._resolve()
            except (ValueError, pytest.UsageError) as error:
                self.error = " ".join(str(error).split("\n"))
        return self.error is None

    @property
    def resolved(self) -> bool:
        """Whether :meth:`ready` has been asked and said yes: without that nothing of the machine is known."""
        return self._resolved and self.error is None

    def _resolve(self) -> None:
        self.settings = options.settings_of(self._config, os.environ)
        handed: str | None = self._handed.get("node")
        self.node = Node.from_json(json.loads(handed)) if handed else probe(self.settings)
        if self.settings.runtime in ("rocm", "cuda") and not self.node.devices:
            spelling = self.settings.sources["runtime"]
            raise ValueError(f"{spelling}={self.settings.runtime}: {self.node.why_no_gpu or 'it shows no GPU'}")
        self.settings = for_node(self.settings, self.node)
        self.gpus = selected_gpus(self.settings, self.node)
        self._config_of(self.settings)  # what is wrong with it is said before anything is collected
        if self.node.emulated and not xdist.is_controller(self._config):
            # Now, before any test module is imported: one that imports CuPy would bind it to a real runtime.
            activate(self.settings.emulate or self.node.emulated)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in bytes that are run where no mark says otherwise."""
        return self.settings.sizes or default_sizes(self.node)

    def for_workers(self) -> dict[str, Any]:
        """Return what the controller hands every worker: plain data only."""
        node = json.dumps(self.node.to_json()) if self.resolved else None
        return {"node": node, "refusal": self.refusal}

    def request(self, marks: Iterable[pytest.Mark]) -> Request:
        """Return what a function asks for on this node through its marks; raises ``ValueError`` in one line."""
        return request_from_marks(self.settings, marks, emulated=self.node.emulated is not None)

    def plan(self, request: Request) -> Plan:
        """Return the cases of one function, and remember them; raises ``ValueError`` in one line."""
        config = self._config_of(request.settings) if request.pairs == CONFIG and not request.transfers else None
        plan = build_cases(request, self.node, self.gpus, unsupported, config)
        self._planned += [item.case.transfer for item in plan.items if item.case and not item.skip]
        self.notes += plan.notes
        return plan

    def _config_of(self, settings: Settings) -> Config | None:
        """Read the configuration file of ``settings``, if there is one; raises ``ValueError`` in one line."""
        if settings.config is None:
            return None
        try:
            text = settings.config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            where, path = settings.sources["config"], options.one_line(str(settings.config))
            given = f"{where}={path}" if where != MARK else f"@pytest.mark.transferbench(config={path!r})"
            raise ValueError(f"{given}: it cannot be read: {why}") from None
        return read_config(text, settings, self.node, self.gpus)

    def estimate(self, cases: Iterable[AnyCase]) -> float:
        """Return about how long ``cases`` take together, in seconds."""
        return sum(estimate_seconds(case, self.node) for case in cases)

    def blocked(self) -> str | None:
        """Return the line with which every transfer item of this process fails, or None when they can run."""
        return self.refusal or (None if self.ready() else self.error)

    @property
    def opened(self) -> bool:
        """Whether the engine has been opened already."""
        return self._bench is not None

    def bench(self) -> Bench:
        """Return the engine, opened at the first call and kept; fails the item in one line when it cannot be."""
        from pytest_transferbench.runtime import RuntimeFault

        if self._bench is None and self._bench_error is None:
            try:
                self._bench = open_bench(self.node, self.settings.emulate)
            except RuntimeFault as fault:
                self._bench_error = f"the GPU runtime does not open: {fault}"
        if self._bench is None:
            pytest.fail(str(self._bench_error), pytrace=False)
        return self._bench

    def pending_faults(self) -> list[str]:
        """Return a line for every planned fault that measuring has not come to; none where nothing was measured."""
        from pytest_transferbench.emulator import active

        node = active() if self.opened else None
        return [
            f"fault {number} never happened: {fault.call} was used {used} time{'' if used == 1 else 's'}"
            f"{f' on GPU {fault.device}' if fault.device >= 0 else ''}, not {fault.nth}"
            for number, fault, used in (node.pending_faults() if node else ())
        ]

    def ceiling(self, transfer: AnyTransfer) -> tuple[Ceiling | None, str]:
        """Return what ``transfer`` can reach at most, and in words where that comes from or why it is not known."""
        from pytest_transferbench.judge import ceiling_for

        ceiling = ceiling_for(transfer, self.node) or self.ceilings.ceiling_for(transfer)
        return ceiling, ceiling.source if ceiling else str(self.ceilings.why_not(transfer))

    @property
    def ceilings(self) -> RunCeilings:
        """What this run's own largest sizes say about pairs whose link rate is unknown."""
        if self._ceilings is None:
            from pytest_transferbench.judge import RunCeilings

            self._ceilings = RunCeilings(self._planned)
        return self._ceilings

    def close(self) -> None:
        """Close the engine, if it was opened."""
        bench, self._bench = self._bench, None
        if bench is not None:
            bench.close()

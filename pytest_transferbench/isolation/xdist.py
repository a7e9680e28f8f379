"""What pytest-xdist may do with transfer items: isolate them in one worker, nothing else.

A worker brings isolation (a hung or crashed item costs only itself), not speed: two items measured at the same
time on one machine disturb each other, and until GPUs are locked between processes nothing would keep them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

INPUT = "transferbench"
"""The key under which the controller hands its workers what they need, and gets back what they collected."""

_REFUSED_DISTRIBUTIONS = ("loadgroup", "loadscope", "loadfile")


def is_worker(config: pytest.Config) -> bool:
    """Tell whether this process is an xdist worker."""
    return hasattr(config, "workerinput")


def is_controller(config: pytest.Config) -> bool:
    """Tell whether this process hands its items to xdist workers and runs none itself."""
    return not is_worker(config) and worker_count(config) > 0


def worker_count(config: pytest.Config) -> int:
    """Return how many workers this process is about to start; 0 without xdist, and in a worker."""
    if getattr(config.option, "dist", "no") == "no" or config.option.collectonly:
        return 0
    specs: list[str] = getattr(config.option, "tx", None) or []
    return sum(int(count) if star and count.isdigit() else 1 for count, star, _ in (s.partition("*") for s in specs))


def refusal(config: pytest.Config) -> str | None:
    """Return, in one line, why transfer items cannot run under the workers this process is about to start."""
    workers = worker_count(config)
    if workers == 0:
        return None
    if workers > 1:
        given = f"-n{workers}" if config.option.numprocesses else " ".join(f"--tx={spec}" for spec in config.option.tx)
        return f"{given}: transfer tests cannot share a machine between {workers} workers: use -n1, or no -n"
    distribution = config.option.dist
    if distribution in _REFUSED_DISTRIBUTIONS:
        return (
            f"--dist={distribution}: transfer tests cannot run under it, for it repeats a crashing test or never ends: "
            "use --dist=load"
        )
    return None


def allow_restarts(config: pytest.Config) -> None:
    """Let xdist replace as many workers as die, unless the user said how many: one hung item costs one worker.

    xdist's own limit of four restarts a worker drops every test that was still to come.
    """
    if is_controller(config) and config.option.maxworkerrestart is None:
        config.option.maxworkerrestart = "100000"


def received(config: pytest.Config) -> Mapping[str, Any]:
    """Return what the controller handed this worker; empty elsewhere."""
    handed: Mapping[str, Any] = getattr(config, "workerinput", {}).get(INPUT, {})
    return handed


class XdistHooks:
    """The controller's side; registered only where xdist is there.

    ``handed`` is plain data for every worker. ``collected`` becomes the largest number of transfer items that any
    worker had, and stays 0 when none ever reported; ``error`` becomes the line with which a worker could not find
    out what to measure. ``pending_faults`` becomes what a worker says of planned faults that never happened, and
    stays empty where one died and took its count with it.
    """

    def __init__(self, handed: Mapping[str, Any]) -> None:
        self.handed = handed
        self.collected = 0
        self.error: str | None = None
        self.pending_faults: list[str] = []
        self._died = False

    def pytest_configure_node(self, node: Any) -> None:
        """Hand a starting worker the node and the refusal, so that it probes nothing itself."""
        node.workerinput[INPUT] = dict(self.handed)

    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker says at its end; one that crashed says nothing."""
        said = getattr(node, "workeroutput", {}).get(INPUT)
        self._died |= said is None
        if said is not None:
            self.collected = max(self.collected, said["items"])
            self.error = said["error"] or self.error
            self.pending_faults = [] if self._died else said["pending_faults"]

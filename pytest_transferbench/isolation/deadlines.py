"""A deadline for every item, after which the process is ended with a traceback.

A device call that never returns holds the interpreter: no signal and no thread of ours would run again. faulthandler's
watchdog is a C thread and fires even then. Under ``-n1`` xdist replaces the worker and the run goes on.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import shutil
from pathlib import Path
from typing import TextIO

from pytest_transferbench.node import Node
from pytest_transferbench.transfer import AnyCase, Memory, MessageCase

BASE_SECONDS = 60.0
"""Enough for allocation, filling, eviction and checks of any one case."""
FIRST_SECONDS = 600.0
"""What the first item has on top: it opens the runtime and compiles kernels, on an emulated node with g++."""
CLOSE_SECONDS = 60.0
"""What giving everything back at the end may take: it waits for the device, and one that is lost never answers."""
LONGEST_SECONDS = 86_400.0
"""No item is worth more, and the watchdog's own clock ends before the numbers that may be asked for do."""
PESSIMISTIC_BYTES_PER_SECOND = 0.25e9
"""Far below any link, and below what an emulated node really copies on one busy CPU."""
ARMS = 3
LAUNCHES = 4
"""Launches of a message case: the trial, and the timed one, which is tried three times."""
EMULATED_MESSAGE_BYTES_PER_SECOND = 2e6
"""Below what an emulated node sends on one busy CPU."""
SEARCHED = 24
"""Times that a case is measured whose best number of SubExecutors is searched for: more than any GPU has candidates."""
COPIES = 6
"""Copies a sample, taking in its warm-ups: only small sizes have more, and those are quick."""


def deadline_seconds(case: AnyCase | None, node: Node | None, first: bool) -> float:
    """Return how long an item may take, in seconds: a base, and its bytes at a pessimistic rate, at most a day.

    ``case`` and ``node`` are None for an item whose Transfer is not known beforehand. ``first`` tells that the
    runtime is not open yet.
    """
    seconds = BASE_SECONDS + (FIRST_SECONDS if first else 0.0)
    return min(LONGEST_SECONDS, seconds + (FIRST_SECONDS if case is None else _seconds_of(case, node)))


def _seconds_of(case: AnyCase, node: Node | None) -> float:
    transfer = case.transfer
    if isinstance(case, MessageCase):
        sent = LAUNCHES * (case.warmups + case.samples) * transfer.total_bytes
        emulated = node is not None and node.emulated is not None
        rate = EMULATED_MESSAGE_BYTES_PER_SECOND if emulated else PESSIMISTIC_BYTES_PER_SECOND
        return LAUNCHES * case.timeout_seconds + sent / rate
    moved = sum(each.nbytes * max(len(each.sources), len(each.destinations)) for each in transfer.transfers)
    copied = ARMS * case.samples * COPIES * case.sub_iterations * moved
    caches = sum(_cache_bytes(node, memory) for memory in (*transfer.sources, *transfer.destinations))
    evicted = 2 * case.samples * caches
    return (SEARCHED if case.best else 1) * (copied + evicted) / PESSIMISTIC_BYTES_PER_SECOND


def _cache_bytes(node: Node | None, memory: Memory) -> int:
    if node is None or memory.on != "device":
        return 0
    return next((d.last_level_cache_bytes or 0 for d in node.devices if d.index == memory.index), 0)


class Announcements:
    """What each worker says before it runs an item: a file of its own in a folder that the controller hands out.

    From a process that dies in an item nothing else comes; what reports carry is too late for its setup. The folder
    is made when first written to, and a worker of another machine, which cannot write there, announces nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def announce(self, worker: str, nodeid: str, ends_at: float) -> None:
        """Say that ``worker`` runs ``nodeid`` and is ended at ``ends_at``, in seconds since the epoch."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            (self.folder / worker).write_text(json.dumps([nodeid, ends_at]), encoding="utf-8")

    def ends_at(self, nodeid: str) -> float | None:
        """Return when the worker that runs ``nodeid``, or died in it, is ended; None where no worker announced it."""
        for path in sorted(self.folder.glob("*")):
            with contextlib.suppress(OSError, ValueError):  # half a file, of a worker killed while it wrote
                announced, ends_at = json.loads(path.read_text(encoding="utf-8"))
                if announced == nodeid:
                    return float(ends_at)
        return None

    def close(self) -> None:
        """Remove the folder, if there is one."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Watchdog:
    """faulthandler's one watchdog, writing to the standard error there was before pytest captured it."""

    def __init__(self) -> None:
        try:
            stderr = os.dup(2)
        except OSError:  # closed by whoever started us: the deadline holds without the traceback
            stderr = os.open(os.devnull, os.O_WRONLY)
        self._stderr: TextIO = os.fdopen(stderr, "w")
        self.armed = False

    def arm(self, seconds: float) -> None:
        """End this process with a traceback of every thread unless :meth:`cancel` comes within ``seconds``."""
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)
        self.armed = True

    def cancel(self) -> None:
        """Stop waiting; harmless when nothing was armed."""
        if self.armed:
            faulthandler.cancel_dump_traceback_later()
            self.armed = False

    def close(self) -> None:
        """Cancel and give the file back."""
        self.cancel()
        self._stderr.close()

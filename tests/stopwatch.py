"""How long something takes that must not depend on what else runs on the machine."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


class Stopwatch:
    """Measures from when it was made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._waited = _waited_ns()

    @property
    def real_seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def least_seconds(self) -> float:
        """Real time less that in which any thread of this process could have run and had no CPU.

        It takes at least so long where nothing else runs. Where Linux does not tell, it is real time.
        """
        waited = sum(ns - self._waited.get(thread, 0) for thread, ns in _waited_ns().items())
        return self.real_seconds - waited / 1e9


def _waited_ns() -> dict[str, int]:
    """How long each thread has waited for a CPU so far."""
    waited = {}
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(OSError, IndexError):  # one that ended meanwhile, a kernel that does not count
            waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return waited

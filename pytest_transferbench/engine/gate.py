"""The start gate: everything a sample does is queued behind it, and one store of the host releases all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from pytest_transferbench.engine import pattern
from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.runtime import Runtime
from pytest_transferbench.transfer import Memory

DEADLINE_SECONDS = 5.0
PROBE_DEADLINE_SECONDS = 0.05
_PROBE_TRIES = 3
_FLAG, _STATUS = 0, 8
"""Word offsets in the pinned page: apart, so that polling one line does not slow the store to the other."""


class Gate:
    """One flag in coherent pinned memory of a NUMA node for all streams.

    Epochs only grow, so no release is ever seen twice.
    """

    def __init__(self, runtime: Runtime, numa_node: int = 0) -> None:
        self._runtime = runtime
        self._page = runtime.allocate(Memory("C", numa_node), 4096)
        self._words = pattern.view(self._page.pointer, 4096).view(np.uint64)
        self._words[:] = 0
        self._epoch = 0

    def close(self, context: DeviceContext, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        """Queue a kernel that holds ``context``'s stream until :meth:`open`, at most ``deadline_seconds``."""
        self._epoch += 1
        ticks = int(deadline_seconds * self._runtime.deadline_hz(context.index))
        args = (
            np.uint64(self._page.pointer + 8 * _FLAG),
            np.uint64(self._epoch),
            np.uint64(ticks),
            np.uint64(self._page.pointer + 8 * _STATUS),
        )
        context.launch_single("tb_gate", 1, args)

    def open(self) -> None:
        """Release every stream held at the current epoch."""
        self._words[_FLAG] = self._epoch

    @contextlib.contextmanager
    def closed(self, context: DeviceContext, deadline_seconds: float = DEADLINE_SECONDS) -> Iterator[None]:
        """Hold ``context``'s stream while its operations are queued; a call that fails leaves no closed gate."""
        self.close(context, deadline_seconds)
        try:
            yield
        finally:
            self.open()

    def timed_out(self) -> bool:
        """Say whether the last gate ran into its deadline; ask after synchronising."""
        return bool(self._words[_STATUS] == self._epoch)

    def holds(self, context: DeviceContext, queue: Callable[[], None]) -> bool:
        """Say whether ``queue`` returns while the gate is closed.

        Pageable memory and some DMA paths make the call wait for the stream: behind a gate that would be a
        deadlock, so such a pair is measured without one. A slow host can miss the short deadline too; only a pair
        that misses it every time is believed. Where no clock runs there is no deadline, and so no gate.
        """
        if not self._runtime.deadline_hz(context.index) > 0:
            return False
        for _ in range(_PROBE_TRIES):
            with self.closed(context, PROBE_DEADLINE_SECONDS):
                queue()
            context.synchronize()
            if not self.timed_out():
                return True
        return False

    def release(self) -> None:
        """Give the flag's memory back."""
        self._runtime.free(self._page)

"""Getting a transfer's data out of the caches of both ends before a cold sample."""

from __future__ import annotations

import numpy as np

from pytest_transferbench.engine import pattern
from pytest_transferbench.engine.arena import Arena
from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import Allocation
from pytest_transferbench.transfer import Memory
from pytest_transferbench.transfer.rotation import CACHE_FACTOR

LINE_BYTES = 128
UNKNOWN_CACHE_BYTES = 256 * 2**20
"""Assumed for a device whose last-level cache no source reports: as large as any in use, so never too little."""
UNKNOWN_HOST_CACHE_BYTES = 64 * 2**20


class Evictor:
    """Touches one word in every line of memory homed on each owner, twice as much as its last-level cache holds.

    ``numa_node`` is the host's that the case is about.
    """

    def __init__(
        self,
        arena: Arena,
        owners: dict[int, DeviceContext | None],
        host_cache_bytes: int | None,
        numa_node: int,
    ) -> None:
        self._buffers: list[tuple[DeviceContext | None, Allocation]] = []
        for owner, context in owners.items():
            if context is None or owner == HOST:
                memory, cache = Memory("C", numa_node), host_cache_bytes or UNKNOWN_HOST_CACHE_BYTES
            else:
                memory = Memory("G", owner)
                cache = context.device.last_level_cache_bytes or UNKNOWN_CACHE_BYTES
            self._buffers.append((context, arena.take("evict", memory, CACHE_FACTOR * cache)))

    def evict(self) -> None:
        """Queue the eviction on every device's stream, do it at once for the host, and wait for all."""
        for context, buffer in self._buffers:
            if context is None or buffer.owner == HOST:
                words = pattern.view(buffer.pointer, buffer.nbytes)
                words[:: LINE_BYTES // 4] += np.uint32(1)
            else:
                lines = buffer.nbytes // LINE_BYTES
                context.prepare("tb_evict", (np.uint64(buffer.pointer), np.uint64(lines)), lines)
        for context, _ in self._buffers:
            if context is not None:
                context.synchronize()

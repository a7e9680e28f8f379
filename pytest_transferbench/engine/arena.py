"""Buffers reused between cases, so that no case pays for allocating what the one before it gave back."""

from __future__ import annotations

from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import Allocation, Runtime
from pytest_transferbench.transfer import Memory


class Arena:
    """Holds one allocation per role and memory; only those of the current case's devices are kept.

    Nothing is allocated or freed inside a timed region: a case takes all it needs before its first sample.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._held: dict[tuple[str, Memory], Allocation] = {}
        self._taken: set[tuple[str, Memory]] = set()

    def keep_only(self, owners: set[int]) -> None:
        """Start a case on ``owners``: give back what is homed on other devices, and what the last case alone used."""
        for place in [place for place, held in self._held.items() if held.owner not in owners | {HOST}]:
            self._release(place)
        for place in [place for place in self._held if place not in self._taken]:
            self._release(place)
        self._taken.clear()

    def take(self, role: str, memory: Memory, nbytes: int) -> Allocation:
        """Return at least ``nbytes`` of ``memory`` for ``role``; raises RuntimeFault when the device has none left."""
        place = (role, memory)
        self._taken.add(place)
        held = self._held.get(place)
        if held is not None and held.nbytes >= nbytes and held.nbytes <= 2 * nbytes:
            return held
        if held is not None:
            self._release(place)
        self._held[place] = self._runtime.allocate(memory, nbytes)
        return self._held[place]

    def held_bytes(self) -> int:
        """Return how many bytes are held now, over all devices and the host."""
        return sum(held.nbytes for held in self._held.values())

    def clear(self) -> None:
        """Give everything back."""
        for place in list(self._held):
            self._release(place)

    def _release(self, place: tuple[str, Memory]) -> None:
        self._runtime.free(self._held.pop(place))

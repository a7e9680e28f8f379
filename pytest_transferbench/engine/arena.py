"""Buffers reused between cases, so that no case pays for allocating what the one before it gave back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pytest_transferbench.engine.device import insist
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import Allocation, Runtime, RuntimeFault
from pytest_transferbench.transfer import Memory

_Place = tuple[int, str, Memory]
"""Depth of the case, role and memory."""


class Arena:
    """Holds one allocation per role and memory; only those of the current case's devices are kept.

    Nothing is allocated or freed inside a timed region: a case takes all it needs before its first sample.
    A case that starts while another still has its buffers gets its own: ``depth`` is part of every place.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._held: dict[_Place, Allocation] = {}
        self._taken: set[_Place] = set()
        self._depth = 0
        self._spoilt = 0

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """Surround a case. What a case within a case took is given back at its end, the outermost one's is kept.

        Of a case that :meth:`spoil` was said of nothing is kept.
        """
        self._depth += 1
        try:
            yield
        finally:
            within = self._places() if self._depth > 1 or self._spoilt == self._depth else []
            spoilt, self._spoilt = self._spoilt == self._depth, 0
            self._depth -= 1
            for place in within:
                if spoilt:
                    self._insist_on_releasing(place)
                else:
                    self._release(place)

    def spoil(self) -> None:
        """Keep nothing of the current case: a device call of it has failed."""
        self._spoilt = self._depth

    def forget(self, owner: int) -> None:
        """Give up what is homed on a device that is lost: nobody can give that back."""
        self._held = {place: held for place, held in self._held.items() if held.owner != owner}

    def keep_only(self, owners: set[int]) -> list[RuntimeFault]:
        """Start a case on ``owners``: give back what is homed on other devices, and what the last case alone used.

        Returns why memory of other devices could not be given back, which is not the case's own failure; it is held
        until it can. Raises RuntimeFault for memory of ``owners`` and of the host.
        """
        faults = []
        for place in self._places():
            of_the_case = self._held[place].owner in owners | {HOST}
            if place in self._taken and of_the_case:
                continue
            try:
                self._release(place)
            except RuntimeFault as fault:
                if of_the_case:
                    raise
                faults.append(fault)
        self._taken = {place for place in self._taken if place[0] != self._depth}
        return faults

    def take(self, role: str, memory: Memory, nbytes: int) -> Allocation:
        """Return at least ``nbytes`` of ``memory`` for ``role``; raises RuntimeFault when the device has none left."""
        place = (self._depth, role, memory)
        self._taken.add(place)
        held = self._held.get(place)
        if held is not None and held.nbytes >= nbytes and held.nbytes <= 2 * nbytes:
            return held
        if held is not None:
            self._release(place)
        try:
            self._held[place] = self._runtime.allocate(memory, nbytes)
        except RuntimeFault as fault:
            # What an earlier case left for reuse may be all that stands in the way.
            left = [left for left in self._places() if left not in self._taken]
            if not (fault.out_of_memory and left):
                raise
            for unused in left:
                self._release(unused)
            self._held[place] = self._runtime.allocate(memory, nbytes)
        return self._held[place]

    def held_bytes(self) -> int:
        """Return how many bytes are held now, over all devices and the host."""
        return sum(held.nbytes for held in self._held.values())

    def clear(self) -> None:
        """Give everything back that can be."""
        for place in list(self._held):
            self._insist_on_releasing(place)

    def _places(self) -> list[_Place]:
        return [place for place in self._held if place[0] == self._depth]

    def _release(self, place: _Place) -> None:
        self._runtime.free(self._held[place])  # where this fails the place stays held, to be given back later
        del self._held[place]

    def _insist_on_releasing(self, place: _Place) -> None:
        insist(lambda: self._release(place))

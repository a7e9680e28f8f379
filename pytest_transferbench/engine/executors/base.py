"""What every executor is to the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pytest_transferbench.runtime import Stream
from pytest_transferbench.transfer import RotationPlan


@dataclass(frozen=True)
class Geometry:
    """How many sub-executors do the work and how each is shaped; zeros where an executor has no such thing."""

    subexecutors: int
    block_threads: int = 0
    unroll: int = 0


@dataclass(frozen=True)
class Operands:
    """Where the bytes are: address of slice 0 and of the destination, ``None`` for a null end."""

    source: int | None
    destination: int | None
    nbytes: int
    plan: RotationPlan

    def slice_at(self, slice_index: int) -> int:
        """Return the address of a source slice."""
        assert self.source is not None
        return self.source + slice_index * self.plan.pitch


class Executor(Protocol):
    """Moves the bytes of one case. ``stream`` is ``None`` where the host does the work itself."""

    letter: str
    stream: Stream | None
    wakes_behind_gate: bool
    """Whether the scratch copy that wakes the link belongs behind the gate, right before the start event."""
    wake_passes: int
    """How many scratch copies wake it."""
    stamps_per_launch: int
    """64-bit words a launch writes into stamp memory: two a block, or none."""
    stamps_at: int
    """Device address of launch 0's stamps; 0 where there are none."""
    sums_at: int
    """Device address of the 64-bit sum that a read-only launch adds to; 0 where there is none."""

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        """Queue ``passes`` copies, each from the next slice; stamps go to launch ``slot``'s place."""
        ...

"""What every executor is to the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.node import Node
from pytest_transferbench.runtime import Runtime, Stream
from pytest_transferbench.transfer import RotationPlan, Transfer


@dataclass(frozen=True)
class Geometry:
    """How many sub-executors do the work and how each is shaped; zeros where an executor has no such thing.

    ``part`` is the XCC or the DMA engine that alone does it; None where the runtime chooses.
    """

    subexecutors: int
    block_threads: int = 0
    unroll: int = 0
    part: int | None = None


@dataclass(frozen=True)
class Operands:
    """Where the bytes are: the address of slice 0 of every source, and of every destination; none for a null end."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    nbytes: int
    plan: RotationPlan

    def slices_at(self, slice_index: int) -> tuple[int, ...]:
        """Return the address of a slice of every source."""
        return tuple(source + slice_index * self.plan.pitch for source in self.sources)


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


@dataclass(frozen=True)
class Place:
    """Where an executor works: the runtime, the open GPU (``None`` for the host), and memory of that GPU by role.

    ``index`` is the executor's own: of that GPU, or of the host's NUMA node.
    """

    runtime: Runtime
    index: int
    context: DeviceContext | None
    take: Callable[[str, int], int]
    """Returns the address of so many bytes that the case keeps for that role."""

    @property
    def gpu(self) -> DeviceContext:
        """The open GPU, for an executor that runs on one."""
        assert self.context is not None
        return self.context


class ExecutorFile(Protocol):
    """What a file of this folder has for the letter whose word it is named after."""

    def geometry(self, transfer: Transfer, node: Node, together: int) -> Geometry:
        """Return the sub-executors that will run ``transfer`` while ``together`` such Transfers share the executor."""
        ...

    def unsupported(self, transfer: Transfer, node: Node, sub_iterations: int) -> str | None:
        """Return, in one line, why ``node`` cannot run ``transfer``; its ends and their links are known to be fine."""
        ...

    def operations(self, transfer: Transfer, sub_iterations: int) -> int:
        """Return how many operations one copy of ``sub_iterations`` passes queues on its stream."""
        ...

    def remark(self, transfer: Transfer, node: Node) -> str:
        """Return what a reader of the figures should know of how they come about there; mostly nothing."""
        ...

    def make(self, place: Place, operands: Sequence[Operands], geometry: Geometry, launches: int) -> Executor:
        """Return what moves all ``operands`` at the same time, with stamps for ``launches`` launches."""
        ...

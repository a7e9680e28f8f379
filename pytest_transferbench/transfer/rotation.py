"""Source rotation: enough copies of the source that no cache still holds the one read next."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_transferbench.transfer.sizes import MAX_BYTES, format_size
from pytest_transferbench.transfer.test import TransferOrTest

ALIGNMENT_BYTES = 256
"""The pitch is a multiple of this: wider than any cache line, vector load or tensor-move granule in use."""
DEFAULT_BUDGET_BYTES = 256 * 2**20
"""What rotation spends on one source where no cache asks for more."""
CACHE_FACTOR = 2
"""A budget of exactly one cache's size would still leave part of it warm."""
MEMORY_PERCENT = 60
"""How much of a device's total memory the slices of one source may take. Free memory moves; total does not."""


def rotation_budget(transfer: TransferOrTest, budget: int | None) -> int | None:
    """Return what :meth:`RotationPlan.make` may spend on a source of ``transfer``: 0 where there is nothing to rotate.

    Only sources in GPU memory that a GPU reads are rotated, within ``budget``; of a Test, all or none.
    """
    by_gpus = all(executor.on == "device" for executor in transfer.executors)
    return budget if by_gpus and all(memory.on == "device" for memory in transfer.sources) else 0


class SliceCopy(NamedTuple):
    """Copy ``slices`` whole slices, pads included, from ``source_slice`` on to ``destination_slice`` on."""

    destination_slice: int
    source_slice: int
    slices: int


@dataclass(frozen=True)
class RotationPlan:
    """Where the ``slices`` copies of one source of ``nbytes`` bytes lie, and which of them a pass reads.

    ``pitch`` is the distance in bytes between the starts of two slices; the ``pitch - nbytes`` bytes between them
    are never read. ``byte_offset`` lies before the first. ``budget`` is what was asked for in bytes, 0 for no
    rotation. ``needed_bytes`` is the span from which on no cache of the two ends holds the slice read next.
    ``warning`` says in one line that the slices are fewer than asked, or too few for that. A plan is a pure function
    of the arguments of :meth:`make`: processes that agree on those agree on the plan, before anything is allocated.
    """

    nbytes: int
    byte_offset: int
    pitch: int
    slices: int
    budget: int
    warning: str | None = None
    needed_bytes: int = 0

    @classmethod
    def make(
        cls,
        nbytes: int,
        budget: int | None,
        *,
        memory_bytes: int,
        sources: int = 1,
        byte_offset: int = 0,
        caches: Sequence[int | None] = (),
    ) -> RotationPlan:
        """Return the plan for one source.

        ``budget`` is in bytes; ``None`` takes the larger of 256 MiB and twice the largest of ``caches``, the
        last-level caches in bytes of the two ends (``None`` where unknown); 0 gives one slice and exactly the
        allocation there would be without rotation. ``memory_bytes`` is the device's total memory: the slices of all
        ``sources`` in it, each with this plan, take at most 60 % of it. Raises ``ValueError`` for a size, budget or
        offset that cannot be.
        """
        if not 0 < nbytes <= MAX_BYTES:
            raise ValueError(f"bad size {nbytes}: rotation needs between 1 and {MAX_BYTES} bytes")
        if byte_offset < 0 or byte_offset % 4:
            raise ValueError(f"bad byte offset {byte_offset}: use 0 or a positive multiple of 4")
        known = CACHE_FACTOR * max((size or 0 for size in caches), default=0)
        default = max(DEFAULT_BUDGET_BYTES, known)
        needed = known if caches and all(caches) else default
        if budget is None:
            budget = default
        if not 0 <= budget <= MAX_BYTES:
            raise ValueError(f"bad rotation budget {budget}: use 0 (off) to {MAX_BYTES} bytes")
        if budget == 0:
            return cls(nbytes, byte_offset, nbytes, 1, 0, needed_bytes=needed)
        pitch = _round_up(nbytes, ALIGNMENT_BYTES)
        asked = _ceil_divide(budget, pitch)
        room = memory_bytes * MEMORY_PERCENT // 100 // sources - byte_offset
        slices = min(asked, max(1, room // pitch))
        plan = cls(nbytes, byte_offset, pitch, slices, budget, needed_bytes=needed)
        doubt = "" if plan.rotated else f"below {format_size(needed)} the caches of the two ends may answer reads"
        warning = None
        if slices < asked:
            whose = "" if sources == 1 else f" of {sources} sources"
            warning = (
                f"rotation asked for {format_size(budget)} ({asked} slices of {format_size(nbytes)}) and got {slices}: "
                f"slices{whose} may take {MEMORY_PERCENT} % of the device's {format_size(memory_bytes)}"
                + (f"; {doubt}" if doubt else "")
            )
        elif doubt:
            warning = (
                f"rotation over {format_size(plan.span_bytes)} ({_slices(slices)} of {format_size(nbytes)}) is too "
                f"little: {doubt}; use --transfer-rotate=auto"
            )
        return dataclasses.replace(plan, warning=warning)

    @property
    def rotated(self) -> bool:
        """Whether no cache holds the slice read next: a budget alone, which a cache may hold, is no rotation."""
        return self.budget > 0 and self.span_bytes >= self.needed_bytes

    @property
    def span_bytes(self) -> int:
        """Bytes from the start of the first slice to the end of the last, its pad included."""
        return self.slices * self.pitch

    @property
    def allocation_bytes(self) -> int:
        """Bytes to allocate for the source: the span and the offset before it."""
        return self.byte_offset + self.span_bytes

    def slice_of(self, iteration: int, sub: int = 0, sub_iterations: int = 1) -> int:
        """Return the slice that pass ``sub`` of ``iteration`` reads.

        Every pass moves on, also those inside one launch. ``iteration`` is negative for warm-ups, which count up to
        the 0 of the first timed one. Raises ``ValueError`` unless ``0 <= sub < sub_iterations``.
        """
        if not 0 <= sub < sub_iterations:
            raise ValueError(f"bad pass {sub} of {sub_iterations}: passes count from 0")
        return (iteration * sub_iterations + sub) % self.slices

    def offset_of(self, slice_index: int) -> int:
        """Return where a slice starts, in bytes from the start of the allocation."""
        if not 0 <= slice_index < self.slices:
            raise ValueError(f"no slice {slice_index}: this plan has {self.slices}")
        return self.byte_offset + slice_index * self.pitch

    def prefix_doubling(self) -> tuple[SliceCopy, ...]:
        """Return the copies that make every slice equal to slice 0, to be done in this order.

        Each doubles the filled prefix, the last is clipped: ceil(log2 K) of them for K slices.
        """
        copies: list[SliceCopy] = []
        filled = 1
        while filled < self.slices:
            slices = min(filled, self.slices - filled)
            copies.append(SliceCopy(filled, 0, slices))
            filled += slices
        return tuple(copies)

    def describe(self) -> str:
        """Return the plan in a few words: ``K=64 x 4M (pitch 4194304) = 256M``."""
        if self.budget == 0:
            return f"K=1 x {format_size(self.nbytes)}, rotation off"
        slices = f"K={self.slices} x {format_size(self.nbytes)} (pitch {self.pitch}) = {format_size(self.span_bytes)}"
        return slices if self.rotated else f"{slices}, too little"


def _slices(count: int) -> str:
    return f"{count} slice{'' if count == 1 else 's'}"


def _ceil_divide(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _round_up(value: int, unit: int) -> int:
    return _ceil_divide(value, unit) * unit

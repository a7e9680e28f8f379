"""Transfers broken on purpose: the proof must catch each, count it, place it and name it.

A broken G is a kernel with one line changed, a broken D queues other copies than it should. Each mutant knows what
that leaves in the destination.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from unittest.mock import patch

import numpy as np

import hipkernels
from pytest_transferbench.engine import Lease, pattern
from pytest_transferbench.engine.executors import Executor
from pytest_transferbench.engine.executors.gfx import GfxExecutor
from pytest_transferbench.engine.pattern import Words
from pytest_transferbench.engine.validation import guard_key
from pytest_transferbench.measurement import Check
from pytest_transferbench.runtime import Kernel
from pytest_transferbench.transfer import Case, Memory

DAMAGE = """
TB_KERNEL(256) tb_damage(unsigned char* bytes, tb_u64 count, tb_u64 step, tb_u32 flip) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  for (tb_u64 i = thread; i < count; i += threads) bytes[i * step] ^= flip;
}
"""
STORE = "to_vectors[i + u * stride] = held[u];"
TAIL = "if (thread < span.words - span.tail_at) to[span.tail_at + thread] = from[span.tail_at + thread];"


class Mutant:
    """Stands in for a lease's executor and hands on to the real one what it does not break.

    ``edit`` is what to replace in ``copy.hip``, and by what; :meth:`queue` is what any other executor does instead.
    """

    letters = "GD"
    arm = "cold"
    """The first arm that shows it."""
    edit: tuple[str, str] | None = None

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.real: Executor = lease.executor
        self.letter = self.real.letter
        self.stream = self.real.stream
        self.wakes_behind_gate = self.real.wakes_behind_gate
        self.wake_passes = self.real.wake_passes
        self.stamps_per_launch = self.real.stamps_per_launch
        self.stamps_at = self.real.stamps_at
        self.sums_at = self.real.sums_at
        if self.edit is not None and isinstance(self.real, GfxExecutor):
            self.real._kernel = self._edited(self.real._kernel.name, *self.edit)
        lease.executor = self

    @classmethod
    def breaks(cls, case: Case, slices: int) -> bool:
        """Say whether ``case``, whose source has that many slices, can be broken so."""
        return case.transfer.executor.kind in cls.letters

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        if self.letter == "G":
            self.real.launch(first_slice, passes, slot)
        else:
            self.queue(first_slice, passes, slot)

    def queue(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch(first_slice, passes, slot)

    def differs(self, seen: Check) -> Words:
        """Return (found xor expected) of every word of the destination."""
        return np.zeros(seen.words, dtype=np.uint32)

    def found(self, seen: Check) -> str:
        """Return how the check must name what it found, or how that begins."""
        return ""

    def guard_found(self, seen: Check) -> str:
        """Return where the guard zones must be said to be broken."""
        return ""

    @property
    def head(self) -> int:
        """How many words a kernel copies one by one before its vectors."""
        return (-self.lease.legs[0].destinations[0].data.pointer % 16) // 4

    def dma(self, destination_offset: int, source: int, nbytes: int) -> None:
        """Queue a copy of the D's own kind to so many bytes from the start of the destination."""
        assert self.stream is not None
        pointer = self.lease.legs[0].destinations[0].data.pointer + destination_offset
        self.lease.bench.runtime.dma_copy(pointer, source, nbytes, self.stream)

    def damage(self, first_byte: int, count: int, step: int, flip: int) -> None:
        """Queue a kernel that flips bits in ``count`` bytes of the destination, every ``step``-th."""
        assert self.stream is not None
        kernel = self._compiled("damage", "tb_damage", hipkernels.source("fill") + DAMAGE, {})
        pointer = np.uint64(self.lease.legs[0].destinations[0].data.pointer + first_byte)
        args = (pointer, np.uint64(count), np.uint64(step), np.uint32(flip))
        self.lease.bench.runtime.launch(kernel, min(64, -(-count // 256)), 256, args, self.stream)

    def _edited(self, kernel: str, old: str, new: str) -> Kernel:
        text = hipkernels.source("copy")
        assert old in text, f"copy.hip no longer says {old!r}"
        geometry = self.lease.geometry
        defines = {"TB_BLOCK": geometry.block_threads, "TB_UNROLL": geometry.unroll}
        return self._compiled(f"copy_{type(self).__name__}", kernel, text.replace(old, new), defines)

    def _compiled(self, name: str, kernel: str, text: str, defines: dict[str, int]) -> Kernel:
        device = self.lease.case.transfer.executor.index
        with patch.object(hipkernels, "source", lambda _: text):
            return self.lease.bench.runtime.compile(device, name, (kernel,), defines)[kernel]


class CopiesNothing(Mutant):
    """Runs and moves nothing."""

    edit = "span.words = nbytes / 4;", "span.words = 0;"

    def queue(self, first_slice: int, passes: int, slot: int) -> None:
        pass

    def differs(self, seen: Check) -> Words:
        return np.full(seen.words, 0xFFFFFFFF, dtype=np.uint32)

    def found(self, seen: Check) -> str:
        return f"poison (nothing was written) in {seen.words} words"


class _WrongSlice(Mutant, ABC):
    """Leaves another slice than it should."""

    @abstractmethod
    def shift(self) -> int:
        """Return how many slices further on it is."""

    @classmethod
    def breaks(cls, case: Case, slices: int) -> bool:
        return slices > 1 and super().breaks(case, slices)

    def slices(self, seen: Check) -> tuple[int, int]:
        """Return the slice found and the one expected; the latter is the check's own word."""
        expected = int(seen.found.partition(" instead of slice ")[2].partition(" ")[0])
        return (expected + self.shift()) % self.lease.plan.slices, expected

    def differs(self, seen: Check) -> Words:
        found, expected = (pattern.key_of(index, self.lease.nonce) for index in self.slices(seen))
        return np.full(seen.words, found ^ expected, dtype=np.uint32)

    def found(self, seen: Check) -> str:
        found, expected = self.slices(seen)
        return f"slice {found} instead of slice {expected} in {seen.words} words"


class ReadsTheSliceBefore(_WrongSlice):
    """Is one iteration late: the last launch reads what the one before it should have read."""

    edit = "slice = first_slice", "slice = (first_slice + slices - 1) % slices"

    def shift(self) -> int:
        return -1

    def queue(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch((first_slice - 1) % self.lease.plan.slices, passes, slot)


class LosesTheLastCopy(_WrongSlice):
    """Is one iteration late: the last launch of several never starts."""

    arm = "steady"

    @classmethod
    def breaks(cls, case: Case, slices: int) -> bool:
        return case.sub_iterations % slices != 0 and super().breaks(case, slices)

    def shift(self) -> int:
        return -self.lease.case.sub_iterations

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        if slot < self.lease.method.copies - 1:
            self.real.launch(first_slice, passes, slot)


class ReadsTheNextSlice(_WrongSlice):
    """Starts one slice too far: what a rotation off by one would do."""

    def shift(self) -> int:
        return 1

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch((first_slice + 1) % self.lease.plan.slices, passes, slot)


class StaysOnOneSlice(_WrongSlice):
    """Does not move on between the passes of one launch."""

    edit = "if (++slice == slices) slice = 0;", ""

    @classmethod
    def breaks(cls, case: Case, slices: int) -> bool:
        return (case.sub_iterations - 1) % slices != 0 and super().breaks(case, slices)

    def shift(self) -> int:
        return 1 - self.lease.case.sub_iterations

    def queue(self, first_slice: int, passes: int, slot: int) -> None:
        for _ in range(passes):
            self.real.launch(first_slice, 1, slot)


class FlipsOneBit(Mutant):
    """Copies rightly but for one bit of one word, which no glance looks at."""

    vector, bit = 309, 19
    edit = STORE, f"{{ held[u].y ^= (tb_u32)(i + u * stride == {vector}) << {bit}; {STORE} }}"

    def queue(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch(first_slice, passes, slot)
        self.damage(4 * self.word + self.bit // 8, 1, 1, 1 << self.bit % 8)

    @property
    def word(self) -> int:
        return self.head + 4 * self.vector + 1

    def differs(self, seen: Check) -> Words:
        words = super().differs(seen)
        words[self.word] = 1 << self.bit
        return words

    def found(self, seen: Check) -> str:
        return "neither poison nor any slice; the first wrong word is 0x"


class StopsOneWordShort(Mutant):
    """Copies all but the last word."""

    edit = "span.words = nbytes / 4;", "span.words = nbytes / 4 - 1;"

    def queue(self, first_slice: int, passes: int, slot: int) -> None:
        plan = self.lease.plan
        for step in range(passes):
            self.dma(0, self._source(first_slice + step), plan.nbytes - 4)

    def _source(self, pass_slice: int) -> int:
        return self.lease.legs[0].sources[0].pointer + pass_slice % self.lease.plan.slices * self.lease.plan.pitch

    def differs(self, seen: Check) -> Words:
        words = super().differs(seen)
        words[-1] = 0xFFFFFFFF
        return words

    def found(self, seen: Check) -> str:
        return "poison (nothing was written) in 1 words"


class WritesAByteBehind(Mutant):
    """Copies rightly, and overwrites the byte behind the last one."""

    edit = TAIL, f"{TAIL} if (thread == 0) destination[nbytes] = 0;"

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        home = Memory("G", lease.case.transfer.executor.index)
        self._stray = lease.bench.arena.take("stray", home, 256).pointer
        lease.bench.runtime.write(self._stray, bytes(256), home.index)

    def place(self, nbytes: int) -> int:
        """Return where the stray byte goes, in bytes from the start of the destination."""
        return nbytes

    def queue(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch(first_slice, passes, slot)
        self.dma(self.place(self.lease.plan.nbytes), self._stray, 1)

    def guard_found(self, seen: Check) -> str:
        word, byte = divmod(self.place(self.lease.plan.nbytes), 4)
        behind = word >= 0
        start = seen.words if behind else -self.lease.legs[0].destinations[0].guards[0].words
        was = pattern.hash_word(word - start) ^ guard_key(behind)
        side = "behind" if behind else "before"
        return f"{side} the data: first {word}, last {word}, mask 0x{was & 0xFF << 8 * byte:08x}"


class WritesAByteBefore(WritesAByteBehind):
    """Copies rightly, and overwrites the byte before the first one."""

    edit = TAIL, f"{TAIL} if (thread == 0) destination[-1] = 0;"

    def place(self, nbytes: int) -> int:
        return -1


class WritesAByteFarBehind(WritesAByteBehind):
    """Copies rightly, and overwrites a byte in the middle of the guard behind: no glance's stride comes there."""

    edit = TAIL, f"{TAIL} if (thread == 0) destination[nbytes + 2002] = 0;"

    def place(self, nbytes: int) -> int:
        return nbytes + 2002


class WritesAByteFarBefore(WritesAByteBehind):
    """Copies rightly, and overwrites a byte in the middle of the guard before."""

    edit = TAIL, f"{TAIL} if (thread == 0) destination[-2003] = 0;"

    def place(self, nbytes: int) -> int:
        return -2003


class SwapsTwoBlocks(Mutant):
    """The first two blocks of the kernel write each other's share, wherever both have one."""

    letters = "G"
    edit = (
        STORE,
        "to_vectors[i + u * stride + (thread < TB_BLOCK ? (i + u * stride + TB_BLOCK < span.vectors ? TB_BLOCK : 0)"
        " : thread < 2 * TB_BLOCK ? -TB_BLOCK : 0)] = held[u];",
    )

    def differs(self, seen: Check) -> Words:
        geometry = self.lease.geometry
        vectors = np.arange((seen.words - self.head) // 4, dtype=np.int64)
        member = vectors // geometry.block_threads % geometry.subexecutors
        came_from = vectors.copy()
        swapped = vectors[member == 1]
        came_from[swapped] = swapped - geometry.block_threads
        came_from[swapped - geometry.block_threads] = swapped
        words = np.arange(seen.words, dtype=np.int64)
        moved = words.copy()
        moved[self.head : self.head + 4 * vectors.size] = (
            self.head + 4 * came_from[:, None] + np.arange(4, dtype=np.int64)
        ).ravel()
        return pattern.words_at(moved, 0) ^ pattern.words_at(words, 0)

    def found(self, seen: Check) -> str:
        start = self.head + 4 * self.lease.geometry.block_threads
        return f"in the wrong place: word {start} at {self.head}"


class RemoteWritesCorrupt(Mutant):
    """Whatever is written to another GPU, or to the host, arrives with some bytes wrong; what is read is right."""

    bytes_wrong, first_byte, step, flip = 2_055_873, 12_345, 3, 0x80

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        super().launch(first_slice, passes, slot)
        if self.remote:
            self.damage(self.first_byte, self.bytes_wrong, self.step, self.flip)

    @property
    def remote(self) -> bool:
        transfer = self.lease.case.transfer
        return transfer.owner_of(transfer.destinations[0]) != transfer.executor.owner

    def differs(self, seen: Check) -> Words:
        words = super().differs(seen)
        last = self.first_byte + self.step * (self.bytes_wrong - 1)
        words.view(np.uint8)[self.first_byte : last + 1 : self.step] = self.flip
        return words

    def found(self, seen: Check) -> str:
        return "neither poison nor any slice; the first wrong word is 0x"


ALL: tuple[type[Mutant], ...] = (
    CopiesNothing,
    ReadsTheSliceBefore,
    LosesTheLastCopy,
    ReadsTheNextSlice,
    StaysOnOneSlice,
    FlipsOneBit,
    StopsOneWordShort,
    WritesAByteBehind,
    WritesAByteBefore,
    WritesAByteFarBehind,
    WritesAByteFarBefore,
    SwapsTwoBlocks,
)
"""Every mutation that needs no certain size."""

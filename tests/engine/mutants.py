"""Executors that break a transfer on purpose: the proof must catch each and name it."""

from __future__ import annotations

import numpy as np

from pytest_transferbench.engine import Lease, pattern
from pytest_transferbench.engine.executors import Executor, GfxExecutor, Operands
from pytest_transferbench.transfer import Memory, RotationPlan


class Mutant:
    """Stands in for a lease's executor and hands on to the real one what it does not break."""

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
        lease.executor = self

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch(first_slice, passes, slot)


class CopiesNothing(Mutant):
    """Queues nothing at all."""

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        pass


class ReadsTheNextSlice(Mutant):
    """Starts one slice too far: what a rotation off by one would do."""

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch((first_slice + 1) % self.lease.plan.slices, passes, slot)


class FlipsOneBit(Mutant):
    """Copies rightly, then overwrites one word of the destination with one bit of it flipped."""

    word, bit = 4 * 1237, 19

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        bench = lease.bench
        device = lease.case.transfer.executor.index
        self._context = bench.device(device)
        self._wrong_words = bench.arena.take("mutant", Memory("G", device), 16 * lease.plan.slices)
        stamps = bench.arena.take("mutant stamps", Memory("G", device), 4096)
        assert lease.destination is not None
        plan = RotationPlan(4, 0, 16, lease.plan.slices, 1)
        operands = Operands(self._wrong_words.pointer, lease.destination.data.pointer + 4 * self.word, 4, plan)
        shape = type(lease.geometry)(1, 256, 1)
        self._breaker = GfxExecutor(self._context, operands, shape, stamps.pointer)
        self._nonce = -1

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        if self._nonce != self.lease.nonce:
            self._nonce = self.lease.nonce
            words = np.zeros((self.lease.plan.slices, 4), dtype=np.uint32)
            for index in range(self.lease.plan.slices):
                right = pattern.hash_word(self.word) ^ pattern.key_of(index, self._nonce)
                words[index, 0] = right ^ (1 << self.bit)
            self.lease.bench.runtime.write(self._wrong_words.pointer, words.tobytes(), self._context.index)
        self.real.launch(first_slice, passes, slot)
        self._breaker.launch((first_slice + passes - 1) % self.lease.plan.slices, 1, 0)

"""Measuring on the virtual clock: a gate that holds streams while the host enqueues, and events around each piece."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tests.emulator.hip import SUCCESS, Hip

GATE = r"""
extern "C" __global__ void gate(const unsigned long long* flag, unsigned long long epoch) {
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) < epoch) {}
}
"""


class Gate:
    """Holds streams until everything is queued: what is behind it runs without waiting for the host."""

    def __init__(self, hip: Hip, word: ctypes.c_uint64) -> None:
        self.hip, self.word, self.epoch = hip, word, 0
        self.flag = ctypes.addressof(word)

    @contextmanager
    def hold(self, stream: int, device: int = 0) -> Iterator[None]:
        self.epoch += 1
        gate = self.hip.kernel(GATE, "gate", device=device)
        assert self.hip.launch(gate, 1, 1, self.flag, self.epoch, stream=stream) == SUCCESS
        yield
        self.word.value = self.epoch
        self.hip.ok("hipStreamSynchronize", stream)


def event_times(hip: Hip, gate: Gate, stream: int, work: list[object], device: int = 0) -> list[float]:
    """Queue an event, then each piece of work and an event; return what each took."""
    events = [hip.event(device) for _ in range(len(work) + 1)]
    with gate.hold(stream, device):
        hip.ok("hipEventRecord", events[0], stream)
        for piece, event in zip(work, events[1:], strict=True):
            assert piece() == SUCCESS  # type: ignore[operator]  # a list of calls of any kind
            hip.ok("hipEventRecord", event, stream)
    return [hip.elapsed_seconds(start, stop) for start, stop in itertools.pairwise(events)]

"""What the engine keeps open on one GPU: a stream, two events, compiled kernels and a little result memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytest_transferbench.node import Device
from pytest_transferbench.runtime import Kernel, Runtime, RuntimeFault, Stream
from pytest_transferbench.transfer import Memory

RESULT_BYTES = 4096
_PREPARATION_THREADS = 256
_KERNELS = {
    "fill": ("tb_fill",),
    "check": ("tb_poison", "tb_check", "tb_expected_sum"),
    "evict": ("tb_evict",),
    "gate": ("tb_gate", "tb_nothing", "tb_skew"),
}


def insist(step: Callable[[], None]) -> None:
    """Make one of the last calls, once more if it fails: one fault must keep no memory, and nothing can be told."""
    for _ in range(2):
        with contextlib.suppress(RuntimeFault):
            step()
            return


class DeviceContext:
    """One GPU, opened for measuring. Kernels are compiled when first asked for, never inside a timed region."""

    def __init__(self, runtime: Runtime, device: Device) -> None:
        self.runtime = runtime
        self.device = device
        self.stream = runtime.open_stream(device.index)
        self.waking = runtime.create_event(device.index)
        self.start = runtime.create_event(device.index)
        self.stop = runtime.create_event(device.index)
        self.results = runtime.allocate(Memory("G", device.index), RESULT_BYTES)
        self._second_stream: Stream | None = None
        self._preparation: dict[str, Kernel] = {}

    @property
    def index(self) -> int:
        return self.device.index

    @property
    def second_stream(self) -> Stream:
        """A stream of its own for what runs beside :attr:`stream`, opened when first asked for."""
        if self._second_stream is None:
            self._second_stream = self.runtime.open_stream(self.index)
        return self._second_stream

    def kernel(self, source: str, name: str, **defines: int) -> Kernel:
        """Return kernel ``name`` of ``hipkernels/<source>.hip`` compiled with ``defines``."""
        return self.runtime.compile(self.index, source, (name,), defines)[name]

    def prepare(self, name: str, args: Sequence[Any], work_items: int) -> None:
        """Queue a preparation kernel (fill, poison, check, evict) with a grid that suits ``work_items``."""
        blocks = -(-work_items // (4 * _PREPARATION_THREADS))
        self.prepare_grid(name, args, max(1, min(4 * self.device.compute_units, blocks)))

    def prepare_grid(self, name: str, args: Sequence[Any], blocks: int) -> None:
        """Queue a preparation kernel with a grid of ``blocks``."""
        self.runtime.launch(self._preparation_kernel(name), blocks, _PREPARATION_THREADS, args, self.stream)

    def launch_single(self, name: str, blocks: int, args: Sequence[Any]) -> None:
        """Queue a kernel of one-thread blocks: the gate and its kin."""
        self.runtime.launch(self._preparation_kernel(name), blocks, 1, args, self.stream)

    def synchronize(self) -> None:
        self.runtime.synchronize(self.stream)

    def read_words(self, pointer: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Return ``count`` 64-bit words of device memory; blocking."""
        return np.frombuffer(self.runtime.read(pointer, 8 * count, self.index), dtype=np.uint64)

    def write_words(self, pointer: int, words: Sequence[int]) -> None:
        """Write 64-bit words to device memory; blocking."""
        self.runtime.write(pointer, np.array(words, dtype=np.uint64).tobytes(), self.index)

    def close(self) -> None:
        """Wait for the stream and give everything back that can be; raises nothing."""
        insist(self.synchronize)
        insist(lambda: self.runtime.free(self.results))
        insist(lambda: self.runtime.destroy_event(self.waking))
        insist(lambda: self.runtime.destroy_event(self.start))
        insist(lambda: self.runtime.destroy_event(self.stop))
        for stream in (self.stream, self._second_stream):
            if stream is not None:
                insist(functools.partial(self.runtime.close_stream, stream))

    def _preparation_kernel(self, name: str) -> Kernel:
        if name not in self._preparation:
            source = next(source for source, names in _KERNELS.items() if name in names)
            self._preparation.update(self.runtime.compile(self.index, source, _KERNELS[source], {}))
        return self._preparation[name]

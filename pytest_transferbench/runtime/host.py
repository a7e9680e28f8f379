"""Work of the host itself: its memory, its copies, its clock. Needs numpy only, never a GPU."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from pytest_transferbench.node import HOST
from pytest_transferbench.runtime.protocol import Allocation, Copy, Kernel, RuntimeFault, Stream
from pytest_transferbench.transfer import Memory

_PAGE_BYTES = 4096


class HostWork(Protocol):
    """What a runtime asks of the host; an emulated node has its own, which moves the virtual clock too."""

    def copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        """Copy the one source, or the float32 sum of several, to every destination and return when all is there."""
        ...

    def clock(self) -> float:
        """Seconds of a monotonic clock."""
        ...

    def close(self) -> None:
        """Release what :meth:`copy` keeps."""
        ...


class RealHost:
    """The machine's own processors."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._pool_threads = 0

    def copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        """Work in ``threads`` page-aligned pieces; ctypes and NumPy give the interpreter lock up meanwhile."""
        pieces = _pieces(nbytes, threads)
        if len(pieces) == 1:
            _copy_piece(destinations, sources, 0, nbytes)
            return
        if self._pool is None or self._pool_threads < len(pieces):
            self.close()
            self._pool, self._pool_threads = ThreadPoolExecutor(len(pieces), "transferbench-copy"), len(pieces)
        jobs = [self._pool.submit(_copy_piece, destinations, sources, offset, length) for offset, length in pieces]
        for job in jobs:
            job.result()

    def clock(self) -> float:
        return time.perf_counter()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _copy_piece(destinations: Sequence[int], sources: Sequence[int], offset: int, length: int) -> None:
    source, *more = (source + offset for source in sources)
    first, *others = (destination + offset for destination in destinations)
    if more:
        total = _numbers(first, length)
        np.add(_numbers(source, length), _numbers(more[0], length), out=total)
        for each in more[1:]:
            total += _numbers(each, length)
        source = first
    else:
        ctypes.memmove(first, source, length)
    for other in others:
        ctypes.memmove(other, source, length)


def _numbers(pointer: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return host_words(pointer, nbytes).view(np.float32)


def _pieces(nbytes: int, threads: int) -> list[tuple[int, int]]:
    """Split ``nbytes`` into at most ``threads`` (offset, length) pieces that start on page boundaries."""
    pages = -(-nbytes // _PAGE_BYTES)
    step = -(-pages // max(1, threads)) * _PAGE_BYTES
    return [(offset, min(step, nbytes - offset)) for offset in range(0, nbytes, step)] or [(0, 0)]


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the memory that the kernel would give away without swapping; 0 where it does not say."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    kibibytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), "0")
    return int(kibibytes) * 1024


def host_words(pointer: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return host memory as 32-bit words, in place; it must outlive the array."""
    return np.frombuffer(memoryview((ctypes.c_ubyte * nbytes).from_address(pointer)), dtype=np.uint32)


def require_host_index(memory: Memory) -> None:
    """Refuse host memory of a NUMA node that nothing here would place it on, rather than measure another."""
    if memory.index != 0:
        raise RuntimeFault(
            "allocate", HOST, "unsupported", f"{memory}: host memory is C0; it is not bound to a NUMA node"
        )


class HostRuntime:
    """A machine without a GPU: host memory and host copies, measured for real. Every device call is a fault."""

    name = "host"
    emulated = False

    def __init__(self, why_no_gpu: str = "no GPU") -> None:
        self._why_no_gpu = why_no_gpu
        self._host = RealHost()
        self._arrays: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def allocate(self, memory: Memory, nbytes: int) -> Allocation:
        """Return page-aligned host memory; without a GPU nothing needs it pinned."""
        if memory.on != "host":
            self._refuse("allocate", memory.index)
        require_host_index(memory)
        try:
            array = np.empty(nbytes + _PAGE_BYTES, dtype=np.uint8)
        except MemoryError as error:
            raise RuntimeFault("allocate", HOST, "MemoryError", f"{nbytes} bytes: {error}") from error
        pointer = -(-array.ctypes.data // _PAGE_BYTES) * _PAGE_BYTES
        self._arrays[pointer] = array
        return Allocation(pointer, nbytes, memory, HOST)

    def owner_of(self, pointer: int) -> int:
        return HOST

    def free(self, allocation: Allocation) -> None:
        if self._arrays.pop(allocation.pointer, None) is None:
            raise RuntimeFault("free", HOST, "invalid value", f"{allocation.pointer:#x} was not allocated here")

    def clear(self, pointer: int, nbytes: int, stream: Stream) -> None:
        self._refuse("clear", stream.device)

    def array(self, allocation: Allocation, offset: int, nbytes: int) -> Any:
        return host_words(allocation.pointer + offset, nbytes)

    def read(self, pointer: int, nbytes: int, device: int) -> bytes:
        self._need_host("read", device)
        return ctypes.string_at(pointer, nbytes)

    def write(self, pointer: int, data: bytes, device: int) -> None:
        self._need_host("write", device)
        ctypes.memmove(pointer, data, len(data))

    def host_copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        self._host.copy(destinations, sources, nbytes, threads)

    def host_clock(self) -> float:
        return self._host.clock()

    def free_bytes(self, device: int) -> int:
        self._need_host("free_bytes", device)
        return available_bytes()

    def close(self) -> None:
        self._arrays.clear()
        self._host.close()

    def enable_peer(self, device: int, peer: int) -> None:
        self._refuse("enable_peer", device)

    def open_stream(self, device: int) -> Stream:
        self._refuse("open_stream", device)

    def close_stream(self, stream: Stream) -> None:
        self._refuse("close_stream", stream.device)

    def create_event(self, device: int) -> int:
        self._refuse("create_event", device)

    def destroy_event(self, event: int) -> None:
        self._refuse("destroy_event", HOST)

    def record(self, event: int, stream: Stream) -> None:
        self._refuse("record", stream.device)

    def wait_event(self, stream: Stream, event: int) -> None:
        self._refuse("wait_event", stream.device)

    def finished(self, event: int) -> bool:
        self._refuse("finished", HOST)

    def elapsed_seconds(self, start: int, stop: int) -> float:
        self._refuse("elapsed_seconds", HOST)

    def synchronize(self, stream: Stream) -> None:
        self._refuse("synchronize", stream.device)

    def compile(
        self, device: int, source: str, kernels: Sequence[str], defines: Mapping[str, str | int]
    ) -> dict[str, Kernel]:
        self._refuse("compile", device)

    def launch(self, kernel: Kernel, grid: int, block: int, args: Sequence[Any], stream: Stream) -> None:
        self._refuse("launch", kernel.device)

    def dma_copy(self, destination: int, source: int, nbytes: int, stream: Stream) -> None:
        self._refuse("dma_copy", stream.device)

    def batch_copy(self, copies: Sequence[Copy], stream: Stream) -> None:
        self._refuse("batch_copy", stream.device)

    def capture(self, stream: Stream, queue: Callable[[], None]) -> Callable[[], None]:
        self._refuse("capture", stream.device)

    def stamp_hz(self, device: int) -> float:
        self._refuse("stamp_hz", device)

    def deadline_hz(self, device: int) -> float:
        self._refuse("deadline_hz", device)

    def _need_host(self, call: str, device: int) -> None:
        if device != HOST:
            self._refuse(call, device)

    def _refuse(self, call: str, device: int) -> NoReturn:
        raise RuntimeFault(call, device, "no GPU", self._why_no_gpu)

"""Work of the host itself: its memory, its copies, its clock. Needs numpy only, never a GPU."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import numa
from pytest_transferbench.runtime.host_facts import NUMA_NODES
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

    numa_root: Path
    """Where the kernel shows the NUMA nodes."""

    def preferring(self, numa_node: int) -> AbstractContextManager[None]:
        """Take memory from one NUMA node meanwhile; raises ``OSError`` for a node that there is not."""
        ...

    def map(self, nbytes: int, numa_node: int) -> int:
        """Return unpinned memory that is there; raises ``OSError``, and ``MemoryError`` where there is none left."""
        ...

    def unmap(self, pointer: int) -> None:
        """Give memory of :meth:`map` back; raises ``KeyError`` for any other."""
        ...

    def pages_by_place(self, pointer: int, nbytes: int) -> Mapping[int, int]:
        """Return how many pages lie on each NUMA node, as :func:`numa.pages_by_place`; raises ``OSError``."""
        ...

    def close(self) -> None:
        """Release what :meth:`copy` and :meth:`map` keep."""
        ...


class RealHost:
    """The machine's own processors."""

    numa_root = NUMA_NODES

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._pool_threads = 0
        self._mappings = numa.Mappings()

    def copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        """Work in ``threads`` page-aligned pieces; ctypes and NumPy give the interpreter lock up meanwhile."""
        pieces = _pieces(nbytes, threads)
        if len(pieces) == 1:
            _copy_piece(destinations, sources, 0, nbytes)
            return
        if self._pool is None or self._pool_threads < len(pieces):
            self._end_threads()
            self._pool, self._pool_threads = ThreadPoolExecutor(len(pieces), "transferbench-copy"), len(pieces)
        jobs = [self._pool.submit(_copy_piece, destinations, sources, offset, length) for offset, length in pieces]
        for job in jobs:
            job.result()

    def clock(self) -> float:
        return time.perf_counter()

    def preferring(self, numa_node: int) -> AbstractContextManager[None]:
        return numa.preferring(numa_node)

    def map(self, nbytes: int, numa_node: int) -> int:
        return self._mappings.map(nbytes, numa_node)

    def unmap(self, pointer: int) -> None:
        self._mappings.unmap(pointer)

    def pages_by_place(self, pointer: int, nbytes: int) -> Mapping[int, int]:
        return numa.pages_by_place(pointer, nbytes)

    def close(self) -> None:
        self._end_threads()
        self._mappings.clear()

    def _end_threads(self) -> None:
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


def allocate_unpinned(host: HostWork, memory: Memory, nbytes: int, numa_node: int) -> Allocation:
    """Return memory of a NUMA node that nobody has pinned; raises RuntimeFault, also when it lies elsewhere."""
    try:
        pointer = host.map(nbytes, numa_node)
    except MemoryError as error:
        raise RuntimeFault("allocate", HOST, "MemoryError", f"{nbytes} bytes: {error}") from error
    except OSError as error:
        raise numa.refused(memory, numa_node, error) from error
    try:
        return seen_on_node(host, Allocation(pointer, nbytes, memory, HOST), numa_node)
    except RuntimeFault:
        host.unmap(pointer)
        raise


def seen_on_node(host: HostWork, allocation: Allocation, numa_node: int) -> Allocation:
    """Return host memory with what could not be seen of its place; raises RuntimeFault for pages on another node."""
    try:
        places = host.pages_by_place(allocation.pointer, allocation.nbytes)
    except OSError as error:
        return dataclasses.replace(allocation, unchecked=numa.why_denied(error))
    return dataclasses.replace(allocation, unchecked=numa.check_on_node(allocation.memory, numa_node, places))


class HostRuntime:
    """A machine without a GPU: host memory and host copies, measured for real. Every device call is a fault."""

    name = "host"
    emulated = False

    def __init__(self, why_no_gpu: str = "no GPU") -> None:
        self._why_no_gpu = why_no_gpu
        self._host = RealHost()

    def allocate(self, memory: Memory, nbytes: int) -> Allocation:
        """Return page-aligned host memory; without a GPU nothing needs it pinned."""
        if memory.on != "host":
            self._refuse("allocate", memory.index)
        if memory.kind not in ("C", "H"):
            raise RuntimeFault("allocate", HOST, "unsupported", f"{memory}: without a GPU host memory is C or H")
        return allocate_unpinned(self._host, memory, nbytes, memory.index)

    def owner_of(self, pointer: int) -> int:
        return HOST

    def free(self, allocation: Allocation) -> None:
        try:
            self._host.unmap(allocation.pointer)
        except KeyError:
            raise RuntimeFault(
                "free", HOST, "invalid value", f"{allocation.pointer:#x} was not allocated here"
            ) from None

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

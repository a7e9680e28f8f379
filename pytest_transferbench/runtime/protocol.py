"""What the engine asks of a GPU runtime, and nothing more.

One adapter each for ROCm, CUDA and a machine without a GPU. Pointers are plain integers; a device is an index
inside the visible set, :data:`~pytest_transferbench.node.HOST` is the host. Every failing call raises
:class:`RuntimeFault` with the call, the device and the code in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pytest_transferbench.transfer import Memory


class RuntimeFault(Exception):  # noqa: N818 - a fault is a device's, an error would be ours
    """A device call failed: ``call``, ``device``, ``code`` as the runtime names it, and its own words."""

    def __init__(self, call: str, device: int, code: str, message: str = "") -> None:
        self.call, self.device, self.code, self.message = call, device, code, message
        super().__init__(f"{call} on {'the host' if device < 0 else f'GPU {device}'} failed: {code} {message}".rstrip())

    @property
    def out_of_memory(self) -> bool:
        """Whether it was memory that there was too little of."""
        return self.code in ("hipErrorOutOfMemory", "cudaErrorMemoryAllocation", "MemoryError")


@dataclass(frozen=True)
class Allocation:
    """``nbytes`` bytes at ``pointer``; ``owner`` is the device that homes them, or ``HOST``.

    ``unchecked`` says why nobody could see where they lie; it is empty where they were seen in the right place.
    """

    pointer: int
    nbytes: int
    memory: Memory
    owner: int
    unchecked: str = ""


@dataclass(frozen=True)
class Stream:
    """An in-order queue of ``device``; ``handle`` is the runtime's own pointer."""

    device: int
    handle: int


class Copy(NamedTuple):
    """One of the copies of a batch: addresses and bytes."""

    destination: int
    source: int
    nbytes: int


class Kernel(Protocol):
    """A compiled entry point of one device; ``defines`` were fixed at compile time."""

    name: str
    device: int


class Runtime(Protocol):
    """The calls a measurement is made of. Adapters keep no state a case could see but what it allocated."""

    name: str
    emulated: bool

    def allocate(self, memory: Memory, nbytes: int) -> Allocation:
        """Return fresh memory of that kind, at least 256-byte aligned.

        Raises RuntimeFault when there is none, and for host or managed memory that lies elsewhere than asked for.
        """
        ...

    def owner_of(self, pointer: int) -> int:
        """Return the device that the runtime says homes ``pointer``, which is in device memory."""
        ...

    def free(self, allocation: Allocation) -> None:
        """Give memory back. The caller has synchronised every stream that used it."""
        ...

    def enable_peer(self, device: int, peer: int) -> None:
        """Let kernels of ``device`` touch memory of ``peer``; once is enough, a repeat is harmless."""
        ...

    def open_stream(self, device: int) -> Stream:
        """Return a new non-blocking stream."""
        ...

    def close_stream(self, stream: Stream) -> None: ...

    def create_event(self, device: int) -> int:
        """Return a timing event of ``device``."""
        ...

    def destroy_event(self, event: int) -> None: ...

    def record(self, event: int, stream: Stream) -> None: ...

    def wait_event(self, stream: Stream, event: int) -> None:
        """Make ``stream`` wait for ``event``, which may belong to another device."""
        ...

    def finished(self, event: int) -> bool:
        """Say whether everything before a recorded event is done, without waiting."""
        ...

    def elapsed_seconds(self, start: int, stop: int) -> float:
        """Seconds between two recorded, finished events of one device."""
        ...

    def synchronize(self, stream: Stream) -> None: ...

    def compile(
        self, device: int, source: str, kernels: Sequence[str], defines: Mapping[str, str | int]
    ) -> dict[str, Kernel]:
        """Compile and load ``hipkernels/<source>`` for ``device``; the same request is compiled once a process."""
        ...

    def launch(self, kernel: Kernel, grid: int, block: int, args: Sequence[Any], stream: Stream) -> None:
        """Queue a kernel; ``args`` are numpy scalars (``np.uint64`` for pointers and counts, ``np.uint32``)."""
        ...

    def dma_copy(self, destination: int, source: int, nbytes: int, stream: Stream) -> None:
        """Queue a copy by the DMA engine of ``stream.device`` (on ROCm: kind 1024, DeviceToDeviceNoCU)."""
        ...

    def batch_copy(self, copies: Sequence[Copy], stream: Stream) -> None:
        """Queue all copies with one call; they may run in any order, or at the same time."""
        ...

    def capture(self, stream: Stream, queue: Callable[[], None]) -> Callable[[], None]:
        """Capture what ``queue`` queues on ``stream`` as a graph; the returned call replays it on that stream."""
        ...

    def clear(self, pointer: int, nbytes: int, stream: Stream) -> None:
        """Queue zeros into ``nbytes`` bytes of device memory."""
        ...

    def array(self, allocation: Allocation, offset: int, nbytes: int) -> Any:
        """Return part of an allocation as a 1-d ``uint32`` array: CuPy on a device, NumPy on the host; no copy."""
        ...

    def read(self, pointer: int, nbytes: int, device: int) -> bytes:
        """Blocking copy of device or pinned memory into host bytes, by the copy engine."""
        ...

    def write(self, pointer: int, data: bytes, device: int) -> None:
        """Blocking copy of host bytes to ``pointer``."""
        ...

    def host_copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        """Copy the one source, or the float32 sum of several, to every destination with ``threads`` host threads.

        Blocking; on an emulated node it also moves the virtual clock.
        """
        ...

    def host_clock(self) -> float:
        """Seconds of a monotonic host clock; virtual on an emulated node."""
        ...

    def stamp_hz(self, device: int) -> float:
        """Ticks per second of the in-kernel stamps; 0 is returned as it is, for the engine to refuse."""
        ...

    def deadline_hz(self, device: int) -> float:
        """Ticks per second of the clock behind in-kernel deadlines, always a real one."""
        ...

    def free_bytes(self, device: int) -> int: ...

    def close(self) -> None:
        """Release streams and modules; called once, at the end of the session."""
        ...

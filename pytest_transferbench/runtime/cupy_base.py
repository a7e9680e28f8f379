"""What the ROCm and the CUDA adapter share: everything CuPy does alike on both.

The current device is set by every call that needs one and left there: an enqueue under a closed gate costs as
little as it can, and whoever holds the session puts the user's device back.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import numa
from pytest_transferbench.runtime.host import HostWork, allocate_unpinned, available_bytes, host_words, seen_on_node
from pytest_transferbench.runtime.protocol import Allocation, Copy, Kernel, RuntimeFault, Stream
from pytest_transferbench.transfer import Memory, memory_kind

PEER_ALREADY_ENABLED = 704
"""``cudaErrorPeerAccessAlreadyEnabled`` and ``hipErrorPeerAccessAlreadyEnabled``: one number on both."""

COPY_KIND_DEFAULT = 4
"""``cudaMemcpyDefault`` and ``hipMemcpyDefault``: the pointers tell where they are."""


ADVICE_PREFERRED_LOCATION = 3
"""``cudaMemAdviseSetPreferredLocation`` and ``hipMemAdviseSetPreferredLocation``."""

ATTACH_GLOBAL = 1
"""``cudaMemAttachGlobal`` and ``hipMemAttachGlobal``."""

NOT_READY = 600
"""``cudaErrorNotReady`` and ``hipErrorNotReady``."""


@dataclass(frozen=True)
class CupyStream(Stream):
    """A stream that CuPy's launch takes as it is: it asks for nothing but ``ptr``."""

    @property
    def ptr(self) -> int:
        return self.handle


@dataclass(slots=True)
class LoadedKernel:
    """An entry point in a loaded module; ``function`` is CuPy's handle of it on ``device``."""

    name: str
    device: int
    function: Any


class CapturedGraph:
    """A replay of what was captured; the executable graph is destroyed with this object."""

    def __init__(self, cuda: Any, prefix: str, executable: int, stream: Stream) -> None:
        self._cuda, self._prefix, self._executable, self._stream = cuda, prefix, executable, stream
        weakref.finalize(self, _destroy_graph, cuda, executable)

    def __call__(self) -> None:
        try:
            self._cuda.graphLaunch(self._executable, self._stream.handle)
        except RuntimeError as error:
            raise fault(f"{self._prefix}GraphLaunch", self._stream.device, error) from error


def _destroy_graph(cuda: Any, executable: int) -> None:
    with contextlib.suppress(RuntimeError):  # of a device that is lost nothing can be given back
        cuda.graphExecDestroy(executable)


OUT_OF_MEMORY_ADVICE = "use smaller sizes (--transfer-sizes) or a smaller rotation (--transfer-rotate)"


def fault(call: str, device: int, error: Exception, detail: str = "") -> RuntimeFault:
    """Turn CuPy's exception into ours: its text is ``<code name>: <words>`` for every runtime and driver error."""
    text = str(error).strip()
    code, _, message = text.partition(": ")
    if not hasattr(error, "status"):
        code, message = type(error).__name__, text
    return RuntimeFault(call, device, code, f"{message} {detail}".strip())


class CupyRuntime(ABC):
    """Base of the two GPU adapters; ``prefix`` is how the vendor's calls begin (``cuda``, ``hip``)."""

    name: str
    prefix: str
    pinned_call: str
    free_pinned_call: str
    look_up_call: str
    launch_call: str
    """What the vendor calls what CuPy makes of these; the others are named alike behind the prefix."""
    emulated = False

    def __init__(self, host: HostWork, closest_numa_nodes: Mapping[int, int | None] = MappingProxyType({})) -> None:
        from cupy.cuda import runtime

        self._cuda: Any = runtime
        self._host = host
        self._closest_numa_nodes = closest_numa_nodes
        self._unpinned: dict[int, int] = {}
        self._streams: dict[int, CupyStream] = {}
        self._events: dict[int, int] = {}
        self._modules: dict[tuple[int, str, tuple[tuple[str, str], ...]], Any] = {}
        self._kernels: dict[tuple[int, str, tuple[tuple[str, str], ...], str], LoadedKernel] = {}

    def allocate(self, memory: Memory, nbytes: int) -> Allocation:
        if memory.on == "host":
            return self._allocate_host(memory, nbytes)
        if memory.on != "device":
            raise RuntimeFault("allocate", HOST, "unsupported", f"{memory} is no memory at all")
        self._use(memory.index)
        try:
            pointer = self._allocate_device(memory, nbytes)
        except RuntimeError as error:
            call = getattr(error, "call", f"{self.prefix}Malloc")  # hip-python's errors know theirs
            raise self._not_allocated(call, memory.index, error, nbytes) from error
        found = Allocation(pointer, nbytes, memory, memory.index)
        if memory.kind == "M":
            self._bring_home(found)
        return found

    def _allocate_host(self, memory: Memory, nbytes: int) -> Allocation:
        numa_node = self._numa_node(memory)
        if not memory_kind(memory.kind).pinned:
            found = allocate_unpinned(self._host, memory, nbytes, numa_node)
            self._unpinned[found.pointer] = found.pointer + nbytes
            return found
        try:
            with self._host.preferring(numa_node):
                pointer = self._allocate_pinned(memory, nbytes)
        except RuntimeError as error:
            raise self._not_allocated(self.pinned_call, HOST, error, nbytes) from error
        except OSError as error:
            raise numa.refused(memory, numa_node, error) from error
        found = Allocation(pointer, nbytes, memory, HOST)
        try:
            numa.touch(pointer, nbytes)
            return seen_on_node(self._host, found, numa_node)
        except RuntimeFault:
            self.free(found)
            raise

    def _numa_node(self, memory: Memory) -> int:
        if not memory_kind(memory.kind).by_gpu:
            return memory.index
        closest = self._closest_numa_nodes.get(memory.index)
        if closest is None:
            raise RuntimeFault(
                "allocate", HOST, "unsupported", f"{memory}: nobody knows the NUMA node closest to GPU {memory.index}"
            )
        return closest

    def _bring_home(self, managed: Allocation) -> None:
        """Move managed memory to its GPU for good, and see that the host has kept no page of it."""
        home, call = managed.owner, f"{self.prefix}MemAdvise"
        try:
            self._cuda.memAdvise(managed.pointer, managed.nbytes, ADVICE_PREFERRED_LOCATION, home)
            call = f"{self.prefix}MemPrefetchAsync"
            self._cuda.memPrefetchAsync(managed.pointer, managed.nbytes, home, 0)
            self.synchronize(CupyStream(home, 0))
            with contextlib.suppress(OSError):  # where the kernel does not tell, the prefetch is believed
                places = self._host.pages_by_place(managed.pointer, managed.nbytes)
                numa.check_off_host(managed.memory, places, self._host.numa_root)
        except RuntimeError as error:
            self.free(managed)
            raise fault(call, home, error, f"({managed.memory})") from error
        except RuntimeFault:
            self.free(managed)
            raise

    def owner_of(self, pointer: int) -> int:
        # Of CuPy's attributes only the device is right on ROCm; its memory type is off by one there.
        try:
            return int(self._cuda.pointerGetAttributes(pointer).device)
        except RuntimeError as error:
            raise fault(f"{self.prefix}PointerGetAttributes", self._current(), error) from error

    def free(self, allocation: Allocation) -> None:
        try:
            if allocation.pointer in self._unpinned:
                self._host.unmap(allocation.pointer)
                del self._unpinned[allocation.pointer]
            elif allocation.owner == HOST:
                self._cuda.freeHost(allocation.pointer)
            else:
                self._use(allocation.owner)
                self._cuda.free(allocation.pointer)
        except RuntimeError as error:
            call = self.free_pinned_call if allocation.owner == HOST else f"{self.prefix}Free"
            raise fault(call, allocation.owner, error) from error

    def enable_peer(self, device: int, peer: int) -> None:
        self._use(device)
        try:
            self._cuda.deviceEnablePeerAccess(peer)
        except RuntimeError as error:
            if getattr(error, "status", None) != PEER_ALREADY_ENABLED:
                raise fault(f"{self.prefix}DeviceEnablePeerAccess", device, error, f"(to GPU {peer})") from error

    def open_stream(self, device: int) -> Stream:
        self._use(device)
        try:
            handle = self._cuda.streamCreateWithFlags(self._cuda.streamNonBlocking)
        except RuntimeError as error:
            raise fault(f"{self.prefix}StreamCreateWithFlags", device, error) from error
        stream = CupyStream(device, handle)
        self._streams[handle] = stream
        return stream

    def close_stream(self, stream: Stream) -> None:
        try:
            self._cuda.streamDestroy(stream.handle)
        except RuntimeError as error:
            raise fault(f"{self.prefix}StreamDestroy", stream.device, error) from error
        del self._streams[stream.handle]

    def create_event(self, device: int) -> int:
        self._use(device)
        try:
            event = int(self._cuda.eventCreate())
        except RuntimeError as error:
            raise fault(f"{self.prefix}EventCreate", device, error) from error
        self._events[event] = device
        return event

    def destroy_event(self, event: int) -> None:
        try:
            self._cuda.eventDestroy(event)
        except RuntimeError as error:
            raise fault(f"{self.prefix}EventDestroy", self._events[event], error) from error
        del self._events[event]

    def record(self, event: int, stream: Stream) -> None:
        try:
            self._cuda.eventRecord(event, stream.handle)
        except RuntimeError as error:
            raise fault(f"{self.prefix}EventRecord", stream.device, error) from error

    def wait_event(self, stream: Stream, event: int) -> None:
        try:
            self._cuda.streamWaitEvent(stream.handle, event)
        except RuntimeError as error:
            raise fault(f"{self.prefix}StreamWaitEvent", stream.device, error) from error

    def finished(self, event: int) -> bool:
        status = self._cuda.eventQuery(event)
        if status == NOT_READY:
            return False
        try:
            self._cuda.check_status(status)
        except RuntimeError as error:
            raise fault(f"{self.prefix}EventQuery", self._events[event], error) from error
        return True

    def elapsed_seconds(self, start: int, stop: int) -> float:
        try:
            return float(self._cuda.eventElapsedTime(start, stop)) * 1e-3
        except RuntimeError as error:
            raise fault(f"{self.prefix}EventElapsedTime", self._events[start], error) from error

    def synchronize(self, stream: Stream) -> None:
        try:
            self._cuda.streamSynchronize(stream.handle)
        except RuntimeError as error:
            raise fault(f"{self.prefix}StreamSynchronize", stream.device, error) from error

    def compile(
        self, device: int, source: str, kernels: Sequence[str], defines: Mapping[str, str | int]
    ) -> dict[str, Kernel]:
        settings = tuple(sorted((name, str(value)) for name, value in defines.items()))
        self._use(device)
        module = self._modules.get((device, source, settings))
        if module is None:
            options = ("-std=c++17", *(f"-D{name}={value}" for name, value in settings))
            module = self._modules[device, source, settings] = self._load(device, source, options)
        found: dict[str, Kernel] = {}
        for name in kernels:
            key = (device, source, settings, name)
            if key not in self._kernels:
                self._kernels[key] = LoadedKernel(name, device, self._function(module, name, device))
            found[name] = self._kernels[key]
        return found

    def launch(self, kernel: Kernel, grid: int, block: int, args: Sequence[Any], stream: Stream) -> None:
        loaded = cast(LoadedKernel, kernel)
        self._use(loaded.device)
        try:
            loaded.function((grid,), (block,), args, 0, stream)
        except RuntimeError as error:
            raise fault(f"{self.launch_call} of {loaded.name}", loaded.device, error) from error

    def clear(self, pointer: int, nbytes: int, stream: Stream) -> None:
        self._use(stream.device)
        try:
            self._cuda.memsetAsync(pointer, 0, nbytes, stream.handle)
        except RuntimeError as error:
            raise fault(f"{self.prefix}MemsetAsync", stream.device, error) from error

    @abstractmethod
    def dma_copy(self, destination: int, source: int, nbytes: int, stream: Stream) -> None: ...

    @abstractmethod
    def batch_copy(self, copies: Sequence[Copy], stream: Stream) -> None: ...

    @abstractmethod
    def stamp_hz(self, device: int) -> float: ...

    @abstractmethod
    def deadline_hz(self, device: int) -> float: ...

    def capture(self, stream: Stream, queue: Callable[[], None]) -> Callable[[], None]:
        self._use(stream.device)
        try:
            self._cuda.streamBeginCapture(stream.handle)
            try:
                queue()
            except BaseException:
                with contextlib.suppress(
                    RuntimeError
                ):  # the stream must leave capture; the first fault is the one told
                    self._cuda.graphDestroy(self._cuda.streamEndCapture(stream.handle))
                raise
            graph = self._cuda.streamEndCapture(stream.handle)
            try:
                executable = self._cuda.graphInstantiate(graph)
            finally:
                self._cuda.graphDestroy(graph)
        except RuntimeError as error:
            raise fault(f"{self.prefix}Graph capture", stream.device, error) from error
        return CapturedGraph(self._cuda, self.prefix, executable, stream)

    def array(self, allocation: Allocation, offset: int, nbytes: int) -> Any:
        if allocation.owner == HOST:
            return host_words(allocation.pointer + offset, nbytes)
        import cupy

        self._use(allocation.owner)
        memory = cupy.cuda.UnownedMemory(allocation.pointer, allocation.nbytes, allocation, allocation.owner)
        return cupy.ndarray((nbytes // 4,), cupy.uint32, cupy.cuda.MemoryPointer(memory, offset))

    def read(self, pointer: int, nbytes: int, device: int) -> bytes:
        if device == HOST:
            return ctypes.string_at(pointer, nbytes)
        self._use(device)
        data = np.empty(nbytes, dtype=np.uint8)
        try:
            self._cuda.memcpy(data.ctypes.data, pointer, nbytes, COPY_KIND_DEFAULT)
        except RuntimeError as error:
            raise fault(f"{self.prefix}Memcpy", device, error) from error
        return data.tobytes()

    def write(self, pointer: int, data: bytes, device: int) -> None:
        if device == HOST:
            ctypes.memmove(pointer, data, len(data))
            return
        self._use(device)
        source = np.frombuffer(data, dtype=np.uint8)
        try:
            self._cuda.memcpy(pointer, source.ctypes.data, len(data), COPY_KIND_DEFAULT)
        except RuntimeError as error:
            raise fault(f"{self.prefix}Memcpy", device, error) from error
        # A copy from pageable memory may return once it is staged; "blocking" here means that it arrived.
        self.synchronize(CupyStream(device, 0))

    def host_copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        self._host.copy(destinations, sources, nbytes, threads)

    def host_clock(self) -> float:
        return self._host.clock()

    def free_bytes(self, device: int) -> int:
        if device == HOST:
            return available_bytes()
        self._use(device)
        try:
            return int(self._cuda.memGetInfo()[0])
        except RuntimeError as error:
            raise fault(f"{self.prefix}MemGetInfo", device, error) from error

    def close(self) -> None:
        """Destroy what is still open and let go of the modules; a lost device must not keep us from ending."""
        for event in list(self._events):
            with contextlib.suppress(RuntimeFault):
                self.destroy_event(event)
        for stream in list(self._streams.values()):
            with contextlib.suppress(RuntimeFault):
                self.close_stream(stream)
        self._kernels.clear()
        self._modules.clear()
        self._host.close()

    @abstractmethod
    def _allocate_pinned(self, memory: Memory, nbytes: int) -> int:
        """Return host memory of the kind asked for, which every device reaches, where the thread's policy wants it."""

    @abstractmethod
    def _allocate_device(self, memory: Memory, nbytes: int) -> int:
        """Return memory of the current device, of the kind asked for."""

    @abstractmethod
    def _load(self, device: int, source: str, options: tuple[str, ...]) -> Any:
        """Return a loaded ``cupy.RawModule`` of ``hipkernels/<source>``; the device is current."""

    def _is_unpinned(self, pointer: int) -> bool:
        return any(start <= pointer < end for start, end in self._unpinned.items())

    def _function(self, module: Any, name: str, device: int) -> Any:
        """Return CuPy's bare function object: its call skips the per-device look-up that a RawKernel's makes."""
        try:
            return module.get_function(name).kernel
        except RuntimeError as error:
            raise fault(f"{self.look_up_call} of {name}", device, error) from error

    def _use(self, device: int) -> None:
        try:
            self._cuda.setDevice(device)
        except RuntimeError as error:
            raise fault(f"{self.prefix}SetDevice", device, error) from error

    def _current(self) -> int:
        """Return the device that a call without one was for; the host where not even that is answered."""
        try:
            return int(self._cuda.getDevice())
        except RuntimeError:
            return HOST

    def _not_allocated(self, call: str, device: int, error: RuntimeError, nbytes: int) -> RuntimeFault:
        """Say how much was asked for and how much there is; and what to do, where it was too much."""
        try:
            free: int | str = self.free_bytes(device)
        except RuntimeFault:
            free = "an unknown number of"
        found = fault(call, device, error, f"({nbytes} bytes asked for; {free} bytes are free)")
        if not found.out_of_memory:
            return found
        return RuntimeFault(found.call, device, found.code, f"{found.message}: {OUT_OF_MEMORY_ADVICE}")

"""AMD through CuPy, with hip-python for what CuPy has not: memory kinds, attributes, the compiler."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import hipkernels
from pytest_transferbench.emulator import Activation, EmulatorError, activate
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import hip_api, numa
from pytest_transferbench.runtime.code_cache import cache_folder, code_object
from pytest_transferbench.runtime.cupy_base import ATTACH_GLOBAL, COPY_KIND_DEFAULT, CupyRuntime, fault
from pytest_transferbench.runtime.host import HostWork, RealHost
from pytest_transferbench.runtime.protocol import Copy, RuntimeFault, Stream
from pytest_transferbench.transfer import Memory

COPY_KIND_NO_CU = 1024
"""``hipMemcpyDeviceToDeviceNoCU``: the copy that no shader makes. CuPy passes the number through."""

HOST_UNCACHED, HOST_NUMA_USER, HOST_COHERENT, HOST_NONCOHERENT = 0x10000000, 0x20000000, 0x40000000, 0x80000000
"""``hipHostMallocUncached`` and so on. NumaUser makes the runtime look at the thread's memory policy, and take the
node that it prefers."""

EMULATED_DEADLINE_HZ = 100e6
"""Rate of ``transferbench_emulator_real_ticks``."""


class EmulatedHost:
    """The host of an emulated node: its copies, its clock and its NUMA nodes are the emulator's, and virtual."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation
        self.numa_root = activation.numa_root
        self._mappings = numa.Mappings()
        self._numa_nodes: dict[int, int] = {}

    def copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        try:
            self._activation.host_copy(destinations, sources, nbytes, threads)
        except EmulatorError as error:
            raise RuntimeFault("host copy", HOST, "EmulatorError", str(error)) from error

    def clock(self) -> float:
        return self._activation.host_clock()

    @contextlib.contextmanager
    def preferring(self, numa_node: int) -> Iterator[None]:
        self._insist_on(numa_node)
        self._activation.prefer_numa_node(numa_node)
        try:
            yield
        finally:
            self._activation.prefer_numa_node(None)

    def map(self, nbytes: int, numa_node: int) -> int:
        self._insist_on(numa_node)
        pointer = self._mappings.map(nbytes)
        self._numa_nodes[pointer] = numa_node
        return pointer

    def unmap(self, pointer: int) -> None:
        self._mappings.unmap(pointer)
        del self._numa_nodes[pointer]

    def pages_by_place(self, pointer: int, nbytes: int) -> Mapping[int, int]:
        place = self._numa_nodes.get(pointer)
        if place is None:
            found = self._activation.numa_node_of(pointer)
            place = numa.ABSENT if found is None else found
        return {place: -(-nbytes // mmap.PAGESIZE)}

    def close(self) -> None:
        """Give unpinned memory back; the emulated node lives as long as the process."""
        self._mappings.clear()
        self._numa_nodes.clear()

    def _insist_on(self, numa_node: int) -> None:
        if numa_node not in self._activation.model.numa_nodes:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), "set_mempolicy")


class RocmRuntime(CupyRuntime):
    """The ROCm adapter, on real devices and on an emulated node alike."""

    name = "rocm"
    prefix = "hip"
    pinned_call, free_pinned_call = "hipHostMalloc", "hipHostFree"
    look_up_call, launch_call = "hipModuleGetFunction", "hipModuleLaunchKernel"

    def __init__(
        self,
        host: HostWork,
        hip: hip_api.HipApi,
        code_folder: Path,
        emulated: bool = False,
        closest_numa_nodes: Mapping[int, int | None] = MappingProxyType({}),
    ) -> None:
        super().__init__(host, closest_numa_nodes)
        self._hip = hip
        self._code_folder = code_folder
        self.emulated = emulated

    def dma_copy(self, destination: int, source: int, nbytes: int, stream: Stream) -> None:
        # Unpinned memory is no device's to name: the runtime stages it through a buffer of its own.
        staged = self._unpinned and (self._is_unpinned(source) or self._is_unpinned(destination))
        kind = COPY_KIND_DEFAULT if staged else COPY_KIND_NO_CU
        try:
            self._cuda.memcpyAsync(destination, source, nbytes, kind, stream.handle)
        except RuntimeError as error:
            raise fault("hipMemcpyAsync", stream.device, error, f"(kind {kind}, by the DMA engine)") from error

    def batch_copy(self, copies: Sequence[Copy], stream: Stream) -> None:
        self._use(stream.device)
        try:
            self._hip.batch_copy(copies, stream.handle)
        except hip_api.HipError as error:
            raise fault(error.call, stream.device, error) from error

    def stamp_hz(self, device: int) -> float:
        """Return the wall clock's rate; HIP says kHz, and says 0 where the driver did not tell it."""
        try:
            return (self._hip.attribute("WallClockRate", device) or 0) * 1000.0
        except hip_api.HipError as error:
            raise fault(error.call, device, error) from error

    def deadline_hz(self, device: int) -> float:
        return EMULATED_DEADLINE_HZ if self.emulated else self.stamp_hz(device)

    def _allocate_pinned(self, memory: Memory, nbytes: int) -> int:
        # Mapped means coherent to a runtime before 7, whatever else is said; without it memory is mapped all the same.
        flags = {
            "D": HOST_NONCOHERENT,
            "K": HOST_UNCACHED | self._cuda.hostAllocMapped,
        }.get(memory.kind, HOST_COHERENT | self._cuda.hostAllocMapped)
        return int(self._cuda.hostAlloc(nbytes, self._cuda.hostAllocPortable | HOST_NUMA_USER | flags))

    def _allocate_device(self, memory: Memory, nbytes: int) -> int:
        if memory.kind == "G":
            return int(self._cuda.malloc(nbytes))
        if memory.kind == "M":
            return int(self._cuda.mallocManaged(nbytes, ATTACH_GLOBAL))
        flags = {"F": hip_api.MALLOC_FINE_GRAINED, "U": hip_api.MALLOC_UNCACHED}[memory.kind]
        return self._hip.malloc_with_flags(nbytes, flags)

    def _load(self, device: int, source: str, options: tuple[str, ...]) -> Any:
        """Compile with hiprtc for the device's own architecture and load the code object: no ``hipcc`` is needed."""
        import cupy

        text = hipkernels.source(source)
        try:
            target = self._hip.properties(device).gcn_arch_name
        except hip_api.HipError as error:
            raise fault(error.call, device, error) from error
        try:
            all_options = (*options, f"--offload-arch={target}")
            path = code_object(
                (text, *all_options, self._hip.compiler_version()),
                lambda: self._hip.compile(text, f"{source}.hip", all_options),
                self._code_folder,
            )
        except RuntimeError as error:
            raise fault(f"compilation of {source}.hip", device, error) from error
        try:
            module = cupy.RawModule(path=str(path))
            module.compile()
        except RuntimeError as error:
            raise fault(f"hipModuleLoad of {source}.hip", device, error) from error
        return module


def open_rocm(emulate: str | None, closest_numa_nodes: Mapping[int, int | None]) -> RocmRuntime:
    """Open ROCm, or the emulated node that ``emulate`` names (a model or a file), in this process.

    Raises ``ImportError`` for a library that does not load, what the emulator refuses as ``EmulatorError``, and
    :class:`RuntimeFault` for a runtime that does not answer.
    """
    activation = activate(emulate) if emulate is not None else None
    try:
        hip = hip_api.load()
    except hip_api.HipError as error:
        raise fault(error.call, HOST, error) from error
    if activation is None:
        return RocmRuntime(RealHost(), hip, cache_folder(), closest_numa_nodes=closest_numa_nodes)
    return RocmRuntime(EmulatedHost(activation), hip, activation.code_folder, True, closest_numa_nodes)

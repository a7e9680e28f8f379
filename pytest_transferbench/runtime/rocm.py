"""AMD through CuPy, with hip-python for what CuPy has not: memory kinds, attributes, the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hipkernels
from pytest_transferbench.emulator import Activation, EmulatorError, activate
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import hip_api
from pytest_transferbench.runtime.code_cache import cache_folder, code_object
from pytest_transferbench.runtime.cupy_base import CupyRuntime, fault
from pytest_transferbench.runtime.host import HostWork, RealHost
from pytest_transferbench.runtime.protocol import Copy, RuntimeFault, Stream
from pytest_transferbench.transfer import Memory

COPY_KIND_NO_CU = 1024
"""``hipMemcpyDeviceToDeviceNoCU``: the copy that no shader makes. CuPy passes the number through."""

HOST_COHERENT = 0x40000000
"""``hipHostMallocCoherent``."""

EMULATED_DEADLINE_HZ = 100e6
"""Rate of ``transferbench_emulator_real_ticks``."""


class EmulatedHost:
    """The host of an emulated node: its copies and its clock are the emulator's, and virtual."""

    def __init__(self, activation: Activation) -> None:
        self._activation = activation

    def copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> None:
        try:
            self._activation.host_copy(destinations, sources, nbytes, threads)
        except EmulatorError as error:
            raise RuntimeFault("host copy", HOST, "EmulatorError", str(error)) from error

    def clock(self) -> float:
        return self._activation.host_clock()

    def close(self) -> None:
        """Nothing is kept: the emulated node lives as long as the process."""


class RocmRuntime(CupyRuntime):
    """The ROCm adapter, on real devices and on an emulated node alike."""

    name = "rocm"
    prefix = "hip"
    pinned_call, free_pinned_call = "hipHostMalloc", "hipHostFree"
    look_up_call, launch_call = "hipModuleGetFunction", "hipModuleLaunchKernel"

    def __init__(self, host: HostWork, hip: hip_api.HipApi, code_folder: Path, emulated: bool = False) -> None:
        super().__init__(host)
        self._hip = hip
        self._code_folder = code_folder
        self.emulated = emulated

    def dma_copy(self, destination: int, source: int, nbytes: int, stream: Stream) -> None:
        try:
            self._cuda.memcpyAsync(destination, source, nbytes, COPY_KIND_NO_CU, stream.handle)
        except RuntimeError as error:
            raise fault("hipMemcpyAsync", stream.device, error, "(kind 1024, by the DMA engine)") from error

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

    def _allocate_pinned(self, nbytes: int) -> int:
        flags = self._cuda.hostAllocPortable | self._cuda.hostAllocMapped | HOST_COHERENT
        return int(self._cuda.hostAlloc(nbytes, flags))

    def _allocate_device(self, memory: Memory, nbytes: int) -> int:
        if memory.kind == "G":
            return int(self._cuda.malloc(nbytes))
        flags = {"F": hip_api.MALLOC_FINE_GRAINED, "U": hip_api.MALLOC_UNCACHED}.get(memory.kind)
        if flags is None:
            raise RuntimeFault(
                "allocate",
                memory.index,
                "unsupported",
                f"{memory}: device memory is G, F (fine-grained) or U (uncached)",
            )
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


def open_rocm(emulate: str | None) -> RocmRuntime:
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
        return RocmRuntime(RealHost(), hip, cache_folder())
    return RocmRuntime(EmulatedHost(activation), hip, activation.code_folder, emulated=True)

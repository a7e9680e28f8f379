"""NVIDIA through CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hipkernels
from pytest_transferbench.runtime.cupy_base import COPY_KIND_DEFAULT, CupyRuntime, fault
from pytest_transferbench.runtime.host import RealHost
from pytest_transferbench.runtime.protocol import Copy, RuntimeFault, Stream
from pytest_transferbench.transfer import Memory

GLOBALTIMER_HZ = 1e9
"""``%globaltimer`` counts nanoseconds by definition, whatever its step is (32 ns on H200)."""


class CudaRuntime(CupyRuntime):
    """The CUDA adapter. Fine-grained and uncached memory are AMD's and refused."""

    name = "cuda"
    prefix = "cuda"
    pinned_call, free_pinned_call = "cudaHostAlloc", "cudaFreeHost"
    look_up_call, launch_call = "cuModuleGetFunction", "cuLaunchKernel"

    def __init__(self) -> None:
        super().__init__(RealHost())

    def dma_copy(self, destination: int, source: int, nbytes: int, stream: Stream) -> None:
        try:
            self._cuda.memcpyAsync(destination, source, nbytes, COPY_KIND_DEFAULT, stream.handle)
        except RuntimeError as error:
            raise fault("cudaMemcpyAsync", stream.device, error) from error

    def batch_copy(self, copies: Sequence[Copy], stream: Stream) -> None:
        from cuda.bindings import runtime as cudart

        attributes = cudart.cudaMemcpyAttributes()
        attributes.srcAccessOrder = cudart.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderStream
        destinations, sources, sizes = map(list, zip(*copies, strict=True))
        self._use(stream.device)
        # Up to CUDA 12 the index of a failing copy comes back too.
        status, *_ = cudart.cudaMemcpyBatchAsync(
            destinations, sources, sizes, len(copies), [attributes], [0], 1, stream.handle
        )
        if int(status):
            raise RuntimeFault("cudaMemcpyBatchAsync", stream.device, status.name, f"({len(copies)} copies)")

    def stamp_hz(self, device: int) -> float:
        return GLOBALTIMER_HZ

    def deadline_hz(self, device: int) -> float:
        return GLOBALTIMER_HZ

    def _allocate_pinned(self, nbytes: int) -> int:
        flags = self._cuda.hostAllocPortable | self._cuda.hostAllocMapped
        return int(self._cuda.hostAlloc(nbytes, flags))

    def _allocate_device(self, memory: Memory, nbytes: int) -> int:
        if memory.kind != "G":
            raise RuntimeFault(
                "allocate", memory.index, "unsupported", f"{memory}: only G is device memory on CUDA; F and U are AMD's"
            )
        return int(self._cuda.malloc(nbytes))

    def _load(self, device: int, source: str, options: tuple[str, ...]) -> Any:
        import cupy
        from cupy.cuda.compiler import CompileException

        module = cupy.RawModule(code=hipkernels.source(source), options=options, backend="nvrtc")
        try:
            module.compile()
        except (CompileException, RuntimeError) as error:
            raise fault(f"compilation of {source}.hip", device, error) from error
        return module

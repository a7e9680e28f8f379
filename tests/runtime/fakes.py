# ruff: noqa: N802, N815 - the names are the vendors'
"""Stand-ins for the vendors' libraries: they keep what was asked of them and fail where a test says so."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_transferbench.runtime import numa


def place_pages(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], int] | OSError) -> None:
    """Let the kernel say of the n-th page of whatever it is asked for that it is on node ``answer(n)``, or refuse."""

    def move_pages(addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        if isinstance(answer, OSError):
            raise answer
        return np.array([answer(page) for page in range(len(addresses))], dtype=np.int32)

    monkeypatch.setattr(numa, "move_pages", move_pages)


class FakeCudaError(RuntimeError):
    """Reads as CuPy's ``CUDARuntimeError`` does: a status, and ``<code name>: <words>``."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


class FakeCudaRuntime:
    """``cupy.cuda.runtime`` of a machine with ``count`` devices; ``fail[call]`` is raised by that call."""

    CUDARuntimeError = FakeCudaError
    is_hip = False
    hostAllocPortable = 1
    hostAllocMapped = 2
    streamNonBlocking = 1

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.calls: list[tuple[Any, ...]] = []
        self.fail: dict[str, Exception] = {}
        self.properties = {
            "name": b"NVIDIA H200",
            "major": 9,
            "minor": 0,
            "multiProcessorCount": 132,
            "totalGlobalMem": 150_000_000_000,
            "warpSize": 32,
            "l2CacheSize": 62_914_560,
            "memoryBusWidth": 6144,
            "memoryClockRate": 3_201_000,
            "asyncEngineCount": 3,
            "uuid": bytes(range(16)),
            "integrated": 0,
            "pageableMemoryAccessUsesHostPageTables": 0,
            "pageableMemoryAccess": 1,
            "managedMemory": 1,
            "concurrentManagedAccess": 1,
        }
        self.peers = True
        self.event_status = 0
        self._next = 0x1000
        self._pinned: list[np.ndarray[Any, np.dtype[np.uint8]]] = []

    def __getattr__(self, call: str) -> Any:
        if call.startswith("_"):
            raise AttributeError(call)

        def record(*arguments: Any) -> Any:
            self.calls.append((call, *arguments))
            if call in self.fail:
                raise self.fail[call]
            return getattr(self, f"_{call}", lambda *_: None)(*arguments)

        return record

    def said(self, call: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.calls if entry[0] == call]

    def _handle(self, *_: Any) -> int:
        self._next += 0x1000
        return self._next

    _malloc = _mallocManaged = _streamCreateWithFlags = _eventCreate = _graphInstantiate = _streamEndCapture = _handle

    def _hostAlloc(self, nbytes: int, flags: int) -> int:
        """Real memory: what is pinned is also touched."""
        self._pinned.append(np.zeros(nbytes, np.uint8))
        return int(self._pinned[-1].ctypes.data)

    def _getDeviceCount(self) -> int:
        return self.count

    def _getDeviceProperties(self, index: int) -> dict[str, Any]:
        return self.properties

    def _deviceGetPCIBusId(self, index: int) -> str:
        return f"0000:{0x18 + index:02X}:00.0"

    def _deviceCanAccessPeer(self, a: int, b: int) -> int:
        return int(self.peers)

    def _driverGetVersion(self) -> int:
        return self._runtimeGetVersion()

    def _runtimeGetVersion(self) -> int:
        return 13000

    def _eventElapsedTime(self, start: int, stop: int) -> float:
        return 2.5

    def _eventQuery(self, event: int) -> int:
        return self.event_status

    def _memGetInfo(self) -> tuple[int, int]:
        return 700, 1000

    def _check_status(self, status: int) -> None:
        if status:
            raise FakeCudaError(status, "cudaErrorIllegalAddress: an illegal memory access")


class FakeRawModule:
    """``cupy.RawModule``: keeps its arguments, and can be made not to compile."""

    made: list[FakeRawModule] = []  # noqa: RUF012 - reset by the fixture
    broken: Exception | None = None
    launches: list[tuple[Any, ...]] = []  # noqa: RUF012 - reset by the fixture
    launch_fails: Exception | None = None

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        FakeRawModule.made.append(self)

    def compile(self) -> None:
        if FakeRawModule.broken is not None:
            raise FakeRawModule.broken

    def get_function(self, name: str) -> Any:
        if name == "missing":
            raise FakeCudaError(500, "CUDA_ERROR_NOT_FOUND: named symbol not found")

        def launch(grid: Any, block: Any, args: Any, shared: int, stream: Any) -> None:
            if FakeRawModule.launch_fails is not None:
                raise FakeRawModule.launch_fails
            FakeRawModule.launches.append((name, grid, block, args, stream.ptr))

        return SimpleNamespace(kernel=launch)


class FakeCompileError(Exception):
    """CuPy's ``CompileException``."""


def install_cupy(monkeypatch: pytest.MonkeyPatch, runtime: FakeCudaRuntime) -> None:
    """Put a CuPy made of the fakes where ``import cupy`` finds it."""
    cupy, cuda, compiler = ModuleType("cupy"), ModuleType("cupy.cuda"), ModuleType("cupy.cuda.compiler")
    vars(cupy).update(
        cuda=cuda, RawModule=FakeRawModule, uint32="uint32", ndarray=lambda shape, kind, memory: (shape, kind, memory)
    )
    vars(cuda).update(
        runtime=runtime,
        compiler=compiler,
        UnownedMemory=lambda *arguments: arguments,
        MemoryPointer=lambda memory, offset: (memory, offset),
    )
    vars(compiler).update(CompileException=FakeCompileError)
    for name, module in (("cupy", cupy), ("cupy.cuda", cuda), ("cupy.cuda.compiler", compiler)):
        monkeypatch.setitem(sys.modules, name, module)
    FakeRawModule.made, FakeRawModule.launches = [], []
    FakeRawModule.broken = FakeRawModule.launch_fails = None


class FakeNvmlError(Exception):
    """``pynvml.NVMLError``."""


class FakeNvml:
    """``pynvml`` of two H200s behind a switch; ``answers[call]`` replaces a call, an exception in it is raised."""

    NVMLError = FakeNvmlError
    NVML_NVLINK_MAX_LINKS = 36

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "nvmlDeviceGetHandleByPciBusId": lambda address: address,
            "nvmlDeviceGetNvLinkState": lambda handle, link: int(link < 18),
            "nvmlDeviceGetNvLinkVersion": lambda handle, link: 6,
            "nvmlDeviceGetNvLinkRemoteDeviceType": lambda handle, link: 2,
            "nvmlDeviceGetNvLinkRemotePciInfo": lambda handle, link: SimpleNamespace(busId=b"00000000:C1:00.0"),
            "nvmlDeviceGetFieldValues": lambda handle, wanted: [field(entry[0], 0, 0, 3) for entry in wanted],
            "nvmlDeviceGetP2PStatus": lambda a, b, what: 0,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
            "nvmlDeviceGetMemoryBusWidth": lambda handle: 6144,
            "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 3201,
            "nvmlDeviceGetMigMode": lambda handle: [0, 0],
            "nvmlDeviceGetBAR1MemoryInfo": lambda handle: SimpleNamespace(bar1Total=1 << 38),
            "nvmlSystemGetDriverVersion": lambda: b"580.159",
            **answers,
        }

    def __getattr__(self, call: str) -> Any:
        if call.startswith("__") or call not in self.answers:
            raise AttributeError(call)

        def answer(*arguments: Any) -> Any:
            found = self.answers[call]
            if isinstance(found, Exception):
                raise found
            return found(*arguments)

        return answer


def field(number: int, value: int, status: int = 0, value_type: int = 3) -> SimpleNamespace:
    """Return an NVML field value: an ``unsigned long long`` unless said otherwise."""
    union = SimpleNamespace(uiVal=value, ullVal=value, dVal=float(value), ulVal=value, sllVal=value, siVal=value)
    return SimpleNamespace(fieldId=number, nvmlReturn=status, valueType=value_type, value=union)


class HipCode(enum.IntEnum):
    """``hipError_t`` and ``hiprtcResult``."""

    hipSuccess = 0
    hipErrorInvalidValue = 1
    hipErrorOutOfMemory = 2
    hipErrorNoDevice = 100
    HIPRTC_ERROR_COMPILATION = 6


class FakeHipProperties:
    """``hipDeviceProp_t`` of an MI300X."""

    def __init__(self, **changes: Any) -> None:
        vars(self).update(
            name=b"AMD Instinct MI300X",
            gcnArchName=b"gfx942:sramecc+:xnack-",
            totalGlobalMem=206_141_652_992,
            multiProcessorCount=304,
            warpSize=64,
            pciDomainID=0,
            pciBusID=0x05,
            pciDeviceID=0,
            memoryClockRate=1_300_000,
            memoryBusWidth=8192,
            isLargeBar=1,
            asyncEngineCount=2,
            integrated=0,
        )
        vars(self).update(changes)


class FakeHip:
    """hip-python's ``hip``; ``generation`` 7 fills structures, 10 returns them."""

    def __init__(self, devices: list[FakeHipProperties], generation: int = 10) -> None:
        self.devices, self.generation = devices, generation
        self.uuids = [f"{0x1000 + index:016x}" for index in range(len(devices))]
        self.attributes = {"WallClockRate": 100_000, "NumberOfXccs": 8, "ManagedMemory": 1, "PageableMemoryAccess": 0}
        self.link_type = (4, 1)
        self.peers = True
        self.fail: dict[str, HipCode] = {}
        self.hipDeviceAttribute_t = SimpleNamespace(
            **{f"hipDeviceAttribute{name}": name for name in (*self.attributes, "HostNumaId")}
        )
        self.allocations: list[tuple[int, int]] = []

    def _answer(self, call: str, *outputs: Any) -> tuple[Any, ...]:
        status = self.fail.get(call, HipCode.hipSuccess)
        return (status, *outputs) if status == 0 else (status, *(None for _ in outputs))

    def hipGetDeviceCount(self) -> tuple[Any, ...]:
        return self._answer("hipGetDeviceCount", len(self.devices))

    def hipRuntimeGetVersion(self) -> tuple[Any, ...]:
        return self._answer("hipRuntimeGetVersion", 70_051_831)

    def hipDriverGetVersion(self) -> tuple[Any, ...]:
        return self._answer("hipDriverGetVersion", 70_051_831)

    def hipDeviceProp_t(self) -> FakeHipProperties:
        return FakeHipProperties(name=b"untouched")

    def hipGetDeviceProperties(self, *arguments: Any) -> tuple[Any, ...]:
        if self.generation >= 10:
            (device,) = arguments
            return self._answer("hipGetDeviceProperties", self.devices[device])
        if len(arguments) != 2:
            raise TypeError("hipGetDeviceProperties() takes exactly 2 positional arguments (1 given)")
        structure, device = arguments
        vars(structure).update(vars(self.devices[device]))
        return self._answer("hipGetDeviceProperties")

    def hipDeviceGetAttribute(self, attribute: str, device: int) -> tuple[Any, ...]:
        if attribute not in self.attributes:
            return HipCode.hipErrorInvalidValue, 12345
        return self._answer("hipDeviceGetAttribute", self.attributes[attribute])

    def hipDeviceGetUuid(self, device: int) -> tuple[Any, ...]:
        return self._answer("hipDeviceGetUuid", SimpleNamespace(bytes=self.uuids[device].encode()))

    def hipDeviceCanAccessPeer(self, device: int, peer: int) -> tuple[Any, ...]:
        return self._answer("hipDeviceCanAccessPeer", int(self.peers))

    def hipExtGetLinkTypeAndHopCount(self, device: int, peer: int) -> tuple[Any, ...]:
        return self._answer("hipExtGetLinkTypeAndHopCount", *self.link_type)

    def hipExtMallocWithFlags(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        self.allocations.append((nbytes, flags))
        return self._answer("hipExtMallocWithFlags", 0x7000)

    def hipGetErrorString(self, error: HipCode) -> Any:
        words = b"out of memory" if error == 2 else b"no ROCm-capable device is detected"
        return words if self.generation >= 10 else (words,)


class FakeHiprtc:
    """hip-python's ``hiprtc``: ``code`` is what compiles, or ``log`` what the compiler complains of."""

    def __init__(self, code: bytes = b"\x7fELF code", log: str = "") -> None:
        self.code, self.log = code, log
        self.compiled: list[list[bytes]] = []
        self.destroyed = 0

    def hiprtcVersion(self) -> tuple[Any, ...]:
        return HipCode.hipSuccess, 7, 5

    def hiprtcCreateProgram(self, *arguments: Any) -> tuple[Any, ...]:
        return HipCode.hipSuccess, SimpleNamespace()

    def hiprtcCompileProgram(self, program: Any, count: int, options: list[bytes]) -> tuple[Any, ...]:
        assert count == len(options)
        self.compiled.append(options)
        return (HipCode.HIPRTC_ERROR_COMPILATION if self.log else HipCode.hipSuccess,)

    def hiprtcGetCodeSize(self, program: Any) -> tuple[Any, ...]:
        return HipCode.hipSuccess, len(self.code)

    def hiprtcGetCode(self, program: Any, code: bytearray) -> tuple[Any, ...]:
        code[:] = self.code
        return (HipCode.hipSuccess,)

    def hiprtcGetProgramLogSize(self, program: Any) -> tuple[Any, ...]:
        return HipCode.hipSuccess, len(self.log) + 1

    def hiprtcGetProgramLog(self, program: Any, log: bytearray) -> tuple[Any, ...]:
        log[:] = self.log.encode() + b"\0"
        return (HipCode.hipSuccess,)

    def hiprtcDestroyProgram(self, program: Any) -> tuple[Any, ...]:
        self.destroyed += 1
        return (HipCode.hipSuccess,)

"""The calls of hip-python that CuPy lacks or gets wrong on ROCm, alike over its two generations.

hip-python 10 returns every output in a tuple; up to 7 it fills structures that the caller makes. In both, a call
returns ``(error, *outputs)`` and never raises, and the outputs are rubbish when the error is not success: the error
is looked at first, in one place (:meth:`HipApi._ask`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pytest_transferbench.runtime.protocol import Copy

MALLOC_FINE_GRAINED = 1
MALLOC_UNCACHED = 3
"""``hipDeviceMallocUncached``; hip-python has no name for it."""

LINK_XGMI = 4
"""``HSA_AMD_LINK_INFO_TYPE_XGMI``, what hipExtGetLinkTypeAndHopCount returns for xGMI."""


class HipError(RuntimeError):
    """A HIP call failed. The text reads as CuPy's do: ``<code name>: <words>``; ``call`` names it."""

    def __init__(self, call: str, status: int, code: str, message: str) -> None:
        self.call, self.status, self.code = call, status, code
        super().__init__(f"{code}: {message or 'no description'}")


@dataclass(frozen=True)
class HipProperties:
    """What a Device is made of; sizes are bytes, clocks kHz."""

    name: str
    gcn_arch_name: str
    memory_bytes: int
    compute_units: int
    warp_size: int
    pci: tuple[int, int, int]
    memory_clock_khz: int
    memory_bus_bits: int
    large_bar: bool
    copy_engines: int
    integrated: bool


class HipApi:
    """hip-python's ``hip`` and ``hiprtc`` modules behind calls that raise :class:`HipError`."""

    def __init__(self, hip: Any, hiprtc: Any, batch_call: Callable[..., int] | None = None) -> None:
        self._hip = hip
        self._hiprtc = hiprtc
        self._batch_call = batch_call

    def device_count(self) -> int:
        return int(self._ask("hipGetDeviceCount"))

    def runtime_version(self) -> int:
        return int(self._ask("hipRuntimeGetVersion"))

    def properties(self, device: int) -> HipProperties:
        """Return the properties of one device, read from the structure both generations have."""
        found = self._properties(device)
        return HipProperties(
            name=_text(found.name),
            gcn_arch_name=_text(found.gcnArchName),
            memory_bytes=int(found.totalGlobalMem),
            compute_units=int(found.multiProcessorCount),
            warp_size=int(found.warpSize),
            pci=(int(found.pciDomainID), int(found.pciBusID), int(found.pciDeviceID)),
            memory_clock_khz=int(found.memoryClockRate),
            memory_bus_bits=int(found.memoryBusWidth),
            large_bar=bool(found.isLargeBar),
            copy_engines=int(found.asyncEngineCount),
            integrated=bool(found.integrated),
        )

    def attribute(self, name: str, device: int) -> int | None:
        """Return ``hipDeviceAttribute<name>``; None where this hip-python or this runtime does not know it.

        Raises :class:`HipError` for a device that does not answer.
        """
        attribute = getattr(self._hip.hipDeviceAttribute_t, f"hipDeviceAttribute{name}", None)
        if attribute is None:
            return None
        try:
            return int(self._ask("hipDeviceGetAttribute", attribute, device))
        except HipError as error:
            if error.code in ("hipErrorInvalidValue", "hipErrorNotSupported"):
                return None
            raise

    def uuid(self, device: int) -> str | None:
        """Return the 16 characters of hipDeviceGetUuid, which on AMD spell the unique id in hexadecimal."""
        try:
            raw = self._ask("hipDeviceGetUuid", device)
        except HipError:
            return None
        text = bytes(raw.bytes)[:16].rstrip(b"\0").decode("ascii", "replace")
        return text or None

    def can_access_peer(self, device: int, peer: int) -> bool:
        return bool(self._ask("hipDeviceCanAccessPeer", device, peer))

    def link(self, device: int, peer: int) -> tuple[int, int] | None:
        """Return (link type, hops) between two devices; None where the runtime does not say."""
        try:
            kind, hops = self._ask("hipExtGetLinkTypeAndHopCount", device, peer)
        except HipError:
            return None
        return int(kind), int(hops)

    def malloc_with_flags(self, nbytes: int, flags: int) -> int:
        """Return memory of the current device with flags that CuPy cannot give; CuPy's ``free`` takes it back."""
        return int(self._ask("hipExtMallocWithFlags", nbytes, flags))

    @property
    def has_batch_copy(self) -> bool:
        """Whether the library has hipMemcpyBatchAsync, which came with ROCm 7."""
        return self._batch_call is not None

    def batch_copy(self, copies: Sequence[Copy], stream: int) -> None:
        """Queue copies with hipMemcpyBatchAsync, by ctypes: hip-python 10 takes its input arrays for outputs.

        No attributes are given: ROCm 7.2 refuses any.
        """
        assert self._batch_call is not None
        count = len(copies)
        destinations = (ctypes.c_void_p * count)(*(copy.destination for copy in copies))
        sources = (ctypes.c_void_p * count)(*(copy.source for copy in copies))
        sizes = (ctypes.c_size_t * count)(*(copy.nbytes for copy in copies))
        failed, no_index = ctypes.c_size_t(), (ctypes.c_size_t * 1)()
        status = self._batch_call(
            destinations, sources, sizes, count, None, no_index, 0, ctypes.byref(failed), ctypes.c_void_p(stream)
        )
        if status:
            error = self._hip.hipError_t(status)
            words = f"{self._words(error)} (copy {failed.value} of {count})"
            raise HipError("hipMemcpyBatchAsync", status, error.name, words)

    def compiler_version(self) -> str:
        major, minor = self._compiler("hiprtcVersion")
        return f"{major}.{minor}"

    def compile(self, source: str, name: str, options: tuple[str, ...]) -> bytes:
        """Return the code object of a source for the architecture that ``options`` names.

        Raises :class:`HipError` whose text holds the compiler's log.
        """
        program = self._compiler("hiprtcCreateProgram", source.encode(), name.encode(), 0, None, None)
        try:
            encoded = [option.encode() for option in options]
            try:
                self._compiler("hiprtcCompileProgram", program, len(encoded), encoded)
            except HipError as error:
                raise HipError(error.call, error.status, error.code, self._log(program) or str(error)) from error
            code = bytearray(int(self._compiler("hiprtcGetCodeSize", program)))
            self._compiler("hiprtcGetCode", program, code)
            return bytes(code)
        finally:
            self._destroy(program)

    def _log(self, program: Any) -> str:
        size = int(self._compiler("hiprtcGetProgramLogSize", program))
        if size <= 1:
            return ""
        log = bytearray(size)
        self._compiler("hiprtcGetProgramLog", program, log)
        return log.rstrip(b"\0").decode(errors="replace").strip()

    def _destroy(self, program: Any) -> None:
        # hip-python up to 7 wants the address of the handle, and 10 takes the handle too.
        handle = program.createRef() if hasattr(program, "createRef") else program
        self._hiprtc.hiprtcDestroyProgram(handle)

    def _properties(self, device: int) -> Any:
        try:
            return self._ask("hipGetDeviceProperties", device)
        except TypeError:
            structure = self._hip.hipDeviceProp_t()
            self._ask("hipGetDeviceProperties", structure, device)
            return structure

    def _ask(self, call: str, *arguments: Any) -> Any:
        """Return the outputs of a HIP call: None, the one output, or a tuple of them."""
        error, *outputs = getattr(self._hip, call)(*arguments)
        if int(error) != 0:
            raise HipError(call, int(error), error.name, self._words(error))
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

    def _words(self, error: Any) -> str:
        words = self._hip.hipGetErrorString(error)
        # hip-python up to 7 wraps even this in a tuple.
        return _text(words[-1] if isinstance(words, tuple) else words)

    def _compiler(self, call: str, *arguments: Any) -> Any:
        error, *outputs = getattr(self._hiprtc, call)(*arguments)
        if int(error) != 0:
            raise HipError(call, int(error), error.name, "")
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None


def load() -> HipApi:
    """Return hip-python's calls; raises ``ImportError`` when it, or the library under it, is not there."""
    from hip import hip, hiprtc

    api = HipApi(hip, hiprtc, _batch_call())
    try:
        api.runtime_version()
    except HipError:
        raise
    except RuntimeError as error:  # hip-python 10 opens the library at the first call, and fails so
        raise ImportError(str(error)) from error
    return api


def _batch_call() -> Callable[..., int] | None:
    """Return hipMemcpyBatchAsync of the library that CuPy has loaded; None where it has none."""
    try:
        call = ctypes.CDLL("libamdhip64.so.7").hipMemcpyBatchAsync
    except (OSError, AttributeError):
        return None
    call.restype = ctypes.c_int
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    call.argtypes = (pointer, pointer, pointer, size, pointer, pointer, size, pointer, pointer)
    return cast("Callable[..., int]", call)


def _text(value: Any) -> str:
    """Return the text of hip-python's various C strings."""
    if isinstance(value, str):
        return value
    raw = value if isinstance(value, bytes) else bytes(value) if not hasattr(value, "decode") else value.decode()
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    return text.partition("\0")[0]

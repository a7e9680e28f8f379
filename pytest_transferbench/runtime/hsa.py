"""Copies by the DMA engine of one's choice: the few calls of ROCr for what HIP does not offer, through ctypes.

ROCr runs below HIP in the same process, and takes the addresses that HIP has given out.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

LIBRARY = "libhsa-runtime64.so.1"

DEADLINE_SECONDS = 60.0
"""No copy takes as long; TransferBench would wait for ever."""

_SUCCESS = 0
_POINTER_UNKNOWN = 0
_LESS_THAN = 2
_WAIT_ACTIVE = 1
_WAIT_TICKS = 10_000_000
"""What one wait takes at most: a tenth of a second, at 100 MHz."""


class HsaError(RuntimeError):
    """A call of ROCr failed: ``call``, its status by number, and ROCr's own words."""

    def __init__(self, call: str, code: str, words: str) -> None:
        self.call, self.code = call, code
        super().__init__(words)


class _PointerInfo(ctypes.Structure):
    """``hsa_amd_pointer_info_t`` up to its owner: ``size`` tells ROCr how much of it is wanted."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("agent_base", ctypes.c_void_p),
        ("host_base", ctypes.c_void_p),
        ("size_in_bytes", ctypes.c_size_t),
        ("user_data", ctypes.c_void_p),
        ("owner", ctypes.c_uint64),
    )


_AGENT = _SIGNAL = ctypes.c_uint64
"""``hsa_agent_t`` and ``hsa_signal_t`` hold one handle; they are passed as it is."""

_CALLS: dict[str, tuple[Any, ...]] = {
    "hsa_init": (),
    "hsa_shut_down": (),
    "hsa_status_string": (ctypes.c_uint32, ctypes.POINTER(ctypes.c_char_p)),
    "hsa_signal_create": (ctypes.c_int64, ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(_SIGNAL)),
    "hsa_signal_destroy": (_SIGNAL,),
    "hsa_signal_store_screlease": (_SIGNAL, ctypes.c_int64),
    "hsa_signal_wait_scacquire": (_SIGNAL, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32),
    "hsa_amd_pointer_info": (
        ctypes.c_void_p,
        ctypes.POINTER(_PointerInfo),
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ),
    "hsa_amd_memory_copy_engine_status": (_AGENT, _AGENT, ctypes.POINTER(ctypes.c_uint32)),
    "hsa_amd_memory_async_copy_on_engine": (
        ctypes.c_void_p,
        _AGENT,
        ctypes.c_void_p,
        _AGENT,
        ctypes.c_size_t,
        ctypes.c_uint32,
        ctypes.c_void_p,
        _SIGNAL,
        ctypes.c_uint32,
        ctypes.c_bool,
    ),
}
_RESULTS = {"hsa_signal_store_screlease": None, "hsa_signal_wait_scacquire": ctypes.c_int64}


def available(library: str = LIBRARY) -> bool:
    """Say whether ROCr is there and lets one choose the engine of a copy. Opens no device."""
    try:
        found = ctypes.CDLL(library)
    except OSError:
        return False
    return all(hasattr(found, call) for call in _CALLS)


class HsaApi:
    """ROCr, opened once more beside HIP; it counts who uses it."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Raises :class:`HsaError` where it does not open, ``OSError`` or ``AttributeError`` where it is not there."""
        self._library = ctypes.CDLL(library)
        for name, arguments in _CALLS.items():
            call = getattr(self._library, name)
            call.argtypes, call.restype = arguments, _RESULTS.get(name, ctypes.c_uint32)
        self._ask("hsa_init")
        signal = _SIGNAL()
        self._ask("hsa_signal_create", 1, 0, None, ctypes.byref(signal))
        self._signal: int | None = signal.value

    def route(self, engine: int, destination: int, source: int) -> Callable[[int, int, int], None]:
        """Return ``copy(destination, source, nbytes)`` within the allocations of these two addresses, by one engine.

        It returns when the bytes are there. Both raise :class:`HsaError`: here for memory that ROCr does not know and
        for an engine that does not serve these ends.
        """
        to, of = self._owner(destination), self._owner(source)
        if to != of:  # copies within a device are asked about in vain
            self._insist_on(engine, to, of)

        def copy(destination: int, source: int, nbytes: int) -> None:
            self._copy(destination, to, source, of, nbytes, 1 << engine)

        return copy

    def close(self) -> None:
        """Give the signal back, and ROCr up; HIP goes on using it."""
        if self._signal is not None:
            self._library.hsa_signal_destroy(self._signal)
        self._library.hsa_shut_down()

    def _copy(self, destination: int, to: int, source: int, of: int, nbytes: int, engine_bit: int) -> None:
        if self._signal is None:
            raise HsaError("hsa_amd_memory_async_copy_on_engine", "TIMEOUT", "an earlier copy is still under way")
        signal, library = self._signal, self._library
        library.hsa_signal_store_screlease(signal, 1)
        self._ask(
            "hsa_amd_memory_async_copy_on_engine",
            destination, to, source, of, nbytes, 0, None, signal, engine_bit, True,
        )  # fmt: skip
        left, deadline = 1, time.monotonic() + DEADLINE_SECONDS
        while left > 0:
            left = library.hsa_signal_wait_scacquire(signal, _LESS_THAN, 1, _WAIT_TICKS, _WAIT_ACTIVE)
            if left > 0 and time.monotonic() > deadline:
                self._signal = None  # the engine may still write to it
                raise HsaError(
                    "hsa_signal_wait_scacquire", "TIMEOUT", f"nothing arrived within {DEADLINE_SECONDS:.0f} s"
                )
        if left < 0:
            raise HsaError("hsa_amd_memory_async_copy_on_engine", f"signal {left}", "the copy failed while it ran")

    def _owner(self, pointer: int) -> int:
        info = _PointerInfo(size=ctypes.sizeof(_PointerInfo))
        self._ask("hsa_amd_pointer_info", pointer, ctypes.byref(info), None, None, None)
        if info.type == _POINTER_UNKNOWN or not info.owner:
            raise HsaError("hsa_amd_pointer_info", "UNKNOWN", f"{pointer:#x} is in no memory that ROCr has given out")
        return int(info.owner)

    def _insist_on(self, engine: int, to: int, of: int) -> None:
        mask = ctypes.c_uint32()
        call = "hsa_amd_memory_copy_engine_status"
        self._ask(call, to, of, ctypes.byref(mask))
        if not mask.value >> engine & 1:
            serving = [str(bit) for bit in range(mask.value.bit_length()) if mask.value >> bit & 1]
            raise HsaError(
                call,
                "NO_SUCH_ENGINE",
                f"engine {engine} does not copy between these ends; {', '.join(serving) or 'none'} would",
            )

    def _ask(self, call: str, *arguments: object) -> None:
        status = getattr(self._library, call)(*arguments)
        if status != _SUCCESS:
            words = ctypes.c_char_p()
            self._library.hsa_status_string(status, ctypes.byref(words))
            said = (words.value or b"no description").decode(errors="replace")
            raise HsaError(call, f"{status:#x}", said)

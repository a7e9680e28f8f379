"""HIP by ctypes: plain numbers in, error codes out, so that tests see exactly what the runtime answers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pytest_transferbench.emulator import Activation

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_DEVICE_POINTER = 17
INVALID_DIRECTION = 21
INVALID_DEVICE = 101
NO_BINARY_FOR_GPU = 209
INVALID_HANDLE = 400
NOT_FOUND = 500
NOT_READY = 600
ILLEGAL_ADDRESS = 700
PEER_ALREADY_ENABLED = 704
PEER_NOT_ENABLED = 705
CAPTURE_UNSUPPORTED = 900

H2D, D2H, D2D, DEFAULT, NO_CU = 1, 2, 3, 4, 1024
NON_BLOCKING = 1
DISABLE_TIMING = 2
HOST = -1


class CompileError(Exception):
    """hiprtc refused a source; the log is the message."""


class Hip:
    """The emulated runtime of this process."""

    def __init__(self, activation: Activation) -> None:
        self.activation = activation
        self.model = activation.model
        self._hip = ctypes.CDLL(str(activation.library))
        self._rtc = ctypes.CDLL(str(activation.library.with_name("libhiprtc.so.7")))

    def code(self, call: str, *arguments: Any) -> int:
        """Make a call and return its error code. Whole numbers travel as 64-bit words."""
        return int(getattr(self._hip, call)(*map(_as_c, arguments)))

    def ok(self, call: str, *arguments: Any) -> None:
        assert self.code(call, *arguments) == SUCCESS, call

    def value(self, kind: type, call: str, *arguments: Any) -> Any:
        """Make a call whose first parameter is an output, and return that output."""
        out = kind()
        self.ok(call, ctypes.byref(out), *arguments)
        return out.value

    def set_device(self, device: int) -> None:
        self.ok("hipSetDevice", ctypes.c_int(device))

    def malloc(self, nbytes: int, device: int = 0) -> int:
        self.set_device(device)
        return int(self.value(ctypes.c_void_p, "hipMalloc", nbytes))

    def host_malloc(self, nbytes: int, flags: int = 0) -> int:
        return int(self.value(ctypes.c_void_p, "hipHostMalloc", nbytes, ctypes.c_uint(flags)))

    @contextmanager
    def stream(self, device: int = 0, flags: int = NON_BLOCKING) -> Iterator[int]:
        self.set_device(device)
        stream = int(self.value(ctypes.c_void_p, "hipStreamCreateWithFlags", ctypes.c_uint(flags)))
        yield stream
        self.ok("hipStreamDestroy", stream)

    def event(self, device: int = 0, flags: int = 0) -> int:
        self.set_device(device)
        return int(self.value(ctypes.c_void_p, "hipEventCreateWithFlags", ctypes.c_uint(flags)))

    def elapsed_seconds(self, start: int, stop: int) -> float:
        return float(self.value(ctypes.c_float, "hipEventElapsedTime", start, stop)) / 1e3

    def write(self, pointer: int, data: bytes) -> None:
        self.ok("hipMemcpy", pointer, ctypes.c_char_p(data), len(data), ctypes.c_int(H2D))

    def read(self, pointer: int, nbytes: int) -> bytes:
        buffer = ctypes.create_string_buffer(nbytes)
        self.ok("hipMemcpy", buffer, pointer, nbytes, ctypes.c_int(D2H))
        return buffer.raw

    def enable_peer(self, device: int, peer: int) -> None:
        self.set_device(device)
        assert self.code("hipDeviceEnablePeerAccess", ctypes.c_int(peer), ctypes.c_uint(0)) in (0, PEER_ALREADY_ENABLED)

    def compile(
        self, source: str, options: Sequence[str] = (), expressions: Sequence[str] = ()
    ) -> tuple[bytes, list[str]]:
        """Return the code object and the lowered names of the expressions; raises CompileError with the log."""
        rtc, program = self._rtc, ctypes.c_void_p()
        assert rtc.hiprtcCreateProgram(ctypes.byref(program), source.encode(), b"user.hip", 0, None, None) == 0
        for expression in expressions:
            assert rtc.hiprtcAddNameExpression(program, expression.encode()) == 0
        given = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        failed = rtc.hiprtcCompileProgram(program, len(options), given)
        size = ctypes.c_size_t()
        rtc.hiprtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        rtc.hiprtcGetProgramLog(program, log)
        if failed:
            raise CompileError(log.value.decode())
        rtc.hiprtcGetCodeSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        rtc.hiprtcGetCode(program, code)
        lowered = []
        for expression in expressions:
            name = ctypes.c_char_p()
            assert rtc.hiprtcGetLoweredName(program, expression.encode(), ctypes.byref(name)) == 0
            lowered.append((name.value or b"").decode())
        assert rtc.hiprtcDestroyProgram(ctypes.byref(program)) == 0
        return code.raw, lowered

    def load(self, code: bytes, device: int = 0) -> int:
        self.set_device(device)
        return int(self.value(ctypes.c_void_p, "hipModuleLoadData", ctypes.c_char_p(code)))

    def kernel(self, source: str, name: str, device: int = 0, options: Sequence[str] = ()) -> int:
        """Compile, load on ``device``, and return the kernel's handle."""
        module = self.load(self.compile(source, options)[0], device)
        return int(self.value(ctypes.c_void_p, "hipModuleGetFunction", module, ctypes.c_char_p(name.encode())))

    def launch(self, kernel: int, grid: int, block: int, *arguments: Any, stream: int = 0) -> int:
        """Launch through ``kernelParams`` and return the error code."""
        values = [_as_c(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        dims = map(ctypes.c_uint, (grid, 1, 1, block, 1, 1, 0))
        return self.code("hipModuleLaunchKernel", kernel, *dims, stream, pointers, None)

    def run(self, kernel: int, grid: int, block: int, *arguments: Any, stream: int = 0) -> int:
        """Launch, wait, and return the error code of the launch or of the wait."""
        return self.launch(kernel, grid, block, *arguments, stream=stream) or self.code("hipStreamSynchronize", stream)


def _as_c(value: Any) -> Any:
    return ctypes.c_uint64(value) if isinstance(value, int) else value

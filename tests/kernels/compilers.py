"""Compilers for GPU code that run without a GPU and without a vendor's toolkit: from Debian and from PyPI."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import hipkernels
from tests.kernels.machine_code import Kernel, Lines, amd_kernels, nvidia_kernels

PRELUDE = Path(__file__).with_name("hip_prelude.hpp")
_FLAGS = ("-std=c++17", "-O3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-gline-tables-only", "-fdeclspec")


class CompilationError(Exception):
    """What the compiler said."""


@dataclass(frozen=True)
class Target:
    """An architecture, and the compiler that makes code for it here."""

    arch: str
    compiler: str

    def __str__(self) -> str:
        return f"{self.arch} {self.compiler}"

    @property
    def lacking(self) -> str:
        """Why it cannot be compiled for here, and what to do; empty where it can."""
        return _LACKING[self.compiler]()

    def compile(self, name: str, text: str, defines: Mapping[str, int]) -> Compiled:
        """Compile the source ``name`` as ``text`` has it. Raises :class:`CompilationError`."""
        options = [f"-D{key}={value}" for key, value in defines.items()]
        lines = Lines(f"{name}.hip", text.partition(f'#line 1 "{name}.hip"\n')[2])
        if self.compiler == "nvrtc":
            return _nvrtc(self.arch, text, lines, options)
        return _clang(_clang_command(self.compiler), self.arch, text, lines, options)


@dataclass(frozen=True)
class Compiled:
    """Kernels by name, and what the compiler had to say without refusing."""

    kernels: Mapping[str, Kernel]
    warnings: str


@dataclass
class Workshop:
    """Compiles everything once, two at a time."""

    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    _made: dict[object, Future[Compiled]] = field(default_factory=dict)

    def order(self, target: Target, name: str, defines: Mapping[str, int], text: str = "") -> Future[Compiled]:
        """Have a kernel source compiled, as it is or with another text; the result is waited for where it is used."""
        text = text or hipkernels.source(name)
        key = (target, name, tuple(sorted(defines.items())), text)
        if key not in self._made:
            self._made[key] = self._pool.submit(target.compile, name, text, defines)
        return self._made[key]


# -- clang -------------------------------------------------------------------------------------------------------------


def _clang_command(compiler: str) -> list[str]:
    if compiler == "zig":
        return [str(_installed("ziglang", "zig")), "clang"]
    return [compiler]


def _clang(command: list[str], arch: str, text: str, lines: Lines, options: list[str]) -> Compiled:
    mark = f'#line 1 "{lines.name}"'
    text = text.replace(mark, f"#undef __device__\n#define __device__ __attribute__((device))\n{mark}")
    for_gpu = ("-x", "hip", f"--offload-arch={arch}", "--cuda-device-only", "-nogpulib", "-nogpuinc")
    run = subprocess.run(
        [*command, *for_gpu, *_FLAGS, "-include", str(PRELUDE), *options, "-S", "-o", "-", "-"],
        input=text,
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise CompilationError(run.stderr)
    return Compiled(amd_kernels(run.stdout, arch, lines), run.stderr)


# -- nvrtc and nvdisasm ------------------------------------------------------------------------------------------------


@cache
def _installed(distribution: str, file: str) -> Path | None:
    """Return where the file of a wheel is; ``None`` where the wheel is not installed."""
    try:
        return next(Path(str(each.locate())) for each in files(distribution) or () if each.match(file))
    except (PackageNotFoundError, StopIteration):
        return None


@cache
def _nvrtc_library() -> ctypes.CDLL:
    # It looks for its builtins by name only, and finds them where they are loaded already.
    ctypes.CDLL(str(_installed("nvidia-cuda-nvrtc", "libnvrtc-builtins.so.*")), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(_installed("nvidia-cuda-nvrtc", "libnvrtc.so.*")))


def _nvrtc(arch: str, text: str, lines: Lines, options: list[str]) -> Compiled:
    library, program, size = _nvrtc_library(), ctypes.c_void_p(), ctypes.c_size_t()
    every = [option.encode() for option in (f"--gpu-architecture={arch}", "-std=c++17", "-lineinfo", *options)]
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels", 0, None, None)
    failed = library.nvrtcCompileProgram(program, len(every), (ctypes.c_char_p * len(every))(*every))

    def output(what: str) -> bytes:
        getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw

    try:
        log = output("ProgramLog").rstrip(b"\0").decode()
        if failed:
            raise CompilationError(log)
        binary = output("CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(_installed("nvidia-cuda-nvdisasm", "nvdisasm")), "-gi", "-c", file.name]
        assembly = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Compiled(nvidia_kernels(assembly, arch, lines), log)


def _wheels_lacking(*distributions: str) -> str:
    missing = [each for each in distributions if _installed(each, "*") is None]
    return f"needs {' and '.join(missing)}: pip install '.[contracts]'" if missing else ""


_LACKING = {
    "clang-19": lambda: "" if shutil.which("clang-19") else "needs clang-19: apt-get install clang-19",
    "zig": lambda: _wheels_lacking("ziglang"),
    "nvrtc": lambda: _wheels_lacking("nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm"),
}

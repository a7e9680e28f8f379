"""The run-time compiler: what it takes, what it refuses, and what its messages point at."""

from __future__ import annotations

import ctypes
import struct
import uuid
from pathlib import Path

import pytest

import hipkernels
from tests.emulator.hip import NO_BINARY_FOR_GPU, NOT_FOUND, SUCCESS, CompileError, Hip

EMPTY = 'extern "C" __global__ void empty() {}'


@pytest.mark.parametrize(
    "option",
    [
        "-O3",
        "-std=c++11",
        "--std=c++20",
        "-DWIDTH=4",
        "-UWIDTH",
        "-I/nonexistent",
        "-ffast-math",
        "-fcuda-flush-denormals-to-zero",
        "--offload-arch=gfx942",
        "--gpu-architecture=gfx942",
        "-Rpass-analysis=kernel-resource-usage",
        "-Werror",
        "-lineinfo",
    ],
)
def test_options_that_amds_compiler_takes(hip: Hip, option: str) -> None:
    code, _ = hip.compile(EMPTY, [option])
    assert code.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    "option", ["-arch=sm_90", "--use_fast_math", "-ftz=true", "--device-as-default-execution-space", "nonsense"]
)
def test_options_that_amds_compiler_refuses(hip: Hip, option: str) -> None:
    with pytest.raises(CompileError, match=rf"^error: unknown argument: '{option}'\n$"):
        hip.compile(EMPTY, [option])


def test_an_error_names_the_line_of_the_users_source(hip: Hip) -> None:
    with pytest.raises(CompileError) as caught:
        hip.compile('extern "C" __global__ void k(int* p) {\n  int x = 1;\n  p[0] = y;\n}\n')
    assert "user.hip:3:10: error: 'y' was not declared in this scope" in str(caught.value)


def test_a_missing_header_is_a_compile_error(hip: Hip) -> None:
    with pytest.raises(CompileError, match=r"user\.hip:2:10: fatal error: no/such\.h"):
        hip.compile('\n#include <no/such.h>\nextern "C" __global__ void k() {}')


@pytest.mark.parametrize("source", hipkernels.names())
def test_the_plugins_own_kernels_compile_unchanged(hip: Hip, source: str) -> None:
    defines = {
        "copy": ["-DTB_BLOCK=256", "-DTB_UNROLL=4"],
        "reduce": ["-DTB_BLOCK=256", "-DTB_UNROLL=4"],
        "ll": ["-DTB_LINE=128", "-DTB_ORDER=1", "-DTB_HASHED=1"],
    }
    code, _ = hip.compile(hipkernels.source(source), ["-std=c++17", *defines.get(source, [])])
    hip.load(code)


def test_a_code_object_is_compiled_once(hip: Hip) -> None:
    kernels = hip.activation.library.parents[1] / "kernels"
    source = f'extern "C" __global__ void k_{uuid.uuid4().hex}() {{}}'

    def stored() -> dict[Path, int]:
        # Other processes compile into the same folder meanwhile: our files are known by what they hold.
        return {path: path.stat().st_mtime_ns for path in kernels.glob("*.so") if path.read_bytes() == first}

    first, _ = hip.compile(source)
    once = stored()
    assert len(once) == 1
    assert hip.compile(source)[0] == first
    assert stored() == once
    assert hip.compile(source, ["-DX=1"])[0] == first
    assert len(stored()) == 2


def test_an_included_file_counts_with_its_content(hip: Hip, tmp_path: Path) -> None:
    header = tmp_path / "value.h"
    source = '#include "value.h"\nextern "C" __global__ void k(int* p) { *p = VALUE; }'
    out = hip.malloc(4)
    for value in (1, 2):
        header.write_text(f"#define VALUE {value}\n")
        assert hip.run(hip.kernel(source, "k", options=[f"-I{tmp_path}"]), 1, 1, out) == SUCCESS
        assert struct.unpack("i", hip.read(out, 4)) == (value,)
    hip.ok("hipFree", out)


NAMES = r"""
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(64) name
const char* text = "__global__ void not_one(int*) { ) } \" {";
/* __global__ void nor_this(int*) {} */
KERNEL(from_a_macro)(int* p) { *p = 1; }
namespace outer { namespace inner::most {
extern "C" __global__ void in_a_namespace(int* p) { *p = 2; }
__device__ int helper() { return 3; }
}}
extern "C" {
__global__ __attribute__((unused)) void in_a_block(int* p) { *p = outer::inner::most::helper(); }
}
static __device__ int twice(int x) { return 2 * x; }
__global__ void plain(int* p) { *p = twice(2); }
template <int V> __global__ void templated(int* p) { *p = V; }
template <typename T> struct holder { static __device__ T get() { return T(6); } };
extern "C" __global__ void declared(int* p);
extern "C" __global__ void declared(int* p) { *p = holder<int>::get(); }
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [("from_a_macro", 1), ("in_a_namespace", 2), ("in_a_block", 3), ("_Z5plainPi", 4), ("declared", 6)],
)
def test_kernels_are_found_however_they_are_written(hip: Hip, name: str, value: int) -> None:
    out = hip.malloc(4)
    assert hip.run(hip.kernel(NAMES, name), 1, 1, out) == SUCCESS
    assert struct.unpack("i", hip.read(out, 4)) == (value,)
    hip.ok("hipFree", out)


def test_a_template_needs_a_name_expression(hip: Hip) -> None:
    code, (lowered,) = hip.compile(NAMES, expressions=["templated<5>"])
    module = hip.load(code)
    out = hip.malloc(4)
    kernel = hip.value(ctypes.c_void_p, "hipModuleGetFunction", module, ctypes.c_char_p(lowered.encode()))
    assert hip.run(kernel, 1, 1, out) == SUCCESS
    assert struct.unpack("i", hip.read(out, 4)) == (5,)
    missing = ctypes.byref(ctypes.c_void_p())
    assert hip.code("hipModuleGetFunction", missing, module, ctypes.c_char_p(b"not_one")) == NOT_FOUND
    hip.ok("hipFree", out)
    hip.ok("hipModuleUnload", module)


def test_a_code_object_of_another_architecture_does_not_load(hip: Hip) -> None:
    code, _ = hip.compile(EMPTY, ["--offload-arch=gfx90a"])
    module = ctypes.byref(ctypes.c_void_p())
    assert hip.code("hipModuleLoadData", module, ctypes.c_char_p(code)) == NO_BINARY_FOR_GPU
    assert hip.code("hipModuleLoadData", module, ctypes.c_char_p(b"no code object" * 10)) == 200
    assert hip.code("hipModuleLoad", module, ctypes.c_char_p(b"/no/such/file")) == 301


def test_each_device_has_its_own_globals(hip: Hip, tmp_path: Path) -> None:
    source = """
    __device__ int total = 40;
    extern "C" __global__ void bump(int* out) { total += 1; *out = total; }
    """
    code, _ = hip.compile(source)
    file = tmp_path / "bump.co"
    file.write_bytes(code)
    for device, rounds in ((0, 3), (1, 1)):
        hip.set_device(device)
        module = hip.value(ctypes.c_void_p, "hipModuleLoad", ctypes.c_char_p(str(file).encode()))
        bump = hip.value(ctypes.c_void_p, "hipModuleGetFunction", module, ctypes.c_char_p(b"bump"))
        out = hip.malloc(4, device)
        for _ in range(rounds):
            assert hip.run(bump, 1, 1, out) == SUCCESS
        assert struct.unpack("i", hip.read(out, 4)) == (40 + rounds,)
        pointer, nbytes = ctypes.c_void_p(), ctypes.c_size_t()
        name = ctypes.c_char_p(b"total")
        hip.ok("hipModuleGetGlobal", ctypes.byref(pointer), ctypes.byref(nbytes), module, name)
        assert nbytes.value == 4
        assert struct.unpack("i", hip.read(pointer.value or 0, 4)) == (40 + rounds,)
        hip.write(pointer.value or 0, struct.pack("i", 7))
        assert hip.run(bump, 1, 1, out) == SUCCESS
        assert struct.unpack("i", hip.read(out, 4)) == (8,)
        hip.ok("hipModuleUnload", module)
        hip.ok("hipFree", out)


def test_the_programs_headers_are_found(hip: Hip) -> None:
    rtc = ctypes.CDLL(str(hip.activation.library.with_name("libhiprtc.so.7")))
    program = ctypes.c_void_p()
    source = b'#include "mine.h"\nextern "C" __global__ void k(int* p) { *p = MINE; }'
    headers, names = (ctypes.c_char_p * 1)(b"#define MINE 9\n"), (ctypes.c_char_p * 1)(b"mine.h")
    assert rtc.hiprtcCreateProgram(ctypes.byref(program), source, None, 1, headers, names) == 0
    assert rtc.hiprtcCompileProgram(program, 0, None) == 0
    assert rtc.hiprtcDestroyProgram(ctypes.byref(program)) == 0

"""The unmodified CuPy and hip-python wheels on the emulated runtime: two consumers of one binary interface."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from pytest_transferbench.emulator import Activation

Child = Callable[..., subprocess.CompletedProcess[str]]

PREAMBLE = """
from pytest_transferbench.emulator import activate
activation = activate("mi300x-8")
import cupy
from cupy.cuda import runtime
from hip import hip, hiprtc
import numpy

def check(result):
    error, *values = result if isinstance(result, tuple) else (result,)
    assert error == hip.hipError_t.hipSuccess, error
    return values[0] if len(values) == 1 else tuple(values)
"""


def assert_passes(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def test_both_wheels_read_the_same_properties(activation: Activation, run_child: Child) -> None:
    assert_passes(
        run_child(
            PREAMBLE
            + """
model = activation.model
assert runtime.getDeviceCount() == check(hip.hipGetDeviceCount()) == 8
for index in range(8):
    ours, theirs = runtime.getDeviceProperties(index), check(hip.hipGetDeviceProperties(index))
    assert ours["name"].decode() == str(theirs.name) == "Emulated AMD Instinct MI300X"
    assert ours["gcnArchName"].decode() == str(theirs.gcnArchName) == model.device.arch
    for key in ("totalGlobalMem", "multiProcessorCount", "warpSize", "pciBusID", "pciDeviceID", "pciDomainID", "major",
                "minor", "l2CacheSize", "memoryClockRate", "memoryBusWidth", "isLargeBar", "clockRate",
                "sharedMemPerBlock", "maxThreadsPerBlock", "ECCEnabled", "asicRevision", "managedMemory"):
        assert ours[key] == getattr(theirs, key), key
    assert theirs.asyncEngineCount == 2
    assert ours["multiProcessorCount"] == 304
    assert ours["totalGlobalMem"] == model.reported_memory_bytes == 4 << 30
    assert runtime.deviceGetPCIBusId(index) == model.device.pci[index]
    assert runtime.deviceGetByPCIBusId(model.device.pci[index]) == index
attributes = hip.hipDeviceAttribute_t
for name, value in {"NumberOfXccs": 8, "WallClockRate": 100000, "IsLargeBar": 1, "AsyncEngineCount": 2,
                    "MultiprocessorCount": 304, "FineGrainSupport": 1, "PciBusId": 0xDF, "HostNumaId": 1,
                    "WarpSize": 64, "ComputeCapabilityMajor": 9, "ComputeCapabilityMinor": 4}.items():
    assert check(hip.hipDeviceGetAttribute(getattr(attributes, "hipDeviceAttribute" + name), 7)) == value, name
assert check(hip.hipExtGetLinkTypeAndHopCount(0, 7)) == (4, 1)
"""
        )
    )


def test_cupys_own_kernels_compute(activation: Activation, run_child: Child) -> None:
    assert_passes(
        run_child(
            PREAMBLE
            + """
assert int(cupy.arange(10).sum()) == 45
matrix = cupy.arange(1000, dtype=cupy.float32).reshape(10, 100)
expected = numpy.arange(1000, dtype=numpy.float32).reshape(10, 100)
assert (cupy.asnumpy((matrix * 2 + 1).sum(axis=1)) == (expected * 2 + 1).sum(axis=1)).all()
with cupy.cuda.Device(3):
    assert float((cupy.arange(8).astype(cupy.float16) * 2).max()) == 14
"""
        )
    )


def test_a_raw_module_on_another_device(activation: Activation, run_child: Child) -> None:
    assert_passes(
        run_child(
            PREAMBLE
            + '''
SOURCE = r"""
template <typename T, int K> __global__ void scale(T* p, T by, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) p[i] = p[i] * by + K;
}
extern "C" __global__ void add(int* p, int v, double d, char c, size_t n) {
  if (threadIdx.x < n) p[threadIdx.x] += v + (int)d + c;
}
"""
with cupy.cuda.Device(5):
    module = cupy.RawModule(code=SOURCE, options=("-std=c++17",), name_expressions=["scale<float, 3>"])
    data = cupy.arange(100, dtype=cupy.float32)
    module.get_function("scale<float, 3>")((2,), (64,), (data, numpy.float32(2), numpy.uint64(100)))
    assert (cupy.asnumpy(data) == numpy.arange(100) * 2 + 3).all()
    words = cupy.zeros(64, dtype=cupy.int32)
    add = module.get_function("add")
    add((1,), (64,), (words, numpy.int32(5), numpy.float64(2.5), numpy.int8(1), numpy.uint64(32)))
    assert cupy.asnumpy(words).tolist() == [8] * 32 + [0] * 32
'''
        )
    )


def test_hip_python_compiles_loads_and_launches(activation: Activation, run_child: Child) -> None:
    assert_passes(
        run_child(
            PREAMBLE
            + """
import ctypes
source = (
    b'extern "C" __global__ void add(int* p, int v, double d, char c, size_t n) {'
    b'  if (threadIdx.x < n) p[threadIdx.x] += v + (int)d + c;'
    b'}'
)
program = check(hiprtc.hiprtcCreateProgram(source, b"add.hip", 0, None, None))
options = [b"--std=c++17", b"-O3", b"--offload-arch=gfx942", b"-DX=1"]
assert "SUCCESS" in str(hiprtc.hiprtcCompileProgram(program, len(options), options))
code = bytearray(hiprtc.hiprtcGetCodeSize(program)[1])
hiprtc.hiprtcGetCode(program, code)
function = check(hip.hipModuleGetFunction(check(hip.hipModuleLoadData(code)), b"add"))
words = check(hip.hipMalloc(1024))
check(hip.hipMemset(words, 0, 1024))
arguments = (words, ctypes.c_int(5), ctypes.c_double(2.5), ctypes.c_char(bytes([1])), ctypes.c_size_t(64))
check(hip.hipModuleLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, None, None, arguments))
out = numpy.zeros(256, numpy.int32)
check(hip.hipMemcpy(out, words, 1024, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert out.tolist() == [8] * 64 + [0] * 192
uncached = check(hip.hipExtMallocWithFlags(4096, 3))
attributes = check(hip.hipPointerGetAttributes(uncached))
assert (int(attributes.type), attributes.device, attributes.allocationFlags) == (2, 0, 3)
assert hip.has_symbol("hipMemcpyBatchAsync")
assert not hip.has_symbol("hipNoSuchCall")
# What the runtime does not have is refused by name, not by a crash.
assert str(hip.hipCtxSynchronize()).find("hipErrorNotSupported") >= 0
"""
        )
    )


def test_a_graph_replays_what_cupy_captured(activation: Activation, run_child: Child) -> None:
    assert_passes(
        run_child(
            PREAMBLE
            + """
kernel = cupy.RawKernel('extern "C" __global__ void bump(int* p) { p[threadIdx.x] += 1; }', "bump")
data = cupy.zeros(32, dtype=cupy.int32)
stream = cupy.cuda.Stream(non_blocking=True)
kernel((1,), (32,), (data,))
cupy.cuda.Device().synchronize()
with stream:
    stream.begin_capture()
    for _ in range(4):
        kernel((1,), (32,), (data,))
    graph = stream.end_capture()
    assert cupy.asnumpy(data, stream=stream).max() == 1
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
assert cupy.asnumpy(data).tolist() == [13] * 32
"""
        )
    )


def test_pinned_memory_and_callbacks(activation: Activation, run_child: Child) -> None:
    assert_passes(
        run_child(
            PREAMBLE
            + """
pinned = cupy.cuda.alloc_pinned_memory(4096)
host = numpy.frombuffer(pinned, numpy.uint32, 1024)
host[:] = numpy.arange(1024)
device = cupy.empty(1024, dtype=cupy.uint32)
stream = cupy.cuda.Stream(non_blocking=True)
seen = []
with stream:
    device.set(host, stream=stream)
    stream.launch_host_func(seen.append, "copied")
    stream.synchronize()
assert seen == ["copied"]
assert (cupy.asnumpy(device) == host).all()
assert int(check(hip.hipPointerGetAttributes(pinned.ptr)).type) == 1
"""
        )
    )

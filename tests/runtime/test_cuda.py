from collections.abc import Iterator

import numpy as np
import pytest

import hipkernels
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.runtime.cuda import CudaRuntime
from pytest_transferbench.transfer import Memory

from .fakes import FakeCompileError, FakeCudaError, FakeCudaRuntime, FakeRawModule, install_cupy


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCudaRuntime:
    fake = FakeCudaRuntime()
    install_cupy(monkeypatch, fake)
    monkeypatch.setattr(hipkernels, "source", lambda name: f"source of {name}")
    return fake


@pytest.fixture
def runtime(cuda: FakeCudaRuntime) -> Iterator[CudaRuntime]:
    opened = CudaRuntime()
    yield opened
    opened.close()


def test_device_memory_is_allocated_and_freed_on_its_owner(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    allocation = runtime.allocate(Memory("G", 1), 4096)
    assert (allocation.owner, allocation.nbytes) == (1, 4096)
    runtime.free(allocation)
    assert cuda.calls == [
        ("setDevice", 1),
        ("malloc", 4096),
        ("setDevice", 1),
        ("free", allocation.pointer),
    ]


def test_host_memory_is_pinned_portable_and_mapped(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    allocation = runtime.allocate(Memory("C", 0), 4096)
    assert allocation.owner == HOST
    runtime.free(allocation)
    assert cuda.calls == [("hostAlloc", 4096, 3), ("freeHost", allocation.pointer)]


def test_host_memory_of_another_numa_node_is_refused(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    with pytest.raises(RuntimeFault, match="C1: host memory is C0"):
        runtime.allocate(Memory("C", 1), 4096)
    assert cuda.calls == []


@pytest.mark.parametrize("memory", [Memory("F", 0), Memory("U", 0)])
def test_amd_memory_kinds_are_refused(runtime: CudaRuntime, memory: Memory) -> None:
    with pytest.raises(RuntimeFault, match=rf"^allocate on GPU 0 failed: unsupported {memory}: only G .*AMD's$"):
        runtime.allocate(memory, 4096)


def test_running_out_names_the_call_the_size_and_what_is_free(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    cuda.fail["malloc"] = FakeCudaError(2, "cudaErrorMemoryAllocation: out of memory")
    with pytest.raises(RuntimeFault) as caught:
        runtime.allocate(Memory("G", 0), 4096)
    assert (caught.value.call, caught.value.device, caught.value.code) == ("cudaMalloc", 0, "cudaErrorMemoryAllocation")
    assert str(caught.value) == (
        "cudaMalloc on GPU 0 failed: cudaErrorMemoryAllocation out of memory "
        "(4096 bytes asked for; 700 bytes are free): "
        "use smaller sizes (--transfer-sizes) or a smaller rotation (--transfer-rotate)"
    )


def test_an_enabled_peer_is_enabled_again_without_harm(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    cuda.fail["deviceEnablePeerAccess"] = FakeCudaError(704, "cudaErrorPeerAccessAlreadyEnabled: already")
    runtime.enable_peer(0, 1)
    cuda.fail["deviceEnablePeerAccess"] = FakeCudaError(217, "cudaErrorPeerAccessUnsupported: not supported")
    with pytest.raises(RuntimeFault, match=r"cudaDeviceEnablePeerAccess on GPU 0 .*PeerAccessUnsupported"):
        runtime.enable_peer(0, 1)


def test_a_source_is_compiled_once_for_a_device_and_its_defines(runtime: CudaRuntime) -> None:
    first = runtime.compile(0, "copy", ["a", "b"], {"TB_UNROLL": 8, "TB_BLOCK": 512})
    again = runtime.compile(0, "copy", ["b"], {"TB_BLOCK": 512, "TB_UNROLL": 8})
    runtime.compile(1, "copy", ["a"], {"TB_UNROLL": 8, "TB_BLOCK": 512})
    runtime.compile(0, "copy", ["a"], {"TB_UNROLL": 4, "TB_BLOCK": 512})
    assert again["b"] is first["b"]
    assert len(FakeRawModule.made) == 3
    assert FakeRawModule.made[0].arguments == {
        "code": "source of copy",
        "options": ("-std=c++17", "-DTB_BLOCK=512", "-DTB_UNROLL=8"),
        "backend": "nvrtc",
    }


def test_what_does_not_compile_is_a_fault_with_the_log_and_is_tried_again(runtime: CudaRuntime) -> None:
    FakeRawModule.broken = FakeCompileError('copy.hip(3): error: identifier "x" is undefined')
    with pytest.raises(RuntimeFault, match=r'^compilation of copy.hip on GPU 0 failed: .*identifier "x"'):
        runtime.compile(0, "copy", ["a"], {})
    FakeRawModule.broken = None
    assert runtime.compile(0, "copy", ["a"], {})["a"].name == "a"


def test_a_kernel_that_is_not_in_the_source(runtime: CudaRuntime) -> None:
    with pytest.raises(RuntimeFault, match="cuModuleGetFunction of missing on GPU 0 failed: CUDA_ERROR_NOT_FOUND"):
        runtime.compile(0, "copy", ["missing"], {})


def test_a_launch_runs_on_the_kernels_device_and_the_given_stream(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    kernel = runtime.compile(1, "copy", ["a"], {})["a"]
    stream = runtime.open_stream(1)
    args = (np.uint64(5),)
    cuda.calls.clear()
    runtime.launch(kernel, 64, 512, args, stream)
    assert cuda.calls == [("setDevice", 1)]
    assert FakeRawModule.launches == [("a", (64,), (512,), args, stream.handle)]
    FakeRawModule.launch_fails = FakeCudaError(719, "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")
    with pytest.raises(RuntimeFault, match=r"^cuLaunchKernel of a on GPU 1 failed: CUDA_ERROR_LAUNCH_FAILED "):
        runtime.launch(kernel, 64, 512, args, stream)


def test_a_dma_copy_lets_the_pointers_say_where_they_are(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    stream = runtime.open_stream(0)
    runtime.dma_copy(0x10, 0x20, 64, stream)
    assert cuda.said("memcpyAsync") == [(0x10, 0x20, 64, 4, stream.handle)]


def test_events(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    event = runtime.create_event(0)
    assert runtime.elapsed_seconds(event, event) == pytest.approx(0.0025)
    assert runtime.finished(event)
    cuda.event_status = 600
    assert not runtime.finished(event)
    cuda.event_status = 700
    with pytest.raises(RuntimeFault, match="cudaErrorIllegalAddress"):
        runtime.finished(event)


def test_a_capture_that_fails_leaves_the_stream(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    stream = runtime.open_stream(0)

    def queue() -> None:
        raise RuntimeFault("launch of a", 0, "code")

    with pytest.raises(RuntimeFault, match="launch of a"):
        runtime.capture(stream, queue)
    assert len(cuda.said("streamEndCapture")) == 1
    assert cuda.said("graphInstantiate") == []


def test_a_graph_replays_and_is_destroyed_with_its_last_holder(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    stream = runtime.open_stream(0)
    replay = runtime.capture(stream, lambda: None)
    replay()
    ((executable, handle),) = cuda.said("graphLaunch")
    assert handle == stream.handle
    assert cuda.said("graphExecDestroy") == []
    del replay
    assert cuda.said("graphExecDestroy") == [(executable,)]


def test_arrays_are_views_of_the_allocation(runtime: CudaRuntime) -> None:
    allocation = runtime.allocate(Memory("G", 1), 4096)
    shape, kind, (memory, offset) = runtime.array(allocation, 256, 1024)
    assert (shape, kind, offset) == ((256,), "uint32", 256)
    assert memory == (allocation.pointer, 4096, allocation, 1)


def test_reading_and_writing_pinned_memory_needs_no_device(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    words = np.arange(4, dtype=np.uint32)
    runtime.write(words.ctypes.data, bytes(8), HOST)
    assert runtime.read(words.ctypes.data, 16, HOST) == bytes(8) + words[2:].tobytes()
    assert cuda.calls == []


def test_writing_a_device_returns_when_the_bytes_are_there(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    runtime.write(0x40, b"1234", 1)
    assert [call[0] for call in cuda.calls] == ["setDevice", "memcpy", "streamSynchronize"]


def test_stamps_and_deadlines_count_nanoseconds(runtime: CudaRuntime) -> None:
    assert runtime.stamp_hz(0) == runtime.deadline_hz(0) == 1e9


def test_closing_goes_on_when_the_device_is_lost(cuda: FakeCudaRuntime) -> None:
    opened = CudaRuntime()
    opened.open_stream(0)
    opened.open_stream(1)
    cuda.fail["streamDestroy"] = FakeCudaError(700, "cudaErrorIllegalAddress: an illegal memory access")
    opened.close()
    assert len(cuda.said("streamDestroy")) == 2

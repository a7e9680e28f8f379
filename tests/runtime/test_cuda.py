import errno
import mmap
from collections.abc import Iterator

import numpy as np
import pytest

import hipkernels
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.runtime.cuda import CudaRuntime
from pytest_transferbench.transfer import Memory

from .fakes import FakeCompileError, FakeCudaError, FakeCudaRuntime, FakeRawModule, install_cupy, place_pages


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


def test_host_memory_closest_to_a_gpu_is_that_of_its_numa_node(cuda: FakeCudaRuntime) -> None:
    runtime = CudaRuntime({0: 0, 1: None})
    assert runtime.allocate(Memory("P", 0), 4096).owner == HOST
    with pytest.raises(RuntimeFault, match="P1: nobody knows the NUMA node closest to GPU 1"):
        runtime.allocate(Memory("P", 1), 4096)
    assert len(cuda.said("hostAlloc")) == 1


def test_a_numa_node_that_there_is_not_is_the_kernels_refusal(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    with pytest.raises(RuntimeFault, match=r"^set_mempolicy on the host failed: EINVAL C1000 on NUMA node 1000: "):
        runtime.allocate(Memory("C", 1000), 4096)
    assert cuda.calls == []


def test_pinned_memory_on_the_wrong_node_is_a_fault_and_given_back(
    cuda: FakeCudaRuntime, runtime: CudaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_pages(monkeypatch, lambda page: 1 if page < 2 else 0)
    with pytest.raises(RuntimeFault, match=r"C0: 2 of \d pages are on NUMA node 1, not on 0"):
        runtime.allocate(Memory("C", 0), 4 * mmap.PAGESIZE)
    assert len(cuda.said("hostAlloc")) == len(cuda.said("freeHost")) == 1


def test_pinned_memory_that_cannot_be_looked_at_says_so(
    cuda: FakeCudaRuntime, runtime: CudaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_pages(monkeypatch, OSError(errno.EPERM, "Operation not permitted", "move_pages"))
    assert runtime.allocate(Memory("C", 0), 4096).unchecked == (
        "placement of host memory could not be checked: move_pages is denied (EPERM): "
        "start the container with --cap-add=SYS_NICE or --security-opt seccomp=unconfined"
    )
    assert cuda.said("freeHost") == []


def test_unpinned_memory_is_nobodys_but_the_hosts(cuda: FakeCudaRuntime, runtime: CudaRuntime) -> None:
    allocation = runtime.allocate(Memory("H", 0), 4096)
    runtime.write(allocation.pointer, b"abcd", HOST)
    assert runtime.read(allocation.pointer, 8, HOST) == b"abcd" + bytes(4)
    runtime.free(allocation)
    assert cuda.calls == []


def test_managed_memory_is_moved_to_its_gpu_for_good(
    cuda: FakeCudaRuntime, runtime: CudaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_pages(monkeypatch, lambda page: -errno.ENOENT)
    allocation = runtime.allocate(Memory("M", 1), 4096)
    where = allocation.pointer, 4096
    assert allocation.owner == 1
    assert cuda.calls == [
        ("setDevice", 1),
        ("mallocManaged", 4096, 1),
        ("memAdvise", *where, 3, 1),
        ("memPrefetchAsync", *where, 1, 0),
        ("streamSynchronize", 0),
    ]


def test_managed_memory_that_stays_on_the_host_is_a_fault_and_given_back(
    cuda: FakeCudaRuntime, runtime: CudaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_pages(monkeypatch, lambda page: 0 if page == 0 else -errno.ENOENT)
    with pytest.raises(
        RuntimeFault, match=r"^placement on GPU 0 failed: NotPrefetched M0: 1 of \d pages stayed on the "
    ):
        runtime.allocate(Memory("M", 0), 2 * mmap.PAGESIZE)
    assert len(cuda.said("free")) == 1
    cuda.fail["memPrefetchAsync"] = FakeCudaError(101, "cudaErrorInvalidDevice: invalid device ordinal")
    with pytest.raises(RuntimeFault, match=r"^cudaMemPrefetchAsync on GPU 0 failed: cudaErrorInvalidDevice .* \(M0\)$"):
        runtime.allocate(Memory("M", 0), 4096)
    assert len(cuda.said("free")) == 2


@pytest.mark.parametrize("letter", "BDK")
def test_amd_host_memory_is_refused(cuda: FakeCudaRuntime, runtime: CudaRuntime, letter: str) -> None:
    with pytest.raises(
        RuntimeFault, match=rf"^allocate on the host failed: unsupported {letter}0: pinned memory is C "
    ):
        runtime.allocate(Memory(letter, 0), 4096)
    assert cuda.calls == []


@pytest.mark.parametrize("memory", [Memory("F", 0), Memory("U", 0)])
def test_amd_device_memory_is_refused(runtime: CudaRuntime, memory: Memory) -> None:
    with pytest.raises(
        RuntimeFault, match=rf"^allocate on GPU 0 failed: unsupported {memory}: device memory is G or M"
    ):
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

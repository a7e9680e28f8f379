"""The ROCm adapter on the unmodified wheels, over the emulated runtime."""

from collections.abc import Iterator

import numpy as np
import pytest

from pytest_transferbench.emulator import activate, load_model
from pytest_transferbench.node import HOST, LinkClass, Node
from pytest_transferbench.runtime import (
    Allocation,
    ProbeError,
    Runtime,
    RuntimeFault,
    Telemetry,
    open_runtime,
    probe_node,
    rocm,
)
from pytest_transferbench.transfer import Memory, memory_kind

MODEL = "mi300x-8"
NBYTES = 1 << 20


@pytest.fixture(scope="module")
def node() -> Node:
    return probe_node("emulator", MODEL)


@pytest.fixture(scope="module")
def runtime(node: Node) -> Iterator[Runtime]:
    opened = open_runtime(node, MODEL)
    yield opened
    opened.close()


@pytest.fixture
def pair(runtime: Runtime) -> Iterator[tuple[Allocation, Allocation]]:
    pair = runtime.allocate(Memory("G", 0), NBYTES), runtime.allocate(Memory("G", 1), NBYTES)
    yield pair
    for allocation in pair:
        runtime.free(allocation)


def words(runtime: Runtime, allocation: Allocation) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.frombuffer(runtime.read(allocation.pointer, allocation.nbytes, allocation.owner), dtype=np.uint32)


def test_the_node(node: Node) -> None:
    assert (node.runtime, node.emulated, len(node.devices)) == ("rocm", MODEL, 8)
    device = node.device(7)
    assert device.name.startswith("Emulated ")
    assert (device.arch, device.compute_units, device.xccs, device.last_level_cache_bytes) == (
        "gfx942",
        304,
        8,
        256 << 20,
    )
    assert device.memory_gbps == pytest.approx(5324.8)
    for a in range(8):
        for b in range(8):
            link = node.link(a, b)
            assert link.link_class is (LinkClass.LOCAL if a == b else LinkClass.XGMI)
            assert link.peer_access
    assert node.link(0, 1).source_of_rate.startswith("KFD ")
    assert node.link(HOST, 0).link_class is LinkClass.HOST
    assert "ROCM_PATH" not in node.environment
    assert Telemetry(node).snapshot() == {}


def test_partitions_are_told_apart_by_their_pci_address() -> None:
    found = probe_node("emulator", "gfx1250-dpx")
    assert [device.pci for device in found.devices] == list(load_model("gfx1250-dpx").device.pci)
    assert found.link(0, 1).link_class is LinkClass.ON_DIE


def test_an_unknown_model_is_one_line() -> None:
    with pytest.raises(ProbeError, match="nosuch") as caught:
        probe_node("auto", "nosuch")
    assert len(str(caught.value).splitlines()) == 1


def test_dma_copies_move_every_byte_on_the_stream_and_take_virtual_time(
    runtime: Runtime, pair: tuple[Allocation, Allocation]
) -> None:
    source, destination = pair
    pattern = np.arange(NBYTES // 4, dtype=np.uint32)
    runtime.write(source.pointer, pattern.tobytes(), 0)
    stream, start, stop = runtime.open_stream(0), runtime.create_event(0), runtime.create_event(0)
    runtime.enable_peer(0, 1)
    runtime.enable_peer(0, 1)
    runtime.record(start, stream)
    runtime.dma_copy(destination.pointer, source.pointer, NBYTES, stream)
    runtime.record(stop, stream)
    runtime.synchronize(stream)
    assert runtime.finished(stop)
    assert runtime.elapsed_seconds(start, stop) > 0
    assert (words(runtime, destination) == pattern).all()
    runtime.destroy_event(start)
    runtime.destroy_event(stop)
    runtime.close_stream(stream)


def test_a_kernel_is_compiled_by_hiprtc_loaded_and_run(runtime: Runtime, pair: tuple[Allocation, Allocation]) -> None:
    destination, _ = pair
    stamps = runtime.allocate(Memory("C", 0), 4096)
    defines = {"TB_BLOCK": 256, "TB_UNROLL": 2}
    kernel = runtime.compile(0, "copy", ["tb_write"], defines)["tb_write"]
    assert runtime.compile(0, "copy", ["tb_write"], defines)["tb_write"] is kernel
    stream = runtime.open_stream(0)
    args = (
        np.uint64(destination.pointer),
        np.uint64(NBYTES),
        np.uint32(0),
        np.uint32(1),
        np.uint64(stamps.pointer),
    )
    runtime.launch(kernel, 4, 256, args, stream)
    runtime.synchronize(stream)
    assert len(np.unique(words(runtime, destination))) == NBYTES // 4
    first, last = runtime.array(stamps, 0, 16).view(np.uint64)
    assert last > first
    assert runtime.stamp_hz(0) == 1e8
    assert runtime.deadline_hz(0) == 1e8
    replay = runtime.capture(stream, lambda: runtime.launch(kernel, 4, 256, args, stream))
    runtime.write(destination.pointer, bytes(NBYTES), 0)
    replay()
    runtime.synchronize(stream)
    assert words(runtime, destination).any()
    runtime.close_stream(stream)
    runtime.free(stamps)


@pytest.mark.parametrize("kind", "CPBDKHGFUM")
@pytest.mark.parametrize("index", [0, 5])
def test_every_memory_kind_holds_what_is_written(runtime: Runtime, node: Node, kind: str, index: int) -> None:
    by_gpu = memory_kind(kind).by_gpu or memory_kind(kind).on == "device"
    allocation = runtime.allocate(Memory(kind, index if by_gpu else index % 2), 4096)
    assert allocation.pointer % 256 == 0
    assert allocation.unchecked == ""
    runtime.write(allocation.pointer, b"\xa5" * 4096, allocation.owner)
    assert runtime.read(allocation.pointer, 4096, allocation.owner) == b"\xa5" * 4096
    assert runtime.array(allocation, 1024, 2048).shape == (512,)
    runtime.free(allocation)


def test_host_memory_lies_on_the_numa_node_asked_for(runtime: Runtime, node: Node) -> None:
    assert [(numa_node.index, numa_node.cpus) for numa_node in node.numa_nodes] == [(0, 4), (1, 4)]
    native = activate(MODEL)
    for kind in "CBDK":
        for numa_node in (1, 0):
            allocation = runtime.allocate(Memory(kind, numa_node), 4096)
            assert native.numa_node_of(allocation.pointer + 8) == numa_node
            runtime.free(allocation)
    for gpu, numa_node in ((3, 0), (4, 1)):
        allocation = runtime.allocate(Memory("P", gpu), 4096)
        assert native.numa_node_of(allocation.pointer) == numa_node
        runtime.free(allocation)
    for kind in "CH":
        with pytest.raises(RuntimeFault, match=rf"^set_mempolicy on the host failed: EINVAL {kind}2 on NUMA node 2: "):
            runtime.allocate(Memory(kind, 2), 4096)


def test_pinned_memory_that_ignores_the_policy_is_on_the_wrong_node(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is of what the runtime did, not of what it was asked for."""
    monkeypatch.setattr(rocm, "HOST_NUMA_USER", 0)
    before = activate(MODEL).counters()
    runtime.free_bytes(0)  # makes GPU 0, which is on node 0, the current device
    runtime.free(runtime.allocate(Memory("C", 0), 4096))
    with pytest.raises(
        RuntimeFault, match="placement on the host failed: WrongNumaNode C1: 4 of 4 pages are on NUMA node 0"
    ):
        runtime.allocate(Memory("C", 1), 16384)
    assert activate(MODEL).counters() == before


def test_managed_memory_that_was_not_prefetched_is_a_fault(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = runtime._cuda  # type: ignore[attr-defined]  # the call that a driver may take and not carry out
    prefetch = cuda.memPrefetchAsync
    monkeypatch.setattr(cuda, "memPrefetchAsync", lambda at, nbytes, gpu, stream: prefetch(at, nbytes, HOST, stream))
    before = activate(MODEL).counters()
    with pytest.raises(
        RuntimeFault, match=r"placement on GPU 2 failed: NotPrefetched M2: 2 of 2 pages stayed on the host"
    ):
        runtime.allocate(Memory("M", 2), 8192)
    assert activate(MODEL).counters() == before


def test_host_copies_move_the_virtual_clock(runtime: Runtime) -> None:
    source, destination = (runtime.allocate(Memory("C", 0), NBYTES) for _ in range(2))
    runtime.write(source.pointer, b"\x5a" * NBYTES, HOST)
    begun = runtime.host_clock()
    runtime.host_copy([destination.pointer], [source.pointer], NBYTES, 4)
    assert runtime.host_clock() > begun
    assert runtime.read(destination.pointer, NBYTES, HOST) == b"\x5a" * NBYTES
    with pytest.raises(RuntimeFault, match=r"^host copy on the host failed: EmulatorError "):
        runtime.host_copy([destination.pointer], [source.pointer], 1 << 30, 4)
    for allocation in (source, destination):
        runtime.free(allocation)


def test_faults_name_call_device_and_code(runtime: Runtime, node: Node) -> None:
    with pytest.raises(RuntimeFault, match=r"^hipMalloc on GPU 3 failed: hipErrorOutOfMemory ") as caught:
        runtime.allocate(Memory("G", 3), node.device(3).memory_bytes * 2)
    assert (caught.value.call, caught.value.device, caught.value.code) == ("hipMalloc", 3, "hipErrorOutOfMemory")
    with pytest.raises(RuntimeFault, match=r"^hipExtMallocWithFlags on GPU 3 failed: hipErrorOutOfMemory "):
        runtime.allocate(Memory("U", 3), node.device(3).memory_bytes * 2)
    with pytest.raises(RuntimeFault, match=r"^hipSetDevice on GPU 99 failed: hipErrorInvalidDevice "):
        runtime.open_stream(99)
    with pytest.raises(RuntimeFault, match=r"^compilation of copy.hip on GPU 0 failed: HIPRTC_ERROR_COMPILATION "):
        runtime.compile(0, "copy", ["tb_copy"], {"TB_BLOCK": "(", "TB_UNROLL": 1})
    with pytest.raises(RuntimeFault, match=r"^hipModuleGetFunction of nothing on GPU 0 failed: hipErrorNotFound "):
        runtime.compile(0, "copy", ["nothing"], {"TB_BLOCK": 256, "TB_UNROLL": 2})


def test_what_is_free_is_less_after_an_allocation(runtime: Runtime) -> None:
    before = runtime.free_bytes(2)
    allocation = runtime.allocate(Memory("G", 2), 64 << 20)
    assert runtime.free_bytes(2) <= before - (64 << 20)
    runtime.free(allocation)
    assert runtime.free_bytes(2) == before

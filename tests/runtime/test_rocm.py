from pathlib import Path
from types import SimpleNamespace

import pytest

import hipkernels
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.runtime.hip_api import HipApi
from pytest_transferbench.runtime.host import RealHost
from pytest_transferbench.runtime.rocm import EmulatedHost, RocmRuntime
from pytest_transferbench.transfer import Memory

from .fakes import FakeCudaRuntime, FakeHip, FakeHipProperties, FakeHiprtc, FakeRawModule, HipCode, install_cupy


class Bench:
    """A ROCm runtime on fakes, with the fakes at hand."""

    def __init__(self, code_folder: Path) -> None:
        self.hip = FakeHip([FakeHipProperties(), FakeHipProperties(pciBusID=6)])
        self.compiler = FakeHiprtc()
        self.code_folder = code_folder
        self.runtime = self.open()

    def open(self, emulated: bool = False) -> RocmRuntime:
        return RocmRuntime(RealHost(), HipApi(self.hip, self.compiler), self.code_folder, emulated, {0: 0, 1: 0})


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCudaRuntime:
    fake = FakeCudaRuntime()
    install_cupy(monkeypatch, fake)
    monkeypatch.setattr(hipkernels, "source", lambda name: f"source of {name}")
    return fake


@pytest.fixture
def bench(cuda: FakeCudaRuntime, tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_fine_and_uncached_memory_come_from_hip_with_their_flags(cuda: FakeCudaRuntime, bench: Bench) -> None:
    fine = bench.runtime.allocate(Memory("F", 1), 4096)
    uncached = bench.runtime.allocate(Memory("U", 1), 8192)
    bench.runtime.allocate(Memory("G", 0), 64)
    assert bench.hip.allocations == [(4096, 1), (8192, 3)]
    assert (fine.owner, uncached.owner) == (1, 1)
    assert cuda.said("malloc") == [(64,)]
    assert cuda.said("setDevice")[:2] == [(1,), (1,)]


@pytest.mark.parametrize(
    ("letter", "flags"), [("C", 0x60000003), ("P", 0x60000003), ("B", 0x60000003), ("D", 0xA0000001), ("K", 0x30000003)]
)
def test_pinned_memory_has_its_kinds_flags_and_follows_the_threads_policy(
    cuda: FakeCudaRuntime, bench: Bench, letter: str, flags: int
) -> None:
    bench.runtime.allocate(Memory(letter, 0), 4096)
    assert cuda.said("hostAlloc") == [(4096, flags)]


def test_unpinned_memory_is_copied_by_no_kind_that_names_a_device(cuda: FakeCudaRuntime, bench: Bench) -> None:
    unpinned, pinned = (bench.runtime.allocate(Memory(letter, 0), 8192) for letter in "HC")
    stream = bench.runtime.open_stream(0)
    for source, kind in ((unpinned.pointer + 4096, 4), (pinned.pointer, 1024)):
        bench.runtime.dma_copy(0x7000, source, 4096, stream)
        bench.runtime.dma_copy(source, 0x7000, 4096, stream)
        assert [copy[3] for copy in cuda.said("memcpyAsync")[-2:]] == [kind, kind]
    bench.runtime.free(unpinned)
    bench.runtime.dma_copy(0x7000, unpinned.pointer, 4096, stream)
    assert cuda.said("memcpyAsync")[-1][3] == 1024


def test_hips_own_failure_is_a_fault_like_any_other(bench: Bench) -> None:
    bench.hip.fail["hipExtMallocWithFlags"] = HipCode.hipErrorOutOfMemory
    call = "hipExtMallocWithFlags"
    with pytest.raises(RuntimeFault, match=rf"^{call} on GPU 0 failed: hipErrorOutOfMemory out of memory \(4096 bytes"):
        bench.runtime.allocate(Memory("U", 0), 4096)


def test_a_clock_whose_rate_cannot_be_asked_is_a_fault_and_no_rate_of_zero(bench: Bench) -> None:
    bench.hip.fail["hipDeviceGetAttribute"] = HipCode.hipErrorNoDevice
    with pytest.raises(RuntimeFault, match=r"^hipDeviceGetAttribute on GPU 1 failed: hipErrorNoDevice "):
        bench.runtime.stamp_hz(1)


def test_host_memory_is_coherent(cuda: FakeCudaRuntime, bench: Bench) -> None:
    bench.runtime.allocate(Memory("C", 0), 4096)
    assert cuda.said("hostAlloc") == [(4096, 0x60000003)]


def test_a_dma_copy_is_the_one_that_no_shader_makes(cuda: FakeCudaRuntime, bench: Bench) -> None:
    stream = bench.runtime.open_stream(1)
    bench.runtime.dma_copy(0x10, 0x20, 64, stream)
    assert cuda.said("memcpyAsync") == [(0x10, 0x20, 64, 1024, stream.handle)]


def test_kernels_are_compiled_once_for_all_processes_and_loaded_by_path(bench: Bench) -> None:
    bench.runtime.compile(0, "copy", ["tb_copy"], {"TB_UNROLL": 8})
    bench.open().compile(1, "copy", ["tb_copy"], {"TB_UNROLL": 8})
    assert bench.compiler.compiled == [
        [b"-std=c++17", b"-DTB_UNROLL=8", b"--offload-arch=gfx942:sramecc+:xnack-"],
    ]
    (path,) = {module.arguments["path"] for module in FakeRawModule.made}
    assert Path(path).read_bytes() == b"\x7fELF code"


def test_what_makes_other_code_is_compiled_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_again(defines: dict[str, int], device: int = 0) -> int:
        bench.open().compile(device, "copy", ["tb_copy"], defines)
        return len(bench.compiler.compiled)

    assert compile_again({}) == 1
    assert compile_again({"TB_UNROLL": 4}) == 2
    bench.hip.devices[1].gcnArchName = b"gfx950"
    assert compile_again({}, 1) == 3
    monkeypatch.setattr(hipkernels, "source", lambda name: "another source")
    assert compile_again({}) == 4
    monkeypatch.setattr(bench.compiler, "hiprtcVersion", lambda: (HipCode.hipSuccess, 8, 0))
    assert compile_again({}) == 5


def test_what_does_not_compile_leaves_nothing_in_the_cache(bench: Bench) -> None:
    bench.compiler.log = "copy.hip:1:1: error: expected identifier"
    with pytest.raises(RuntimeFault, match=r"^compilation of copy.hip on GPU 0 failed: HIPRTC_ERROR_COMPILATION copy"):
        bench.runtime.compile(0, "copy", ["tb_copy"], {})
    assert list(bench.code_folder.iterdir()) == []


@pytest.mark.parametrize(("khz", "hz"), [(100_000, 1e8), (0, 0.0)])
def test_the_stamp_clock_is_what_hip_says_even_when_that_is_nothing(bench: Bench, khz: int, hz: float) -> None:
    bench.hip.attributes["WallClockRate"] = khz
    assert bench.runtime.stamp_hz(0) == bench.runtime.deadline_hz(0) == hz


def test_on_an_emulated_node_deadlines_keep_real_time(bench: Bench) -> None:
    bench.hip.attributes["WallClockRate"] = 0
    emulated = bench.open(emulated=True)
    assert emulated.emulated
    assert (emulated.stamp_hz(0), emulated.deadline_hz(0)) == (0.0, 1e8)


def test_an_emulated_hosts_work_is_the_emulators(cuda: FakeCudaRuntime, bench: Bench) -> None:
    done: list[tuple[object, ...]] = []
    activation = SimpleNamespace(
        host_copy=lambda *arguments: done.append(arguments), host_clock=lambda: 12, numa_root=Path("/nowhere")
    )
    runtime = RocmRuntime(EmulatedHost(activation), HipApi(bench.hip, bench.compiler), bench.code_folder, True)
    runtime.host_copy([0x10], [0x20], 64, 4)
    assert (done, runtime.host_clock()) == ([([0x10], [0x20], 64, 4)], 12.0)
    runtime.close()

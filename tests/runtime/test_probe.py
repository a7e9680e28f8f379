"""The child's side: what each first-day failure says."""

import json
import os
from pathlib import Path

import pytest

from pytest_transferbench.node import Node
from pytest_transferbench.runtime import ProbeError, cuda_facts, host_facts, probe

from .fakes import FakeCudaError, FakeCudaRuntime, FakeNvml, install_cupy


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The installed CuPy distributions, for a test to fill."""
    names: list[str] = []
    monkeypatch.setattr(host_facts, "cupy_wheels", lambda: tuple(names))
    return names


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, wheels: list[str]) -> FakeCudaRuntime:
    wheels.append("cupy-cuda13x")
    fake = FakeCudaRuntime()
    install_cupy(monkeypatch, fake)
    nvml = FakeNvml(nvmlShutdown=lambda: None)
    monkeypatch.setattr(cuda_facts, "open_nvml", lambda: (nvml, ""))
    return fake


def test_without_cupy_the_extra_is_named(wheels: list[str]) -> None:
    with pytest.raises(
        ProbeError, match=r"^no CUDA: CuPy is not installed; pip install 'pytest-transferbench\[cuda13\]'$"
    ):
        probe.probe("cuda", None)
    with pytest.raises(
        ProbeError, match=r"^no ROCm: CuPy is not installed; pip install 'pytest-transferbench\[rocm\]'$"
    ):
        probe.probe("rocm", None)


def test_without_cupy_there_is_no_emulated_node(wheels: list[str]) -> None:
    with pytest.raises(
        ProbeError, match=r"^no emulated node: CuPy is not installed; pip install 'pytest-transferbench\[emulator\]'$"
    ):
        probe.probe("emulator", "mi300x-8")


def test_the_other_vendors_cupy_is_named(wheels: list[str]) -> None:
    wheels.append("cupy-cuda13x")
    with pytest.raises(ProbeError, match=r"^no ROCm: cupy-cuda13x is installed instead; "):
        probe.probe("rocm", None)


def test_a_cuda_node(cuda: FakeCudaRuntime) -> None:
    node = probe.probe("cuda", None)
    assert (node.runtime, len(node.devices)) == ("cuda", 2)


def test_missing_nvml_is_a_note(cuda: FakeCudaRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_facts, "open_nvml", lambda: (None, "NVML is not read: install nvidia-ml-py"))
    assert "NVML is not read: install nvidia-ml-py" in probe.probe("cuda", None).notes


@pytest.mark.parametrize("count", [0, None])
def test_no_cuda_device_is_an_error_when_cuda_was_asked_for(cuda: FakeCudaRuntime, count: int | None) -> None:
    if count is None:
        cuda.fail["getDeviceCount"] = FakeCudaError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
    else:
        cuda.count = count
    with pytest.raises(ProbeError, match=r"^no CUDA device: ") as caught:
        probe.probe("cuda", None)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_driver_file_is_mentioned(cuda: FakeCudaRuntime, tmp_path: Path) -> None:
    cuda.fail["getDeviceCount"] = FakeCudaError(35, "cudaErrorInsufficientDriver: driver is insufficient")
    with pytest.raises(ProbeError, match=r"nvidiactl is not there: no driver, or a container without --gpus$"):
        probe.probe_cuda(tmp_path / "nvidiactl")


def test_auto_without_any_gpu_is_the_host_and_says_what_was_looked_for(wheels: list[str]) -> None:
    node = probe.probe("auto", None)
    assert (node.runtime, node.devices) == ("host", ())
    assert node.why_no_gpu is not None
    assert "no ROCm: " in node.why_no_gpu
    assert "no CUDA: " in node.why_no_gpu


def test_auto_takes_cuda_where_there_is_no_rocm(cuda: FakeCudaRuntime) -> None:
    assert probe.probe("auto", None).runtime == "cuda"


def test_auto_prefers_rocm(cuda: FakeCudaRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe_rocm", lambda: Node(runtime="rocm"))
    assert probe.probe("auto", None).runtime == "rocm"


def test_a_missing_kfd_names_the_container_flags(wheels: list[str], tmp_path: Path) -> None:
    wheels.append("cupy-rocm-7-0")
    with pytest.raises(
        ProbeError, match=r"kfd is not there; load the amdgpu driver, .*--device=/dev/kfd --device=/dev/dri$"
    ):
        probe.probe_rocm(tmp_path / "kfd")


def test_a_closed_kfd_names_the_group(wheels: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels.append("cupy-rocm-7-0")
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ProbeError, match=r"kfd is not accessible; .*usermod -aG render,video.*--group-add render"):
        probe.probe_rocm(tmp_path / "kfd")


def missing(library: str) -> ImportError:
    """An import error as CuPy raises it: its own many lines around the loader's one."""
    loader = ImportError(f"{library}: cannot open shared object file: No such file or directory")
    wrapped = ImportError("\n====\nFailed to import CuPy.\n\nOriginal error:\n  ImportError\n====\n")
    wrapped.__cause__ = loader
    return wrapped


def why(error: ImportError, *roots: Path) -> str:
    line = probe.why_import_failed("ROCm", "CuPy", "rocm", error, [str(root) for root in roots])
    assert len(line.splitlines()) == 1
    return line


@pytest.fixture
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_LIBRARY_PATH", "ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_bare_environment")
class TestWhyImportFailed:
    def test_rocm_6_under_a_wheel_for_rocm_7(self, tmp_path: Path) -> None:
        (tmp_path / "libamdhip64.so.6").touch()
        assert why(missing("libamdhip64.so.7"), tmp_path) == (
            f"no ROCm: CuPy needs libamdhip64.so.7, but this machine has {tmp_path}/libamdhip64.so.6: upgrade ROCm to 7"
        )

    def test_the_library_is_there_and_not_looked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "lib"
        folder.mkdir()
        (folder / "librocfft.so.0").touch()
        monkeypatch.setenv("ROCM_PATH", str(tmp_path))
        assert why(missing("librocfft.so.0")) == (
            f"no ROCm: CuPy does not find librocfft.so.0, which is in {folder}: set LD_LIBRARY_PATH={folder}"
        )

    def test_the_exact_library_is_named(self, tmp_path: Path) -> None:
        assert why(missing("libroctracer64.so.4"), tmp_path) == (
            "no ROCm: CuPy needs libroctracer64.so.4, which is not on this machine: install ROCm"
        )

    def test_a_library_without_its_development_link(self, tmp_path: Path) -> None:
        (tmp_path / "libamdhip64.so.7").touch()
        error = ImportError("failed to dlopen 'b'libamdhip64.so'': b'libamdhip64.so: cannot open shared object file'")
        assert f"make {tmp_path}/libamdhip64.so a link to it" in why(error, tmp_path)

    def test_the_package_is_missing(self) -> None:
        error = ModuleNotFoundError("No module named 'hip'")
        assert why(error) == "no ROCm: CuPy is not installed; pip install 'pytest-transferbench[rocm]'"

    def test_anything_else_is_quoted(self) -> None:
        assert why(ImportError("undefined symbol: x\nmore")) == "no ROCm: CuPy does not load: undefined symbol: x"


def test_the_command_prints_one_line_of_json(capsys: pytest.CaptureFixture[str], wheels: list[str]) -> None:
    assert probe.main(["--runtime", "host"]) == 0
    assert Node.from_json(json.loads(capsys.readouterr().out)).runtime == "host"
    assert probe.main(["--runtime", "cuda"]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith("no CUDA")


def test_the_unexpected_is_one_line_and_a_traceback_beside_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(runtime: str, emulate: str | None) -> Node:
        raise OSError("strange\nindeed")

    monkeypatch.setattr(probe, "probe", explode)
    assert probe.main([]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": "probing failed: OSError: strange"}
    assert "Traceback" in captured.err


def test_the_wrong_build_of_cupy_is_found_out(cuda: FakeCudaRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCudaRuntime, "is_hip", True)
    with pytest.raises(ProbeError, match=r"^no CUDA: the installed CuPy is the ROCm build; "):
        probe.probe("cuda", None)


def test_an_emulators_refusal_is_the_probes(wheels: list[str]) -> None:
    wheels.append("cupy-rocm-7-0")
    with pytest.raises(ProbeError, match="nosuch") as caught:
        probe.probe("auto", "nosuch")
    assert len(str(caught.value).splitlines()) == 1

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_transferbench.node import Device, Node
from pytest_transferbench.runtime import telemetry
from pytest_transferbench.runtime.telemetry import Telemetry, foreign_processes, link_bytes, reasons_to_reject

from .fakes import FakeNvml, FakeNvmlError, field


def node(runtime: str, emulated: str | None = None) -> Node:
    devices = tuple(Device(index, "GPU", "", f"0000:{0x18 + index:02x}:00.0", 1, 1) for index in range(2))
    return Node(runtime=runtime, devices=devices, emulated=emulated)


def nvml(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> FakeNvml:
    fake = FakeNvml(
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0x4,
        nvmlDeviceGetClockInfo=lambda handle, clock: {1: 1980, 2: 3201}[clock],
        nvmlDeviceGetTemperature=lambda handle, sensor: 41,
        nvmlDeviceGetPowerUsage=lambda handle: 120_500,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=os.getpid())],
        nvmlDeviceGetFieldValues=lambda handle, wanted: [
            field(number, {138: 700, 139: 900, 269: 5, 270: 0}.get(number, 0), 3 if number == 271 else 0)
            for number, _ in wanted
        ],
        nvmlShutdown=lambda: None,
        **answers,
    )
    monkeypatch.setattr(telemetry, "open_nvml", lambda: (fake, ""))
    return fake


def test_nvmls_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch)
    reader = Telemetry(node("cuda"))
    snapshot = reader.snapshot()
    assert list(snapshot) == ["0", "1"]
    assert snapshot["0"] == {
        "gfx_mhz": 1980,
        "memory_mhz": 3201,
        "temperature_c": 41,
        "power_w": 120.5,
        "slowdowns": [],
        "clock_reasons": 4,
        "link_sent_kib": 700,
        "link_received_kib": 900,
        "slowdown_counts": {"thermal slowdown by the driver": 5, "thermal slowdown by the hardware": 0},
    }
    assert list(reader.snapshot([1])) == ["1"]
    assert reasons_to_reject(snapshot, reader.snapshot()) == ()
    reader.close()
    assert reader.snapshot() == {}


def test_readings_that_are_not_there_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = nvml(monkeypatch)
    fake.answers = {
        name: answer if name == "nvmlDeviceGetHandleByPciBusId" else FakeNvmlError("not supported")
        for name, answer in fake.answers.items()
    }
    assert Telemetry(node("cuda")).snapshot() == {"0": {}, "1": {}}


@pytest.mark.parametrize("what", [node("cuda", emulated="mi300x-8"), node("host"), node("rocm", emulated="mi300x-8")])
def test_no_source_no_readings(what: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected() -> None:
        raise AssertionError("a source was opened")

    monkeypatch.setattr(telemetry, "open_nvml", unexpected)
    monkeypatch.setattr(telemetry, "open_amdsmi", unexpected)
    assert Telemetry(what).snapshot() == {}


def test_amdsmis_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    smi = ModuleType("amdsmi")
    table = {
        "current_gfxclk": 2100,
        "current_uclk": 1300,
        "temperature_hotspot": 55,
        "current_socket_power": 300,
        "prochot_residency_acc": 0,
        "ppt_residency_acc": 999,
        "socket_thm_residency_acc": 3,
        "vr_thm_residency_acc": "N/A",
        "xgmi_read_data_acc": [1, 2, "N/A"],
        "xgmi_write_data_acc": "N/A",
    }
    vars(smi).update(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handle_from_bdf=lambda pci: pci,
        amdsmi_get_gpu_metrics_info=lambda handle: table,
        amdsmi_get_gpu_process_list=lambda handle: [{"pid": os.getpid()}],
        amdsmi_shut_down=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    reader = Telemetry(node("rocm"))
    before = reader.snapshot()
    assert before["0"] == {
        "gfx_mhz": 2100,
        "memory_mhz": 1300,
        "temperature_c": 55,
        "power_w": 300,
        "slowdown_counts": {"processor hot": 0, "thermal limit of the socket": 3},
        "link_received_kib": 3,
    }
    table["ppt_residency_acc"] = 1999
    assert reasons_to_reject(before, reader.snapshot()) == ()
    table["socket_thm_residency_acc"] = 4
    assert reasons_to_reject(before, reader.snapshot([0])) == (
        "GPU 0 was throttled: thermal limit of the socket (55 C, 2100 MHz, 300 W)",
    )
    reader.close()


@pytest.mark.parametrize(
    ("mask", "cause"),
    [
        (0x08, "hardware slowdown"),
        (0x20, "thermal slowdown by the driver"),
        (0x40, "thermal slowdown by the hardware"),
        (0x80, "power brake"),
    ],
)
def test_slowdowns_that_protect_the_gpu_reject(mask: int, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = nvml(monkeypatch)
    reader = Telemetry(node("cuda"))
    good = reader.snapshot()
    fake.answers["nvmlDeviceGetCurrentClocksEventReasons"] = lambda handle: (
        mask | 0x4 if handle.endswith("19:00.0") else 0
    )
    bad = reader.snapshot()
    line = f"GPU 1 was throttled: {cause} (41 C, 1980 MHz, 120.5 W)"
    assert reasons_to_reject(good, bad) == reasons_to_reject(bad, good) == (line,)


@pytest.mark.parametrize("mask", [0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x117])
def test_ordinary_clock_reasons_do_not(mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = nvml(monkeypatch)
    fake.answers["nvmlDeviceGetCurrentClocksEventReasons"] = lambda handle: mask
    reader = Telemetry(node("cuda"))
    assert reasons_to_reject(reader.snapshot(), reader.snapshot()) == ()


def test_a_slowdown_between_the_snapshots_is_seen_by_its_counter() -> None:
    before = {"0": {"slowdowns": [], "slowdown_counts": {"power brake": 10}}}
    after = {"0": {"slowdowns": [], "slowdown_counts": {"power brake": 11}}}
    assert reasons_to_reject(before, after) == ("GPU 0 was throttled: power brake",)
    assert reasons_to_reject(before, before) == ()


def test_a_foreign_process_rejects_at_either_snapshot() -> None:
    quiet, busy = {"0": {}}, {"0": {"foreign": {"4711": "train"}}}
    line = "GPU 0 is also used by process 4711 (train)"
    assert reasons_to_reject(quiet, busy) == reasons_to_reject(busy, quiet) == (line,)


def proc(root: Path, *processes: tuple[int, int, str]) -> Path:
    for pid, parent, name in processes:
        (root / str(pid)).mkdir()
        (root / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0 -1\n")
        (root / str(pid) / "comm").write_text(f"{name}\n")
    return root


def test_descendants_are_ours_and_strangers_are_not(tmp_path: Path) -> None:
    me = os.getpid()
    folder = proc(
        tmp_path,
        (me, 5, "pytest"),
        (me + 1, me, "a) S 9 (b"),
        (me + 2, me + 1, "deep"),
        (5, 1, "bash"),
        (77, 5, "train"),
    )
    assert foreign_processes([me, me + 1, me + 2], me, folder) == {}
    assert foreign_processes([me, me + 2, 77], me, folder) == {"foreign": {"77": "train"}}
    assert foreign_processes([me, 77], 5, folder) == {}


def test_pids_of_another_namespace_accuse_nobody(tmp_path: Path) -> None:
    me = os.getpid()
    folder = proc(tmp_path, (me, 5, "pytest"), (5, 1, "bash"), (77, 5, "train"))
    assert foreign_processes([77, 90_001], me, folder) == {"unknown_pids": [77, 90_001]}
    assert foreign_processes([me, 90_001], me, folder) == {"unknown_pids": [90_001]}
    assert foreign_processes([], me, folder) == {}


def test_a_workers_family_is_its_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert Telemetry(node("host"))._root_pid == os.getppid()
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert Telemetry(node("host"))._root_pid == os.getpid()


def test_link_counters_give_bytes() -> None:
    before = {"0": {"link_sent_kib": 10, "link_received_kib": 20}}
    after = {"0": {"link_sent_kib": 12, "link_received_kib": 20}}
    assert link_bytes(before, after, "0") == (2048, 0)
    assert link_bytes({"0": {}}, after, "0") is None
    assert link_bytes(before, after, "1") is None

"""The state a GPU was in while it was measured: clocks, throttling, heat, power, other processes, link counters.

A snapshot is plain data, taken outside every timed region; reading two GPUs costs some two milliseconds. What makes
a measurement INVALID is decided here by comparing the snapshot before with the one after, by pure functions.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from pytest_transferbench.node import Node
from pytest_transferbench.runtime.cuda_facts import ask, field_number, open_nvml
from pytest_transferbench.runtime.rocm_facts import open_amdsmi

NVLINK_TX_KIB, NVLINK_RX_KIB = 138, 139
"""``NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX`` and ``_RX``: cumulative KiB of payload."""

ALL_LINKS = 0xFFFFFFFF
"""The scope that sums a field over all links of a device."""

_SLOWDOWNS = {
    # nvmlClocksEventReason*: the hardware or the driver protects the GPU. The ordinary software power cap, idleness and
    # clocks that a user set are not among them: they are how the machine is, not an accident.
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
}

_SLOWDOWN_NS = {
    # NVML_FI_DEV_CLOCKS_EVENT_REASON_*: nanoseconds spent so far under each; they catch what no snapshot falls into.
    269: "thermal slowdown by the driver",
    270: "thermal slowdown by the hardware",
    271: "power brake",
}

_AMD_RESIDENCIES = {
    # Counters of amdsmi_get_gpu_metrics_info; ppt_residency_acc, the ordinary power cap, is left out on purpose.
    "prochot_residency_acc": "processor hot",
    "socket_thm_residency_acc": "thermal limit of the socket",
    "vr_thm_residency_acc": "thermal limit of the voltage regulator",
    "hbm_thm_residency_acc": "thermal limit of the memory",
}

_NVML_CLOCK_SM, _NVML_CLOCK_MEMORY = 1, 2

Snapshot = Mapping[str, Mapping[str, Any]]
"""Device index, as text -> readings by name; what a device does not tell is left out."""


class _Source(Protocol):
    def read(self, index: int) -> dict[str, Any]: ...

    def close(self) -> None: ...


class Telemetry:
    """Reads the state of a node's GPUs; silent where there is no source (an emulated node, no GPU, no library).

    ``root_pid`` is the process whose descendants count as ours: by default this one, or the one that started it
    when it is a pytest-xdist worker.
    """

    def __init__(self, node: Node, root_pid: int | None = None) -> None:
        self._indices = tuple(device.index for device in node.devices)
        self._root_pid = root_pid or (os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid())
        self._source: _Source | None = None
        addresses = {device.index: device.pci for device in node.devices}
        if node.emulated is None and node.runtime == "cuda":
            self._source = _NvmlSource.open(addresses)
        elif node.emulated is None and node.runtime == "rocm":
            self._source = _AmdSmiSource.open(addresses)

    def snapshot(self, devices: Collection[int] | None = None) -> dict[str, dict[str, Any]]:
        """Return the readings of ``devices`` (default: all), ready for JSON."""
        if self._source is None:
            return {}
        readings = {}
        for index in self._indices if devices is None else sorted(set(devices) & set(self._indices)):
            reading = self._source.read(index)
            reading.update(foreign_processes(reading.pop("pids", []), self._root_pid))
            readings[str(index)] = reading
        return readings

    def close(self) -> None:
        """Let go of the library."""
        if self._source is not None:
            self._source.close()
            self._source = None


def reasons_to_reject(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """Return why what was measured between two snapshots is INVALID, one line each; none when it is good."""
    reasons = []
    for device in after:
        reasons += [reason for check in (throttled, foreign) if (reason := check(before, after, device)) is not None]
    return tuple(reasons)


def throttled(before: Snapshot, after: Snapshot, device: str) -> str | None:
    """Say that a GPU was slowed down to protect itself at either snapshot or in between; None when it was not."""
    old, new = before.get(device, {}), after[device]
    causes = {*old.get("slowdowns", ()), *new.get("slowdowns", ())}
    counted = old.get("slowdown_counts", {})
    causes |= {
        cause for cause, count in new.get("slowdown_counts", {}).items() if cause in counted and count > counted[cause]
    }
    if not causes:
        return None
    state = [
        f"{new[name]:g} {unit}"
        for name, unit in (("temperature_c", "C"), ("gfx_mhz", "MHz"), ("power_w", "W"))
        if name in new
    ]
    return f"GPU {device} was throttled: {', '.join(sorted(causes))}{' (' + ', '.join(state) + ')' if state else ''}"


def foreign(before: Snapshot, after: Snapshot, device: str) -> str | None:
    """Say that another process computes on a GPU; None when none does, or when it cannot be told."""
    found = {
        **before.get(device, {}).get("foreign", {}),
        **after[device].get("foreign", {}),
    }
    if not found:
        return None
    names = ", ".join(f"{pid} ({name})" for pid, name in sorted(found.items()))
    return f"GPU {device} is also used by process {names}"


def link_bytes(before: Snapshot, after: Snapshot, device: str) -> tuple[int, int] | None:
    """Return (sent, received) payload bytes over the device's GPU links between two snapshots, None where not counted.

    The counters step in KiB and count every process's traffic.
    """
    old, new = before.get(device, {}), after.get(device, {})
    if not all("link_sent_kib" in reading and "link_received_kib" in reading for reading in (old, new)):
        return None
    return (
        (new["link_sent_kib"] - old["link_sent_kib"]) * 1024,
        (new["link_received_kib"] - old["link_received_kib"]) * 1024,
    )


def foreign_processes(pids: Collection[int], root_pid: int, proc: Path = Path("/proc")) -> dict[str, Any]:
    """Split the pids that a driver lists into ``foreign`` (pid -> name) and ``unknown_pids``; empty when all are ours.

    Inside a container a driver may list pids of the host: our own process then goes by a number that means nothing
    here, or another process here bears it. Only when our own pid is listed do the numbers mean what they say, and only
    a process that exists here and does not descend from ``root_pid`` is foreign. The rest is kept, and accuses nobody.
    """
    others = [pid for pid in pids if not _descends(pid, root_pid, proc)]
    if not others:
        return {}
    if os.getpid() not in pids:
        return {"unknown_pids": sorted(others)}
    names = {pid: _command(pid, proc) for pid in others}
    foreign = {str(pid): name for pid, name in names.items() if name is not None}
    unknown = sorted(pid for pid, name in names.items() if name is None)
    return {**({"foreign": foreign} if foreign else {}), **({"unknown_pids": unknown} if unknown else {})}


def _descends(pid: int, root_pid: int, proc: Path) -> bool:
    """Tell whether ``root_pid`` is ``pid`` or one of its ancestors."""
    while pid > 0:
        if pid == root_pid:
            return True
        try:
            # The name in parentheses may hold anything; the parent is the second field after the last of them.
            pid = int((proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def _command(pid: int, proc: Path) -> str | None:
    """Return a process's short name, None when there is no such process here."""
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return None


class _NvmlSource:
    """NVML's readings; one bundled field query a device keeps a snapshot cheap."""

    def __init__(self, nvml: Any, handles: dict[int, Any]) -> None:
        self._nvml, self._handles = nvml, handles

    @classmethod
    def open(cls, addresses: Mapping[int, str]) -> _NvmlSource | None:
        nvml, _ = open_nvml()
        if nvml is None:
            return None
        return cls(nvml, {index: ask(nvml, "nvmlDeviceGetHandleByPciBusId", pci) for index, pci in addresses.items()})

    def read(self, index: int) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handles[index]
        mask = ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
        if mask is None:
            mask = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        power_mw = ask(nvml, "nvmlDeviceGetPowerUsage", handle)
        reading: dict[str, Any] = {
            "gfx_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, _NVML_CLOCK_SM),
            "memory_mhz": ask(nvml, "nvmlDeviceGetClockInfo", handle, _NVML_CLOCK_MEMORY),
            "temperature_c": ask(nvml, "nvmlDeviceGetTemperature", handle, 0),
            "power_w": None if power_mw is None else power_mw / 1000,
            "slowdowns": None if mask is None else [name for bit, name in _SLOWDOWNS.items() if mask & bit],
            "clock_reasons": mask,
            "pids": [process.pid for process in ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()],
        }
        reading.update(self._fields(handle))
        return {name: value for name, value in reading.items() if value is not None}

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _fields(self, handle: Any) -> dict[str, Any]:
        wanted = [(NVLINK_TX_KIB, ALL_LINKS), (NVLINK_RX_KIB, ALL_LINKS), *((field, 0) for field in _SLOWDOWN_NS)]
        values = ask(self._nvml, "nvmlDeviceGetFieldValues", handle, wanted)
        found = {value.fieldId: field_number(self._nvml, value) for value in values or () if value.nvmlReturn == 0}
        counts = {name: found[field] for field, name in _SLOWDOWN_NS.items() if field in found}
        return {
            "link_sent_kib": found.get(NVLINK_TX_KIB),
            "link_received_kib": found.get(NVLINK_RX_KIB),
            "slowdown_counts": counts or None,
        }


class _AmdSmiSource:
    """amdsmi's readings, nearly all of them from one metrics table; ``N/A`` stands for what a device has not."""

    def __init__(self, smi: Any, handles: dict[int, Any]) -> None:
        self._smi, self._handles = smi, handles

    @classmethod
    def open(cls, addresses: Mapping[int, str]) -> _AmdSmiSource | None:
        smi = open_amdsmi()
        if smi is None:
            return None
        handles = {}
        for index, pci in addresses.items():
            try:
                handles[index] = smi.amdsmi_get_processor_handle_from_bdf(pci)
            except Exception:  # a device that amdsmi does not list (its exceptions have no useful base): no readings
                continue
        return cls(smi, handles)

    def read(self, index: int) -> dict[str, Any]:
        if index not in self._handles:
            return {}
        table = self._ask("amdsmi_get_gpu_metrics_info", index) or {}
        number = {name: value for name, value in table.items() if isinstance(value, int | float)}
        reading = {
            "gfx_mhz": number.get("current_gfxclk"),
            "memory_mhz": number.get("current_uclk"),
            "temperature_c": number.get("temperature_hotspot"),
            "power_w": number.get("current_socket_power", number.get("average_socket_power")),
            "slowdown_counts": {cause: number[name] for name, cause in _AMD_RESIDENCIES.items() if name in number}
            or None,
            "link_sent_kib": _total(table.get("xgmi_write_data_acc")),
            "link_received_kib": _total(table.get("xgmi_read_data_acc")),
            "pids": [process["pid"] for process in self._ask("amdsmi_get_gpu_process_list", index) or ()],
        }
        return {name: value for name, value in reading.items() if value is not None}

    def close(self) -> None:
        self._smi.amdsmi_shut_down()

    def _ask(self, call: str, index: int) -> Any | None:
        try:
            return getattr(self._smi, call)(self._handles[index])
        except Exception:  # unsupported on this device or in this version: a reading that is not there
            return None


def _total(values: Any) -> int | None:
    """Return the sum over all links of a counter that amdsmi gives per link, None where no link counts."""
    counted = [value for value in values if isinstance(value, int)] if isinstance(values, list) else []
    return sum(counted) if counted else None

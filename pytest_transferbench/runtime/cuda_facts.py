"""A Node from CUDA: CuPy's device properties, and NVML for the links.

NVML may be missing (no ``nvidia-ml-py``, a container without it): then links are PCIe as sysfs shows them, and
what only NVML knows stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_transferbench.node import Device, Link, LinkClass, Node
from pytest_transferbench.runtime import host_facts

FIELD_NVLINK_SPEED_MBPS = 164
"""``NVML_FI_DEV_NVLINK_GET_SPEED``; its scope is the link."""

_BATCH_COPY_VERSION = 12_080
_NVLINK_GBPS = {
    # Raw rate of one link, one direction, as ``nvidia-smi nvlink --status`` prints it on that generation; the numbers
    # are NVML's NVML_NVLINK_VERSION_*. Asked only where the driver does not answer FIELD_NVLINK_SPEED_MBPS.
    1: (20.0, "1"),
    2: (25.781, "2"),
    3: (25.781, "2.2"),
    4: (25.781, "3"),
    5: (25.781, "3.1"),
    6: (26.562, "4"),
    7: (53.125, "5"),
}

_DEVICE_TYPE_GPU, _DEVICE_TYPE_SWITCH = 0, 2
_P2P_CAPS_NVLINK, _P2P_STATUS_OK = 2, 0
_CLOCK_MEMORY = 2


@dataclass(frozen=True)
class NvLink:
    """One active link of a GPU: where it ends (a PCI slot, or None for a switch) and its raw rate in GB/s."""

    remote_slot: str | None
    gbps: float | None
    version: str


def read_node(cuda: Any, nvml: Any | None) -> Node:
    """Return the machine as CUDA and NVML show it.

    ``cuda`` is ``cupy.cuda.runtime``, ``nvml`` an initialised ``pynvml`` or None. Raises what ``cuda`` raises when
    there is no device.
    """
    count = cuda.getDeviceCount()
    properties = [cuda.getDeviceProperties(index) for index in range(count)]
    addresses = [cuda.deviceGetPCIBusId(index).lower() for index in range(count)]
    handles = [_handle(nvml, address) for address in addresses]
    devices = tuple(_device(index, properties[index], addresses[index], nvml, handles[index]) for index in range(count))
    slots = {host_facts.pci_slot(address) for address in addresses}
    nvlinks = [_nvlinks(nvml, handle) for handle in handles]
    host_rates = [
        _host_rate(props, pci, nvml, handle) for props, pci, handle in zip(properties, addresses, handles, strict=True)
    ]
    links = host_facts.own_links(devices, host_rates)
    for a in devices:
        for b in devices:
            if a.index != b.index:
                peer_access = bool(cuda.deviceCanAccessPeer(a.index, b.index))
                status = ask(nvml, "nvmlDeviceGetP2PStatus", handles[a.index], handles[b.index], _P2P_CAPS_NVLINK)
                pair = _nvlink_pair(status, nvlinks[a.index], nvlinks[b.index], host_facts.pci_slot(b.pci), slots)
                if pair is not None:
                    rate, source, hops = pair
                    links.append(Link(a.index, b.index, LinkClass.NVLINK, rate, source, hops, peer_access))
                else:
                    slower = min((host_rates[a.index], host_rates[b.index]), key=lambda found: found[0] or 0.0)
                    rate, source = slower if slower[0] else (None, "unknown")
                    links.append(Link(a.index, b.index, LinkClass.PCIE, rate, source, None, peer_access))
    return Node(
        runtime="cuda",
        devices=devices,
        links=tuple(links),
        driver=_driver(nvml),
        runtime_version=_version(cuda.runtimeGetVersion()),
        versions=host_facts.package_versions(),
        environment=host_facts.settings(),
        notes=tuple(_notes(nvml, handles)),
        host_name=host_facts.cpu_name(),
        host_cpus=host_facts.cpu_count(),
        host_cache_bytes=host_facts.last_level_cache_bytes(),
        numa_nodes=host_facts.numa_nodes(),
        batch_copy=_has_batch_copy(cuda),
    )


def _has_batch_copy(cuda: Any) -> bool:
    """Return whether driver and runtime have cudaMemcpyBatchAsync, and cuda-bindings is there to call it."""
    if min(cuda.runtimeGetVersion(), cuda.driverGetVersion()) < _BATCH_COPY_VERSION:
        return False
    try:
        from cuda.bindings import runtime as cudart
    except ImportError:
        return False
    return hasattr(cudart, "cudaMemcpyBatchAsync")


def open_nvml() -> tuple[Any | None, str]:
    """Return (an initialised ``pynvml``, ""), or (None, why) where the package or the library is missing."""
    try:
        import pynvml
    except ImportError:
        return None, "NVML is not read: install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML is not read: {error}"
    return pynvml, ""


def ask(nvml: Any | None, call: str, *arguments: Any) -> Any | None:
    """Return what an NVML call answers, or None where it, the handle or the call itself is not there."""
    function = getattr(nvml, call, None)
    if nvml is None or function is None or any(argument is None for argument in arguments):
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _handle(nvml: Any | None, address: str) -> Any | None:
    return ask(nvml, "nvmlDeviceGetHandleByPciBusId", address)


def _device(index: int, properties: dict[str, Any], address: str, nvml: Any | None, handle: Any | None) -> Device:
    memory_bytes = int(properties["totalGlobalMem"])
    bar = ask(nvml, "nvmlDeviceGetBAR1MemoryInfo", handle)
    return Device(
        index=index,
        name=_text(properties["name"]),
        arch=f"sm_{properties['major']}{properties['minor']}",
        pci=address,
        compute_units=int(properties["multiProcessorCount"]),
        memory_bytes=memory_bytes,
        warp_size=int(properties["warpSize"]),
        last_level_cache_bytes=int(properties["l2CacheSize"]) or None,
        memory_gbps=_memory_gbps(properties, nvml, handle),
        partition=_mig(nvml, handle),
        large_bar=None if bar is None else int(bar.bar1Total) >= memory_bytes,
        numa_node=host_facts.numa_node(address),
        managed_memory=_managed_memory(properties),
        pageable_access=_flag(properties.get("pageableMemoryAccess")),
        copy_engines=int(properties["asyncEngineCount"]) or None,
        uuid=_uuid(properties.get("uuid")),
        physical_gpu=host_facts.pci_slot(address),
    )


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _managed_memory(properties: dict[str, Any]) -> bool | None:
    """Say whether managed memory can be prefetched to the device: that takes concurrent access to it."""
    if properties.get("managedMemory") == 0:
        return False
    return _flag(properties.get("concurrentManagedAccess"))


def _memory_gbps(properties: dict[str, Any], nvml: Any | None, handle: Any | None) -> float | None:
    """Return bus width x the highest memory clock x 2 (both clock edges), in GB/s of reads plus writes."""
    width_bits = ask(nvml, "nvmlDeviceGetMemoryBusWidth", handle) or properties.get("memoryBusWidth") or 0
    clock_mhz = ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, _CLOCK_MEMORY)
    clock_mhz = clock_mhz or (properties.get("memoryClockRate") or 0) / 1000
    return width_bits / 8 * clock_mhz * 1e6 * 2 / 1e9 or None


def _mig(nvml: Any | None, handle: Any | None) -> str | None:
    """Return ``MIG`` when the GPU is split, None when it is whole or cannot be."""
    mode = ask(nvml, "nvmlDeviceGetMigMode", handle)
    return "MIG" if mode and mode[0] else None


def _nvlinks(nvml: Any | None, handle: Any | None) -> list[NvLink]:
    """Return the active links of a GPU."""
    found: list[NvLink] = []
    for number in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 0)):
        if not ask(nvml, "nvmlDeviceGetNvLinkState", handle, number):
            continue
        known_rate, version = _NVLINK_GBPS.get(
            ask(nvml, "nvmlDeviceGetNvLinkVersion", handle, number) or 0, (None, "?")
        )
        reported = _field(nvml, handle, FIELD_NVLINK_SPEED_MBPS, number)
        remote = ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, number)
        kind = ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, number)
        slot = host_facts.pci_slot(_text(remote.busId)) if remote is not None and kind != _DEVICE_TYPE_SWITCH else None
        if kind is not None and kind not in (_DEVICE_TYPE_GPU, _DEVICE_TYPE_SWITCH):
            continue  # it ends at a processor, not at another GPU
        found.append(NvLink(slot, reported / 1000 if reported else known_rate, version))
    return found


def _nvlink_pair(
    status: int | None, links_a: list[NvLink], links_b: list[NvLink], b_slot: str, gpu_slots: set[str]
) -> tuple[float | None, str, int] | None:
    """Return (GB/s, where from, hops) of the NVLinks that carry a pair, or None when it has none.

    Links that end at ``b`` count alone. Behind a switch every link of the end that has fewer serves the pair; a
    link whose far end has no type is taken for a switch's only when NVML says that the pair talks over NVLink.
    """
    if status not in (None, _P2P_STATUS_OK):
        return None
    direct = [link for link in links_a if link.remote_slot == b_slot]
    foreign_is_switch = status == _P2P_STATUS_OK
    switched_a, switched_b = (
        [
            link
            for link in links
            if link.remote_slot is None or (foreign_is_switch and link.remote_slot not in gpu_slots)
        ]
        for links in (links_a, links_b)
    )
    used, hops = (direct, 1) if direct else (min(switched_a, switched_b, key=len), 2)
    if not used:
        return None
    rates = [link.gbps for link in used if link.gbps is not None]
    if len(rates) < len(used):
        return None, f"NVML shows {len(used)} NVLinks of unknown rate", hops
    return sum(rates), f"NVML {len(used)} x {min(rates):.3f} (NVLink {used[0].version})", hops


def _field(nvml: Any | None, handle: Any | None, field: int, scope: int) -> int | None:
    """Return one NVML field value; None where the device does not know it."""
    values = ask(nvml, "nvmlDeviceGetFieldValues", handle, [(field, scope)])
    if values is None or values[0].nvmlReturn != 0:
        return None
    return field_number(nvml, values[0])


def field_number(nvml: Any, value: Any) -> int:
    """Return the number inside an NVML field value, whichever member of the union its type says."""
    member = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}[value.valueType]
    return int(getattr(value.value, member))


def _host_rate(
    properties: dict[str, Any], address: str, nvml: Any | None, handle: Any | None
) -> tuple[float | None, str]:
    """Return the raw rate between a GPU and the host; unknown where they do not meet over PCIe."""
    if properties.get("pageableMemoryAccessUsesHostPageTables") or properties.get("integrated"):
        return None, "unknown (the GPU shares the host's page tables: not PCIe)"
    generation = ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle)
    width = ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle)
    found = host_facts.pcie_gbps(generation or 0, width or 0) or host_facts.slot_gbps(address)
    return found or (None, "unknown")


def _driver(nvml: Any | None) -> str | None:
    version = ask(nvml, "nvmlSystemGetDriverVersion")
    return None if version is None else _text(version)


def _notes(nvml: Any | None, handles: list[Any | None]) -> Iterable[str]:
    yield host_facts.iommu()
    if nvml is not None and any(handle is None for handle in handles):
        yield "NVML does not show every GPU that CUDA shows: some link rates are unknown"


def _version(number: int) -> str:
    """Return CUDA's version number in words: 13000 -> ``13.0``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _uuid(raw: Any) -> str | None:
    """Return a device's UUID as nvidia-smi prints it."""
    if not isinstance(raw, bytes) or len(raw) < 16:
        return None
    digits = raw[:16].hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

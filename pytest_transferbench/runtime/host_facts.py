"""What the kernel tells about the machine around the GPUs: processors, IOMMU, PCIe slots, settings."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_transferbench.node import HOST, Device, Link, LinkClass, NumaNode
from pytest_transferbench.transfer import parse_size

PCI_DEVICES = Path("/sys/bus/pci/devices")
NUMA_NODES = Path("/sys/devices/system/node")
PROCESS_STATUS = Path("/proc/self/status")

_LANE_GBPS = {
    # PCI Express base specification: transfers a second x line code / 8 bits; generation 6 counts its flits' payload.
    2.5: 2.5 * 8 / 10 / 8,
    5.0: 5.0 * 8 / 10 / 8,
    8.0: 8.0 * 128 / 130 / 8,
    16.0: 16.0 * 128 / 130 / 8,
    32.0: 32.0 * 128 / 130 / 8,
    64.0: 64.0 * 242 / 256 / 8,
}

_GENERATION_SPEED = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}

_SETTINGS = (
    "AMD_DIRECT_DISPATCH",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "GPU_FORCE_BLIT_COPY_SIZE",
    "GPU_MAX_HW_QUEUES",
    "HIP_LAUNCH_BLOCKING",
    "HIP_VISIBLE_DEVICES",
    "HSA_ENABLE_SDMA",
    "HSA_ENABLE_PEER_SDMA",
    "HSA_XNACK",
    "ROCM_PATH",
    "ROCR_VISIBLE_DEVICES",
    "ROC_P2P_SDMA_SIZE",
)
"""Variables that change what is visible or which engine copies."""

_PACKAGES = ("numpy", "hip-python", "cuda-bindings", "nvidia-ml-py", "amdsmi")


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's model name, or the machine's architecture where the kernel gives none."""
    for line in _read(cpuinfo).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine() or "CPU"


def cpu_count() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0))


def numa_nodes(root: Path = NUMA_NODES, status: Path | None = PROCESS_STATUS) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes whose memory this process may use, by number; node 0 alone where the kernel shows none.

    Those outside the process's cpuset are left out: memory asked for there would come from elsewhere. ``status`` None
    asks nothing of this process, for a node that is only described.
    """
    indices = numbers(_read(root / "has_memory"))
    cpus: frozenset[int] | None = None
    if status is not None:
        cpus = frozenset(os.sched_getaffinity(0))
        lines = (line.partition(":") for line in _read(status).splitlines())
        allowed = next((numbers(value) for key, _, value in lines if key == "Mems_allowed_list"), indices)
        indices = indices & allowed or indices
    if not indices:
        return (NumaNode(0, cpu_count()),)
    found = []
    for index in sorted(indices):
        here = processors(index, root)
        found.append(NumaNode(index, len(here if cpus is None else here & cpus)))
    return tuple(found)


def processors(numa_node: int, root: Path = NUMA_NODES) -> frozenset[int]:
    """Return the processors of a NUMA node; none where the kernel shows none."""
    return numbers(_read(root / f"node{numa_node}" / "cpulist"))


def numbers(text: str) -> frozenset[int]:
    """Return the numbers in one of the kernel's lists: ``0-2,7`` is 0, 1, 2 and 7."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Return the size of the largest level-3 cache of the host's processors; None where sysfs does not show one."""
    sizes = []
    for folder in root.glob("cpu[0-9]*/cache/index*"):
        try:
            if (folder / "level").read_text().strip() == "3":
                sizes.append(parse_size((folder / "size").read_text().strip()))
        except (OSError, ValueError):
            continue
    return max(sizes, default=None)


def own_links(devices: Sequence[Device], host_rates: Sequence[tuple[float | None, str]]) -> list[Link]:
    """Return the links that need no second GPU: within the host, within each device, and between the two.

    ``host_rates`` holds each device's rate to the host in GB/s and where it comes from. A copy within a device reads
    and writes the same memory, so that half its rate is left for each.
    """
    links = [Link(HOST, HOST, LinkClass.HOST)]
    for device, (rate, source) in zip(devices, host_rates, strict=True):
        if device.memory_gbps is None:
            links.append(Link(device.index, device.index, LinkClass.LOCAL))
        else:
            half = f"half of {device.memory_gbps:.0f} GB/s of memory, which is read and written"
            links.append(Link(device.index, device.index, LinkClass.LOCAL, device.memory_gbps / 2, half))
        links.append(Link(HOST, device.index, LinkClass.HOST, rate, source))
        links.append(Link(device.index, HOST, LinkClass.HOST, rate, source))
    return links


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are set and change what a GPU does or which GPUs there are."""
    return {name: environment[name] for name in _SETTINGS if name in environment}


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that reach the GPUs; absent ones are left out. CuPy's wheel by its name."""
    versions: dict[str, str] = {}
    for name in (*cupy_wheels(), *_PACKAGES):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def cupy_wheels() -> tuple[str, ...]:
    """Return the names of the installed CuPy distributions; more than one of them shadow each other."""
    names = {str(dist.metadata["Name"]).lower() for dist in importlib.metadata.distributions() if dist.metadata["Name"]}
    return tuple(sorted(name for name in names if name == "cupy" or name.startswith(("cupy-rocm", "cupy-cuda"))))


def iommu(cmdline: Path = Path("/proc/cmdline"), classes: Path = Path("/sys/class/iommu")) -> str:
    """Say whether an IOMMU is on, in words for the header; peer-to-peer copies fail or crawl behind one."""
    words = [word for word in _read(cmdline).split() if "iommu" in word]
    try:
        units = sum(1 for _ in classes.iterdir())
    except OSError:
        units = 0
    state = f"on ({units} unit{'s' if units != 1 else ''})" if units else "off"
    return f"IOMMU {state}{', ' + ' '.join(words) if words else ''}"


def pci_address(domain: int, bus: int, device: int, function: int = 0) -> str:
    """Return the address as sysfs spells it."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def pci_slot(address: str) -> str:
    """Return ``domain:bus:device`` in sysfs spelling: what the partitions of one GPU share.

    NVML pads the domain to eight digits; both spellings come out equal.
    """
    domain, bus, rest = address.lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{rest.partition('.')[0]}"


def numa_node(address: str, devices: Path = PCI_DEVICES) -> int | None:
    """Return the NUMA node of a PCI device; None where the kernel knows none."""
    text = _read(devices / address.lower() / "numa_node").strip()
    node = int(text) if text.lstrip("-").isdigit() else -1
    return node if node >= 0 else None


def pcie_gbps(generation: int, width: int) -> tuple[float, str] | None:
    """Return the raw rate of one direction in GB/s and what it was computed from; None for an unknown generation."""
    if generation not in _GENERATION_SPEED or width <= 0:
        return None
    return _LANE_GBPS[_GENERATION_SPEED[generation]] * width, f"PCIe gen{generation} x{width}"


def slot_gbps(address: str, devices: Path = PCI_DEVICES) -> tuple[float, str] | None:
    """Return the slowest step between a PCI device and the host: maximum speed and width of both ends of each.

    A bridge that claims the first generation is a hypervisor's make-believe and is passed over: as a ceiling it
    would call every honest figure impossible. None where the kernel shows no link at all.
    """
    try:
        folder = (devices / address.lower()).resolve(strict=True)
    except OSError:
        return None
    slowest: tuple[float, str] | None = None
    for step, place in enumerate((folder, *folder.parents)):
        speed = _number(_read(place / "max_link_speed"))
        width = _number(_read(place / "max_link_width"))
        if step > 0 and speed is None:
            break
        if speed not in _LANE_GBPS or not width or (step > 0 and speed == _GENERATION_SPEED[1]):
            continue
        rate = _LANE_GBPS[speed] * width
        if slowest is None or rate < slowest[0]:
            slowest = (rate, f"PCIe {speed:g} GT/s x{width:g}")
    return slowest


def _number(text: str) -> float | None:
    """Return the number a sysfs line begins with: ``32.0 GT/s PCIe`` -> 32.0."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

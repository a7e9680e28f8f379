"""A Node from ROCm: hip-python for the devices, the kernel driver's topology for caches and links.

CuPy's device attributes and pointer types are never asked here: on ROCm most of them answer another question.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_transferbench.node import Device, Link, LinkClass, Node
from pytest_transferbench.runtime import host_facts, kfd
from pytest_transferbench.runtime.architectures import Architecture, architecture
from pytest_transferbench.runtime.hip_api import LINK_XGMI, HipApi, HipProperties

DRIVER_VERSION = Path("/sys/module/amdgpu/version")
KERNEL_VERSION = Path("/proc/sys/kernel/osrelease")


def read_node(
    hip: HipApi,
    kfd_root: Path = kfd.KFD_NODES,
    emulated: str | None = None,
    pci_devices: Path = host_facts.PCI_DEVICES,
    numa_root: Path = host_facts.NUMA_NODES,
) -> Node:
    """Return the machine as HIP, and the kernel's files under ``kfd_root`` and ``numa_root``, show it.

    On an emulated node nothing is asked of this machine's own PCI files. Raises :class:`HipError` without a device.
    """
    count = hip.device_count()
    properties = [hip.properties(index) for index in range(count)]
    uuids = [hip.uuid(index) for index in range(count)]
    all_nodes = kfd.read_nodes(kfd_root)
    nodes = match_nodes([(found.pci, uuid) for found, uuid in zip(properties, uuids, strict=True)], all_nodes)
    physical = physical_gpus([found.pci for found in properties], nodes)
    real_pci = None if emulated else pci_devices
    smi = None if emulated else open_amdsmi()
    devices = tuple(
        _device(hip, index, properties[index], uuids[index], nodes[index], physical[index], real_pci)
        for index in range(count)
    )
    processors = [node for node in all_nodes if not node.is_gpu]
    host_rates = [
        _host_rate(found, node, processors, host_facts.pci_address(*found.pci), real_pci)
        for found, node in zip(properties, nodes, strict=True)
    ]
    links = host_facts.own_links(devices, host_rates)
    for a in devices:
        for b in devices:
            if a.index != b.index:
                links.append(_pair_link(hip, a, b, nodes[a.index], nodes[b.index], host_rates, smi))
    return Node(
        runtime="rocm",
        devices=devices,
        links=tuple(links),
        emulated=emulated,
        driver=None if emulated else _driver(),
        runtime_version=_version(hip.runtime_version()),
        versions=host_facts.package_versions(),
        environment={
            name: value for name, value in host_facts.settings().items() if emulated is None or name != "ROCM_PATH"
        },  # an emulated node sets that one itself, to a folder of its own
        notes=tuple(_notes(devices, properties, emulated)),
        batch_copy=hip.has_batch_copy,
        host_name=host_facts.cpu_name(),
        host_cpus=host_facts.cpu_count(),
        host_cache_bytes=host_facts.last_level_cache_bytes(),
        numa_nodes=host_facts.numa_nodes(numa_root, None if emulated else host_facts.PROCESS_STATUS),
    )


def match_nodes(
    devices: Sequence[tuple[tuple[int, int, int], str | None]], nodes: Sequence[kfd.KfdNode]
) -> list[kfd.KfdNode | None]:
    """Return, for each (PCI domain, bus, device; uuid), its node in the driver's topology, or None.

    The partitions of one GPU share an address. Their unique ids tell them apart where the driver gives each its own;
    otherwise they are taken in the driver's order, which is HIP's, if HIP shows all of them. If it shows fewer, any
    choice would be a guess, and there is none unless all candidates agree on everything asked of them.
    """
    matched: list[kfd.KfdNode | None] = [None] * len(devices)
    for address in {pci for pci, _ in devices}:
        indices = [index for index, (pci, _) in enumerate(devices) if pci == address]
        candidates = sorted(
            (node for node in nodes if node.is_gpu and node.pci[:3] == address),
            key=lambda node: (node.partition_number, node.pci[3], node.number),
        )
        by_id = {f"{node.unique_id:016x}": node for node in candidates if node.unique_id}
        if len(by_id) == len(candidates) > 0 and all((devices[index][1] or "").lower() in by_id for index in indices):
            for index in indices:
                matched[index] = by_id[(devices[index][1] or "").lower()]
        elif len(candidates) == len(indices):
            for index, node in zip(indices, candidates, strict=True):
                matched[index] = node
    return matched


def physical_gpus(addresses: Sequence[tuple[int, int, int]], nodes: Sequence[kfd.KfdNode | None]) -> list[str]:
    """Return one name per device, equal for devices that share a PCI address or a unique id of the driver."""
    names: dict[tuple[int, int, int], str] = {}
    for address, node in zip(addresses, nodes, strict=True):
        own = f"{node.unique_id:016x}" if node is not None and node.unique_id else host_facts.pci_address(*address)[:-2]
        names.setdefault(address, own)
    return [names[address] for address in addresses]


def _device(
    hip: HipApi,
    index: int,
    properties: HipProperties,
    uuid: str | None,
    node: kfd.KfdNode | None,
    physical_gpu: str,
    pci_devices: Path | None,
) -> Device:
    address = host_facts.pci_address(*properties.pci)  # function 0, where the kernel keeps what it says of a GPU
    known = architecture(properties.gcn_arch_name)
    cache = node.last_level_cache_bytes() if node is not None else None
    if cache is None and known is not None:
        cache = known.last_level_cache_bytes
    return Device(
        index=index,
        name=properties.name,
        arch=properties.gcn_arch_name.partition(":")[0],
        pci=host_facts.pci_address(*properties.pci, node.pci[3] if node is not None else 0),
        compute_units=properties.compute_units,
        memory_bytes=properties.memory_bytes,
        xccs=(node.xccs if node is not None else None) or hip.attribute("NumberOfXccs", index) or 1,
        warp_size=properties.warp_size,
        last_level_cache_bytes=cache,
        memory_gbps=_memory_gbps(properties, known),
        partition=_partition(address, pci_devices),
        large_bar=properties.large_bar,
        numa_node=_numa_node(hip, index, address, pci_devices),
        managed_memory=_flag(hip.attribute("ManagedMemory", index)),
        pageable_access=_flag(hip.attribute("PageableMemoryAccess", index)),
        copy_engines=(node.properties.get("num_sdma_engines") if node is not None else None)
        or properties.copy_engines
        or None,
        uuid=uuid,
        physical_gpu=physical_gpu,
    )


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _numa_node(hip: HipApi, index: int, address: str, pci_devices: Path | None) -> int | None:
    """Return the closest NUMA node; an emulated device is in no PCI file of this machine, and its runtime knows."""
    return hip.attribute("HostNumaId", index) if pci_devices is None else host_facts.numa_node(address, pci_devices)


def _memory_gbps(properties: HipProperties, known: Architecture | None) -> float | None:
    """Return bus width x transfers a second, in GB/s of reads plus writes.

    Transfers a clock differ by architecture; for one that is not in the table the rate is unknown, because half the
    true rate as a ceiling would fail honest local copies.
    """
    if known is None or known.transfers_per_clock is None:
        return None
    transfers = properties.memory_clock_khz * 1e3 * known.transfers_per_clock
    return transfers * properties.memory_bus_bits / 8 / 1e9 or None


def _partition(address: str, pci_devices: Path | None) -> str | None:
    """Return ``SPX``, ``CPX``... with the memory mode (``CPX/NPS4``), None where the driver does not say."""
    if pci_devices is None:
        return None
    modes = []
    for name in ("current_compute_partition", "current_memory_partition"):
        try:
            modes.append((pci_devices / address / name).read_text(encoding="ascii").strip())
        except OSError:
            continue
    return "/".join(mode for mode in modes if mode) or None


def _pair_link(
    hip: HipApi,
    a: Device,
    b: Device,
    node_a: kfd.KfdNode | None,
    node_b: kfd.KfdNode | None,
    host_rates: Sequence[tuple[float | None, str]],
    smi: Any | None,
) -> Link:
    """Return the link from ``a`` to ``b``: its class first, then the first source that knows its rate."""
    listed = node_a.link_to(node_b.number) if node_a is not None and node_b is not None else None
    answer = hip.link(a.index, b.index)
    hops = answer[1] if answer is not None else None
    peer_access = hip.can_access_peer(a.index, b.index)
    if a.physical_gpu == b.physical_gpu:
        link_class = LinkClass.ON_DIE
    elif (listed is not None and listed.type == kfd.IOLINK_XGMI) or (answer is not None and answer[0] == LINK_XGMI):
        known = architecture(a.arch)
        link_class = known.between_gpus if known is not None else LinkClass.XGMI
    else:
        link_class = LinkClass.PCIE
    if listed is not None and listed.gbps is not None and _lists(link_class, listed.type):
        rate: float | None = listed.gbps
        source = f"KFD {listed.max_bandwidth} MB/s"
    elif link_class in (LinkClass.XGMI, LinkClass.UALOE):
        rate, source = _rate_between_gpus(a, b, smi)
    elif link_class is LinkClass.PCIE:
        slower = min((host_rates[a.index], host_rates[b.index]), key=lambda found: found[0] or 0.0)
        rate, source = slower if slower[0] else (None, "unknown")
    else:
        rate, source = None, "unknown"
    return Link(a.index, b.index, link_class, rate, source, hops, peer_access)


def _lists(link_class: LinkClass, iolink_type: int) -> bool:
    """Tell whether a listed rate is that of the class: what HIP calls xGMI may be listed by its way over the host."""
    return link_class not in (LinkClass.XGMI, LinkClass.UALOE) or iolink_type == kfd.IOLINK_XGMI


def _rate_between_gpus(a: Device, b: Device, smi: Any | None) -> tuple[float | None, str]:
    rate = _amdsmi_rate(smi, a.pci, b.pci)
    if rate is not None:
        return rate, "amdsmi"
    known = architecture(a.arch)
    if known is not None and known.xgmi_gbps is not None:
        return known.xgmi_gbps, known.source
    return None, "unknown"


def _host_rate(
    properties: HipProperties,
    node: kfd.KfdNode | None,
    processors: Sequence[kfd.KfdNode],
    address: str,
    pci_devices: Path | None,
) -> tuple[float | None, str]:
    """Return the raw rate between a GPU and its processor; unknown on an APU, whose way to memory is no PCIe."""
    if properties.integrated:
        return None, "unknown (the GPU is on the processor's package: not PCIe)"
    listed = [link for cpu in processors if node is not None and (link := node.link_to(cpu.number)) is not None]
    rates = [link for link in listed if link.gbps is not None and link.type == kfd.IOLINK_PCIE]
    if rates:
        fastest = max(rates, key=lambda link: link.max_bandwidth)
        return fastest.gbps, f"KFD {fastest.max_bandwidth} MB/s"
    found = host_facts.slot_gbps(address, pci_devices) if pci_devices is not None else None
    return found or (None, "unknown")


def open_amdsmi() -> Any | None:
    """Return an initialised ``amdsmi``, or None where the package or its library is not there."""
    try:
        import amdsmi

        amdsmi.amdsmi_init()
    except Exception:  # amdsmi raises what it likes when its library is absent, KeyError and OSError among it
        return None
    return amdsmi


def _amdsmi_rate(smi: Any | None, a: str, b: str) -> float | None:
    """Return the raw rate of one direction between two GPUs as amdsmi reports it (MB/s), in GB/s."""
    if smi is None:
        return None
    try:
        first, second = (smi.amdsmi_get_processor_handle_from_bdf(address) for address in (a, b))
        reported = smi.amdsmi_get_minmax_bandwidth_between_processors(first, second)["max_bandwidth"]
    except Exception:  # an absent call, an unsupported link: unknown either way
        return None
    return float(reported) / 1000 or None


def _driver() -> str | None:
    """Return the amdgpu module's version, or the kernel's where the driver is the kernel's own."""
    for path, prefix in ((DRIVER_VERSION, "amdgpu"), (KERNEL_VERSION, "kernel")):
        try:
            return f"{prefix} {path.read_text(encoding='ascii').strip()}"
        except OSError:
            continue
    return None


def _version(number: int) -> str:
    """Return HIP's version number in words: 70051831 -> ``7.0.51831``."""
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def _notes(devices: Sequence[Device], properties: Sequence[HipProperties], emulated: str | None) -> Iterable[str]:
    """Yield what a reader of the figures should know of the machine and of its settings."""
    if emulated is None:
        yield host_facts.iommu()
    small = [str(device.index) for device in devices if not device.large_bar]
    yield "large BAR on" if not small else f"large BAR off on GPU {', '.join(small)}: the host cannot reach its memory"
    modes = sorted({device.partition for device in devices if device.partition})
    if modes:
        yield f"partition mode {', '.join(modes)}"
    xnack = sorted(
        {feature for found in properties for feature in found.gcn_arch_name.split(":") if "xnack" in feature}
    )
    if xnack:
        said = "XNACK " + " and ".join("on" if feature.endswith("+") else "off" for feature in xnack)
        without = ": no GPU reaches unpinned host memory, and managed memory moves when it is told to, not when touched"
        yield said + (without if said == "XNACK off" else "")
    for name, meaning in (
        ("GPU_MAX_HW_QUEUES", "hardware queues a device (default 4)"),
        ("HSA_ENABLE_SDMA", "DMA engines in use when not 0 (default 1)"),
        ("ROC_P2P_SDMA_SIZE", "KiB above which peer copies leave the shader (default 1024)"),
        ("GPU_FORCE_BLIT_COPY_SIZE", "KiB up to which copies are made by a shader (default 0)"),
    ):
        value = os.environ.get(name)
        if value is not None:
            yield f"{name}={value}: {meaning}"

"""The KFD topology of an emulated node, as the Linux kernel shows it under ``/sys/class/kfd/kfd/topology/nodes``.

One folder a node: the CPUs first (one for each NUMA node the GPUs hang on), then the GPUs. A probe reads it exactly as
it reads a real machine's, and so the host's NUMA nodes, which are under ``/sys/devices/system/node`` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_transferbench.emulator.model import LINK_TYPE_PCIE, NodeModel

IO_LINK_PCIE = 2
IO_LINK_XGMI = 11
"""``HSA_IOLINKTYPE_*``: these numbers differ from those of ``hipExtGetLinkTypeAndHopCount``."""

_CACHE_OF_DATA = 1
_CACHE_OF_COMPUTE_UNITS = 8


def write_topology(model: NodeModel, root: Path) -> Path:
    """Write the tree of ``model`` below ``root`` and return the folder that holds the numbered nodes."""
    nodes = root / "topology" / "nodes"
    numa_nodes = model.numa_nodes
    first_gpu = len(numa_nodes)
    for numa_index, numa_node in enumerate(numa_nodes):
        near = [first_gpu + gpu for gpu, where in enumerate(model.device.numa_nodes) if where == numa_node]
        _write_cpu(model, nodes / str(numa_index), numa_index, near)
    for gpu in range(model.device.count):
        cpu = numa_nodes.index(model.device.numa_nodes[gpu])
        _write_gpu(model, nodes / str(first_gpu + gpu), gpu, cpu, first_gpu)
    return nodes


def write_numa_nodes(model: NodeModel, root: Path) -> Path:
    """Write the host's NUMA nodes below ``root``, as the kernel shows them, and return the folder that holds them."""
    folder = root / "system" / "node"
    folder.mkdir(parents=True)
    (folder / "has_memory").write_text(",".join(map(str, model.numa_nodes)) + "\n", encoding="ascii")
    for place, numa_node in enumerate(model.numa_nodes):
        first = place * model.cpu.threads
        (folder / f"node{numa_node}").mkdir()
        cpus = f"{first}-{first + model.cpu.threads - 1}\n"
        (folder / f"node{numa_node}" / "cpulist").write_text(cpus, encoding="ascii")
    return folder


def gpu_id(model: NodeModel, gpu: int) -> int:
    """Return the number by which KFD tells GPUs apart; any number but 0 does, and CPUs have 0."""
    return 0x1000 + 17 * (gpu + 1) + model.device.pci_device_id % 16


def _write_cpu(model: NodeModel, folder: Path, index: int, gpu_nodes: list[int]) -> None:
    properties = {
        "cpu_cores_count": model.cpu.threads,
        "simd_count": 0,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": len(gpu_nodes),
        "p2p_links_count": 0,
        "cpu_core_id_base": index * model.cpu.threads,
        "simd_id_base": 0,
        "max_waves_per_simd": 0,
        "lds_size_in_kb": 0,
        "gds_size_in_kb": 0,
        "num_gws": 0,
        "wave_front_size": 0,
        "array_count": 0,
        "simd_arrays_per_engine": 0,
        "cu_per_simd_array": 0,
        "simd_per_cu": 0,
        "max_slots_scratch_cu": 0,
        "gfx_target_version": 0,
        "vendor_id": 0,
        "device_id": 0,
        "location_id": 0,
        "domain": 0,
        "drm_render_minor": 0,
        "hive_id": 0,
        "num_sdma_engines": 0,
        "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": 0,
        "num_cp_queues": 0,
        "max_engine_clk_ccompute": 3700,
    }
    _write_node(folder, properties, gpu_id_value=0, name=model.cpu.name)
    for number, node in enumerate(gpu_nodes):
        _write_link(folder / "io_links" / str(number), model, index, node, IO_LINK_PCIE, "host", weight=20)


def _write_gpu(model: NodeModel, folder: Path, gpu: int, cpu: int, first_gpu: int) -> None:
    device = model.device
    levels = ((2, device.l2_cache_bytes), (3, device.last_level_cache_bytes))
    caches = [(level, nbytes) for level, nbytes in levels if nbytes]
    domain, bus, slot, function = (int(part, 16) for part in device.pci[gpu].replace(".", ":").split(":"))
    others = [other for other in range(device.count) if other != gpu]
    by_pcie = [other for other in others if model.link_type(gpu, other) == LINK_TYPE_PCIE]
    by_xgmi = [other for other in others if other not in by_pcie]
    properties = {
        "cpu_cores_count": 0,
        "simd_count": device.compute_units * device.simds_per_compute_unit,
        "mem_banks_count": 1,
        "caches_count": len(caches),
        "io_links_count": 1 + len(by_xgmi),
        "p2p_links_count": len(by_pcie),
        "cpu_core_id_base": 0,
        "simd_id_base": 0x80000000 + gpu * 0x1000,
        "max_waves_per_simd": 8,
        "lds_size_in_kb": 64,
        "gds_size_in_kb": 0,
        "num_gws": 64,
        "wave_front_size": device.wavefront,
        "array_count": 32,
        "simd_arrays_per_engine": 1,
        "cu_per_simd_array": 10,
        "simd_per_cu": device.simds_per_compute_unit,
        "max_slots_scratch_cu": 32,
        "gfx_target_version": _target_version(device.arch),
        "vendor_id": 0x1002,
        "device_id": device.pci_device_id,
        "location_id": bus << 8 | slot << 3 | function,
        "domain": domain,
        "drm_render_minor": 128 + gpu,
        "hive_id": 0xE0E0_0000_0000_FFFF if by_xgmi else 0,
        "num_sdma_engines": device.copy_engines,
        "num_sdma_xgmi_engines": device.xgmi_copy_engines,
        "num_sdma_queues_per_engine": 8,
        "num_cp_queues": 24,
        "max_engine_clk_fcompute": device.clock_mhz,
        "local_mem_size": device.memory_bytes,
        "fw_version": 177,
        "capability": 0x7B36A280,
        "debug_prop": 1495,
        "sdma_fw_version": 19,
        "unique_id": model.unique_id(gpu),
        "num_xcc": device.xccs,
        "max_engine_clk_ccompute": 3700,
    }
    _write_node(folder, properties, gpu_id_value=gpu_id(model, gpu), name="ip discovery")
    node = first_gpu + gpu
    _write_link(folder / "io_links" / "0", model, node, cpu, IO_LINK_PCIE, "host", weight=20)
    for number, other in enumerate(by_xgmi, start=1):
        where = folder / "io_links" / str(number)
        _write_link(where, model, node, first_gpu + other, IO_LINK_XGMI, model.link(gpu, other).link_class, weight=15)
    for number, other in enumerate(by_pcie):
        where = folder / "p2p_links" / str(number)
        _write_link(where, model, node, first_gpu + other, IO_LINK_PCIE, model.link(gpu, other).link_class, weight=40)
    for number, (level, nbytes) in enumerate(caches):
        _write_cache(folder / "caches" / str(number), level, nbytes)


def _write_node(folder: Path, properties: Mapping[str, int], *, gpu_id_value: int, name: str) -> None:
    folder.mkdir(parents=True)
    _write_properties(folder / "properties", properties)
    (folder / "gpu_id").write_text(f"{gpu_id_value}\n", encoding="ascii")
    (folder / "name").write_text(f"{name}\n", encoding="ascii")
    for kind in ("io_links", "p2p_links", "caches"):
        (folder / kind).mkdir()


def _write_link(
    folder: Path, model: NodeModel, source: int, destination: int, kind: int, link_class: str, *, weight: int
) -> None:
    link = model.links[link_class]
    megabytes = int((link.raw_gbps or 0) * 1000)
    folder.mkdir()
    properties = {
        "type": kind,
        "version_major": 0,
        "version_minor": 0,
        "node_from": source,
        "node_to": destination,
        "weight": weight,
        "min_latency": 0,
        "max_latency": 0,
        "min_bandwidth": megabytes,
        "max_bandwidth": megabytes,
        "recommended_transfer_size": 0,
        "recommended_sdma_engine_id_mask": 0,
        "flags": 1,
    }
    _write_properties(folder / "properties", properties)


def _write_cache(folder: Path, level: int, nbytes: int) -> None:
    folder.mkdir()
    properties = {
        "processor_id_low": 0,
        "level": level,
        "size": nbytes >> 10,  # the kernel counts KiB here
        "cache_line_size": 128 if level == 2 else 64,
        "cache_lines_per_tag": 1,
        "association": 16,
        "latency": 0,
        "type": _CACHE_OF_DATA | _CACHE_OF_COMPUTE_UNITS,
    }
    _write_properties(folder / "properties", properties)


def _write_properties(path: Path, properties: Mapping[str, int]) -> None:
    path.write_text("".join(f"{key} {value}\n" for key, value in properties.items()), encoding="ascii")


def _target_version(arch: str) -> int:
    """Return KFD's number of an architecture: gfx942 is 90402, gfx1250 is 120500."""
    digits = arch.partition(":")[0].removeprefix("gfx")
    major, minor, stepping = digits[:-2], digits[-2], digits[-1]
    return int(major) * 10000 + int(minor, 16) * 100 + int(stepping, 16)

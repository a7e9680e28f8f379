"""Node models: TOML files with the physical parameters of one machine, read and checked.

A file may say ``extends = "mi300x-8"`` and then holds only what differs. What the C++ runtime needs is emitted as
plain lines by :meth:`NodeModel.runtime_text`; the KFD topology is written by :mod:`.kfd`.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from pytest_transferbench.emulator.faults import ANY_DEVICE, Fault, error_codes, hip_calls
from pytest_transferbench.node import HOST
from pytest_transferbench.transfer import format_size
from pytest_transferbench.transfer.sizes import shown

RESIDENT_POOL_BYTES = 4 << 30
"""All devices and pinned host memory together never hold more than this, whatever the model's physical memory."""

LEAST_GBPS, MOST_GBPS = 1e-6, 1e6
MOST_US = 1e6
LEAST_DUPLEX = 0.5
"""Of a link that carries one way at a time."""
MOST_CACHE_BYTES = 512 << 20
"""Before a cold copy twice the cache of both ends is touched, which has to fit into the pool beside the slices."""
MOST_NUMA_NODE = 1023
LONGEST_TEXT = 100

LINK_TYPE_PCIE = 2
LINK_TYPE_XGMI = 4
"""``hsa_amd_link_info_type_t``, as ``hipExtGetLinkTypeAndHopCount`` reports it."""


class EmulatorError(Exception):
    """The emulated node cannot be had; the message is one line that says what to do."""


class ModelError(EmulatorError):
    """A node model that cannot be used; the message is one line and names the file and the key."""


@dataclass(frozen=True)
class DeviceModel:
    """What every GPU of the node is."""

    count: int
    name: str
    arch: str
    compute_units: int
    xccs: int
    partition: str
    simds_per_compute_unit: int
    memory_bytes: int
    memory_gbps: float
    memory_clock_mhz: int
    memory_bus_bits: int
    clock_mhz: int
    wall_clock_khz: int
    l2_cache_bytes: int
    last_level_cache_bytes: int
    large_bar: bool
    copy_engines: int
    xgmi_copy_engines: int
    pci_device_id: int
    pci: tuple[str, ...]
    numa_nodes: tuple[int, ...]

    @property
    def wavefront(self) -> int:
        """Threads of a wavefront: 64 on gfx9, 32 on the families after it."""
        return 64 if self.arch.startswith("gfx9") else 32

    def physical_gpu(self, index: int) -> int:
        """Return the first device on the same physical GPU: partitions share all of their PCI address but its end."""
        package = self.pci[index].partition(".")[0]
        return next(other for other, address in enumerate(self.pci) if address.partition(".")[0] == package)


@dataclass(frozen=True)
class LinkModel:
    """One class of link: ``raw_gbps`` is what the wire carries, ``usable_gbps`` what a copy gets.

    A copy engine gets ``dma_gbps`` where that is another figure. While data flow both ways, each way gets ``duplex`` of
    its rate.
    ``first_us`` passes until the first data of a shader that reads over it come, or those of one that only stores.
    ``first_store_us`` passes until the stores of a shader that also reads flow; it waits for its reads meanwhile.
    ``one_way_us`` passes until a store is seen at the far end; as long again until its sender knows.
    """

    link_class: str
    usable_gbps: float
    first_us: float
    one_way_us: float
    raw_gbps: float | None = None
    first_store_us: float = 0.0
    dma_gbps: float | None = None
    duplex: float = 1.0
    hops: int = 1


@dataclass(frozen=True)
class GfxModel:
    """What a shader costs. A rate of None limits nothing, a reach of 0 bytes loses no translation."""

    launch_us: float
    overlap_us: float
    write_back_us: float
    cold_remote_read_us: float
    translation_reach_bytes: int
    remote_read_gbps_per_compute_unit: float | None
    remote_write_gbps_per_compute_unit: float | None


@dataclass(frozen=True)
class DmaModel:
    """One copy engine: a copy takes ``issue_us`` + bytes / min(``rate_gbps``, link).

    With ``small`` a copy of up to ``small.max_bytes`` takes sqrt(``issue_us``^2 + (bytes / min(``small.rate_gbps``,
    link))^2), and a larger one ``small.large_setup_us`` + bytes / min(``rate_gbps``, link).
    """

    issue_us: float
    rate_gbps: float
    peer_minimum_bytes: int
    small: SmallCopies | None


@dataclass(frozen=True)
class SmallCopies:
    """What copies up to a size take where that is another curve, whether engine or shader makes them."""

    max_bytes: int
    rate_gbps: float
    large_setup_us: float


@dataclass(frozen=True)
class BatchModel:
    """A call of several copies: ``call_us``, then one copy after another, each with ``issue_us`` in the place of DMA's.

    An issue of None is that of DMA.
    """

    call_us: float = 0.0
    issue_us: float | None = None


@dataclass(frozen=True)
class CpuModel:
    """The host's processor: rates are those of one of its ``threads``.

    ``memory_gbps`` is what all that read its memory, and again all that write it, get together; None limits nothing.
    """

    name: str
    threads: int
    local_gbps: float
    to_device_gbps: float
    from_device_gbps: float
    memory_gbps: float | None


@dataclass(frozen=True)
class NodeModel:
    """One machine. Times are microseconds, rates GB/s of one direction, sizes bytes."""

    name: str
    description: str
    device: DeviceModel
    links: Mapping[str, LinkModel]
    pairs: Mapping[tuple[int, int], str]
    """The link class of ordered GPU pairs that do not have ``default_link``."""
    default_link: str
    gfx: GfxModel
    cache_hit_gbps: float | None
    """What reads get that hit the cache before a GPU's memory, which all its partitions share; None: not modelled."""
    dma: DmaModel
    batch: BatchModel
    cpu: CpuModel
    enqueue_us: float
    synchronize_us: float
    faults: tuple[Fault, ...] = ()
    extends: str = ""
    """The model that a file says it differs from; empty for one that says everything itself."""

    @property
    def device_name(self) -> str:
        """What the runtime calls each GPU; never mistaken for a real one."""
        return f"Emulated {self.device.name}"

    @property
    def reported_memory_bytes(self) -> int:
        """What a device reports as its total memory: the physical size, but never more than the pool behind it."""
        return min(self.device.memory_bytes, RESIDENT_POOL_BYTES)

    def link(self, source: int, destination: int) -> LinkModel:
        """Return what joins two ends; either may be :data:`HOST`, and both the same."""
        if source == destination:
            return self.links["local"]
        if HOST in (source, destination):
            return self.links["host"]
        return self.links[self.pairs.get((source, destination), self.default_link)]

    def link_type(self, source: int, destination: int) -> int:
        """Return the HSA number of the kind of link between two ends: only PCIe has a number apart."""
        return LINK_TYPE_PCIE if self.link(source, destination).link_class in ("host", "pcie") else LINK_TYPE_XGMI

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA nodes of the host, sorted: those that GPUs hang on."""
        return tuple(sorted(set(self.device.numa_nodes)))

    def unique_id(self, index: int) -> int:
        """Return the KFD unique id of one GPU: fixed, and in a range that no vendor hands out."""
        return 0xE0E0_0000_0000_0000 + index + 1

    def digest(self) -> str:
        """Return twelve characters that change with any parameter of the machine, which its faults are not."""
        return hashlib.sha256(repr(dataclasses.replace(self, faults=(), extends="")).encode()).hexdigest()[:12]

    def runtime_text(self, *, compiler: str, kernel_cache: Path, include_folder: Path) -> str:
        """Return the model as the lines that the C++ runtime reads: seconds, bytes, bytes a second."""
        device, gfx, dma, cpu = self.device, self.gfx, self.dma, self.cpu
        small = dma.small or SmallCopies(0, dma.rate_gbps, dma.issue_us)
        batch_issue_us = dma.issue_us if self.batch.issue_us is None else self.batch.issue_us
        cache_bytes = device.last_level_cache_bytes if self.cache_hit_gbps else 0
        lines = [
            f"name {self.name}",
            f"device_name {self.device_name}",
            f"arch {device.arch}",
            f"compiler {compiler}",
            f"kernel_cache {kernel_cache}",
            f"include_folder {include_folder}",
            f"devices {device.count}",
            f"compute_units {device.compute_units}",
            f"xccs {device.xccs}",
            f"wavefront {device.wavefront}",
            f"copy_engines {device.copy_engines} {device.xgmi_copy_engines}",
            f"pci_device_id {device.pci_device_id}",
            f"clock_khz {device.clock_mhz * 1000}",
            f"memory_clock_khz {device.memory_clock_mhz * 1000}",
            f"memory_bus_bits {device.memory_bus_bits}",
            f"wall_clock_khz {device.wall_clock_khz}",
            f"large_bar {int(device.large_bar)}",
            f"memory {self.reported_memory_bytes}",
            f"pool {RESIDENT_POOL_BYTES}",
            f"l2_cache {device.l2_cache_bytes}",
            f"launch {gfx.launch_us / 1e6!r}",
            f"overlap {gfx.overlap_us / 1e6!r}",
            f"write_back {gfx.write_back_us / 1e6!r}",
            f"cold_remote_read {gfx.cold_remote_read_us / 1e6!r}",
            f"translation_reach {gfx.translation_reach_bytes}",
            f"remote_rates_of_a_unit {(gfx.remote_read_gbps_per_compute_unit or 0) * 1e9!r} "
            f"{(gfx.remote_write_gbps_per_compute_unit or 0) * 1e9!r}",
            f"cache {cache_bytes} {(self.cache_hit_gbps or 0) * 1e9!r}",
            f"enqueue {self.enqueue_us / 1e6!r}",
            f"synchronize {self.synchronize_us / 1e6!r}",
            f"dma {dma.issue_us / 1e6!r} {dma.rate_gbps * 1e9!r} {dma.peer_minimum_bytes}",
            f"small_copies {small.max_bytes} {small.rate_gbps * 1e9!r} {small.large_setup_us / 1e6!r}",
            f"batch {self.batch.call_us / 1e6!r} {batch_issue_us / 1e6!r}",
            f"cpu {cpu.threads} {cpu.local_gbps * 1e9!r} {cpu.to_device_gbps * 1e9!r} {cpu.from_device_gbps * 1e9!r} "
            f"{(cpu.memory_gbps or 0) * 1e9!r}",
        ]
        for index in range(device.count):
            lines.append(
                f"device {device.pci[index]} {self.unique_id(index)} {device.numa_nodes[index]} "
                f"{device.physical_gpu(index)}"
            )
        ends = [HOST, *range(device.count)]
        for source in ends:
            for destination in ends:
                link = self.link(source, destination)
                kind = self.link_type(source, destination)
                lines.append(
                    f"link {source} {destination} {link.link_class} {link.usable_gbps * 1e9!r} {link.first_us / 1e6!r} "
                    f"{link.first_store_us / 1e6!r} {link.one_way_us / 1e6!r} {kind} {link.hops} "
                    f"{(link.dma_gbps or link.usable_gbps) * 1e9!r} {link.duplex!r}"
                )
        return "\n".join(lines) + "\n"


def node_models() -> tuple[str, ...]:
    """Return the names of the models that come with the package, sorted."""
    return tuple(sorted(entry.name[:-5] for entry in _model_folder().iterdir() if entry.name.endswith(".toml")))


def load_model(model: str | Path) -> NodeModel:
    """Return the model of that name or file.

    Raises :class:`ModelError`, one line, for an unknown name, a file that cannot be read or is no TOML, and a key that
    is missing, unknown or out of range.
    """
    text = str(model)
    if not text.endswith(".toml"):
        return _build(text, _read_named(text), text)
    path, where = Path(text), text if text.isprintable() else repr(text)
    if not path.stem.isprintable():
        raise ModelError(f"node model file {where}: its name must be printable: rename it")
    if not path.is_file():
        raise ModelError(f"no node model file {where}")
    try:
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ModelError(f"node model file {where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{where}: not valid TOML: byte {error.start} is not UTF-8, save it as a UTF-8 text") from None
    return _build(path.stem, _read(content, where), where)


def _model_folder() -> Any:
    return files("pytest_transferbench.emulator").joinpath("models")


def _read_named(name: str) -> dict[str, Any]:
    if name not in node_models():
        raise ModelError(f"unknown node model {shown(name)}; there are {', '.join(node_models())}, or give a FILE.toml")
    return _read(_model_folder().joinpath(f"{name}.toml").read_text(encoding="utf-8"), name)


def _read(text: str, where: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or Python's own for a number of thousands of digits
        raise ModelError(f"{where}: not valid TOML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ModelError(f"{where}: not valid TOML: nested too deep, a node model has tables of one level") from None
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str) or base not in node_models():
        raise ModelError(f"{where}: extends = {shown(base)}, but there are {', '.join(node_models())}")
    if base in seen or base == where:
        raise ModelError(f"{where}: extends goes round in a circle through {base!r}")
    base_text = _model_folder().joinpath(f"{base}.toml").read_text(encoding="utf-8")
    return {**_merged(_read(base_text, base, (*seen, where)), data), "extends": base}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both_tables else value
    return merged


class _Table:
    """One TOML table, taken apart key by key; what is left over is unknown and refused."""

    def __init__(self, data: Any, where: str, path: str) -> None:
        if not isinstance(data, dict):
            raise ModelError(f"{where}: {path or 'the file'} must be a table")
        self._left: dict[str, Any] = dict(data)
        self.where, self._path = where, path

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        value = self._pop(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (kind in (int, float) and not is_number) or not isinstance(value, kind):
            self.refuse(key, value, _KIND_WORDS[kind])
        return value

    def whole(self, key: str, least: int, most: int, default: int | None = None) -> int:
        """Take a whole number from ``least`` to ``most``."""
        value = self._pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(key, value, f"a whole number from {least} to {most}")
        return value

    def rate(self, key: str) -> float:
        """Take a rate in GB/s."""
        return self._number(key, LEAST_GBPS, MOST_GBPS)

    def optional_rate(self, key: str) -> float | None:
        """Take a rate in GB/s that may be left out; None then."""
        return self.rate(key) if key in self._left else None

    def rate_or_unknown(self, key: str) -> float | None:
        """Take a rate in GB/s that may be left out or be 0, which both mean that nobody knows it; None then."""
        value = self._left.get(key, 0)
        if not isinstance(value, bool) and value == 0:
            self._left.pop(key, None)
            return None
        return self._number(key, LEAST_GBPS, MOST_GBPS, or_else="0 (unknown) or ")

    def share(self, key: str, least: float, default: float) -> float:
        """Take a part of the whole, from ``least`` to 1."""
        return self._number(key, least, 1, default)

    def time_us(self, key: str, default: float | None = None) -> float:
        return self._number(key, 0, MOST_US, default)

    def size(self, key: str, least: int, most: int, default: str | None = None) -> int:
        """Take a size from ``least`` to ``most`` bytes, written with a binary suffix."""
        value = self._pop(key, default)
        match = re.fullmatch(r"([0-9]{1,16})([KMGT]?)", value) if isinstance(value, str) else None
        nbytes = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2]] if match else -1
        if not least <= nbytes <= most:
            self.refuse(key, value, f'a size from "{format_size(least)}" to "{format_size(most)}"')
        return nbytes

    def text(self, key: str, *, empty: bool = False) -> str:
        """Take a text that a line of the runtime or of KFD's files can hold."""
        value = self._pop(key, None)
        fits = isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= LONGEST_TEXT
        if not fits or not (empty or value.strip()):
            self.refuse(key, value, f"a text of printable ASCII, at most {LONGEST_TEXT} characters")
        return str(value)

    def refuse(self, key: str, value: Any, allowed: str) -> NoReturn:
        raise ModelError(f"{self.where}: {self._name(key)} = {shown(value)} must be {allowed}")

    def _number(self, key: str, least: float, most: float, default: float | None = None, or_else: str = "") -> float:
        value = self._pop(key, default)
        # Compared before it is converted: a whole number may be larger than any float, and NaN is in no range.
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.refuse(key, value, f"{or_else}a number from {least:g} to {most:g}")
        return float(value)

    def _pop(self, key: str, default: Any) -> Any:
        if key not in self._left:
            if default is None:
                raise ModelError(f"{self.where}: {self._name(key)} is missing")
            return default
        return self._left.pop(key)

    def _name(self, key: str) -> str:
        name = f"{self._path}.{key}" if self._path else key
        return _bare(name)

    def table(self, key: str) -> _Table:
        return _Table(self.take(key, dict), self.where, self._name(key))

    def names(self) -> tuple[str, ...]:
        return tuple(self._left)

    def done(self) -> None:
        if self._left:
            raise ModelError(f"{self.where}: {self._name(next(iter(self._left)))} is no key of a node model")


def _bare(key: str) -> str:
    return key if key.isprintable() else repr(key)


_KIND_WORDS = {
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _build(name: str, data: Mapping[str, Any], where: str) -> NodeModel:
    top = _Table(data, where, "")
    description = top.take("description", str)
    device = _device(top.table("device"), where)
    links = _links(top.table("link"))
    pairs, default_link = _pairs(top.table("links"), where, device, links)
    cpu, host = (top.table(key) for key in ("cpu", "host"))
    model = NodeModel(
        name=name,
        description=description,
        device=device,
        links=links,
        pairs=pairs,
        default_link=default_link,
        gfx=_gfx(top.table("gfx")),
        cache_hit_gbps=_cache(top.table("cache"), links["local"]) if "cache" in top.names() else None,
        dma=_dma(top.table("dma")),
        batch=_batch(top.table("batch")) if "batch" in top.names() else BatchModel(),
        cpu=CpuModel(
            name=cpu.text("name"),
            threads=cpu.whole("threads", 1, 4096),
            local_gbps=cpu.rate("local_gbps"),
            to_device_gbps=cpu.rate("to_device_gbps"),
            from_device_gbps=cpu.rate("from_device_gbps"),
            memory_gbps=cpu.optional_rate("memory_gbps"),
        ),
        enqueue_us=host.time_us("enqueue_us"),
        synchronize_us=host.time_us("synchronize_us"),
        faults=_faults(top.take("fault", list, []), where, device.count),
        extends=top.take("extends", str, ""),
    )
    for table in (cpu, host, top):
        table.done()
    return model


def _cache(table: _Table, local: LinkModel) -> float:
    hit_gbps = table.rate("hit_gbps")
    table.done()
    if hit_gbps < local.usable_gbps:
        least = f"at least link.local.usable_gbps = {local.usable_gbps:g}"
        table.refuse("hit_gbps", hit_gbps, f"{least}: a cache is no slower than the memory behind it")
    return hit_gbps


def _dma(table: _Table) -> DmaModel:
    curve = {"small_max", "small_gbps", "large_setup_us"} & set(table.names())
    dma = DmaModel(
        issue_us=table.time_us("issue_us"),
        rate_gbps=table.rate("rate_gbps"),
        peer_minimum_bytes=table.size("peer_minimum", 0, 1 << 40),
        small=SmallCopies(
            table.size("small_max", 1, 1 << 40), table.rate("small_gbps"), table.time_us("large_setup_us")
        )
        if curve
        else None,
    )
    table.done()
    return dma


def _batch(table: _Table) -> BatchModel:
    batch = BatchModel(table.time_us("call_us"), table.time_us("issue_us"))
    table.done()
    return batch


def _gfx(table: _Table) -> GfxModel:
    gfx = GfxModel(
        launch_us=table.time_us("launch_us"),
        overlap_us=table.time_us("overlap_us"),
        write_back_us=table.time_us("write_back_us"),
        cold_remote_read_us=table.time_us("cold_remote_read_us", 0.0),
        translation_reach_bytes=table.size("translation_reach", 0, 1 << 44, "0"),
        remote_read_gbps_per_compute_unit=table.optional_rate("remote_read_gbps_per_compute_unit"),
        remote_write_gbps_per_compute_unit=table.optional_rate("remote_write_gbps_per_compute_unit"),
    )
    table.done()
    return gfx


def _device(table: _Table, where: str) -> DeviceModel:
    device = DeviceModel(
        count=table.whole("count", 1, 64),
        name=table.text("name"),
        arch=table.take("arch", str),
        compute_units=table.whole("compute_units", 1, 4096),
        xccs=table.whole("xccs", 1, 64),
        partition=table.text("partition", empty=True),
        simds_per_compute_unit=table.whole("simds_per_compute_unit", 1, 16),
        memory_bytes=table.size("memory", 1 << 20, 1 << 44),
        memory_gbps=table.rate("memory_gbps"),
        memory_clock_mhz=table.whole("memory_clock_mhz", 1, 100_000),
        memory_bus_bits=table.whole("memory_bus_bits", 1, 1 << 20),
        clock_mhz=table.whole("clock_mhz", 1, 100_000),
        wall_clock_khz=table.whole("wall_clock_khz", 1000, 10_000_000),
        l2_cache_bytes=table.size("l2_cache", 0, 1 << 30),
        last_level_cache_bytes=table.size("last_level_cache", 0, MOST_CACHE_BYTES),
        large_bar=table.take("large_bar", bool),
        copy_engines=table.whole("copy_engines", 1, 64),
        xgmi_copy_engines=table.whole("xgmi_copy_engines", 0, 64, 0),
        pci_device_id=table.whole("pci_device_id", 1, 0xFFFF),
        pci=tuple(table.take("pci", list)),
        numa_nodes=tuple(table.take("numa_nodes", list)),
    )
    table.done()
    if not re.fullmatch(r"gfx[0-9]{1,2}[0-9a-f]{2}(:[a-z]+[+-])*", device.arch):
        table.refuse("arch", device.arch, "as gfx942 or gfx942:sramecc+:xnack-")
    if device.xccs > device.compute_units:
        table.refuse(
            "xccs", device.xccs, f"at most device.compute_units = {device.compute_units}: a die has one at least"
        )
    for key, values in (("pci", device.pci), ("numa_nodes", device.numa_nodes)):
        if len(values) != device.count:
            raise ModelError(f"{where}: device.{key} has {len(values)} entries for device.count = {device.count}")
    for place, address in enumerate(device.pci):
        if not isinstance(address, str) or not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address):
            raise ModelError(f'{where}: device.pci holds {shown(address)}; an address looks like "0000:0c:00.0"')
        if address in device.pci[:place]:
            raise ModelError(f"{where}: device.pci holds {address} twice; every GPU and partition has its own")
    for numa_node in device.numa_nodes:
        if isinstance(numa_node, bool) or not isinstance(numa_node, int) or not 0 <= numa_node <= MOST_NUMA_NODE:
            raise ModelError(
                f"{where}: device.numa_nodes holds {shown(numa_node)}; a node is a whole number from 0 to "
                f"{MOST_NUMA_NODE}"
            )
    return device


def _faults(entries: list[Any], where: str, count: int) -> tuple[Fault, ...]:
    """Read the tables of ``[[fault]]``."""
    faults = []
    for number, entry in enumerate(entries, 1):
        table = _Table(entry, where, f"fault {number}")
        fault = Fault(
            call=table.take("call", str),
            nth=table.whole("nth", 1, 1_000_000_000),
            code=table.take("code", str),
            sticky=table.take("sticky", bool, False),
            device=table.whole("device", 0, count - 1) if "device" in table.names() else ANY_DEVICE,
        )
        table.done()
        for key, value, known in (("call", fault.call, hip_calls()), ("code", fault.code, error_codes())):
            if value not in known:
                near = ", ".join(difflib.get_close_matches(value, known)) or "none is near it"
                raise ModelError(
                    f"{where}: fault {number}.{key} = {shown(value)} is not in the emulated HIP; meant: {near}"
                )
        faults.append(fault)
    return tuple(faults)


def _links(table: _Table) -> dict[str, LinkModel]:
    links = {}
    for name in ("local", "host", *table.names()):
        if name in links:
            continue
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
            raise ModelError(f"{table.where}: link class {shown(name)} must be named with letters, digits, _ and -")
        link = table.table(name)
        links[name] = LinkModel(
            name,
            link.rate("usable_gbps"),
            first_us=link.time_us("first_us"),
            one_way_us=link.time_us("one_way_us"),
            raw_gbps=link.rate_or_unknown("raw_gbps"),
            first_store_us=link.time_us("first_store_us", 0.0),
            dma_gbps=link.optional_rate("dma_gbps"),
            duplex=link.share("duplex", LEAST_DUPLEX, 1.0),
            hops=link.whole("hops", 0, 64, 1),
        )
        link.done()
    return links


def _pairs(
    table: _Table, where: str, device: DeviceModel, links: Mapping[str, LinkModel]
) -> tuple[dict[tuple[int, int], str], str]:
    """Read ``[links]``: ``default``, ``same_gpu`` and, for single pairs, ``"0-1" = "pcie"`` (both directions)."""
    count, default = device.count, table.take("default", str)
    same_gpu = table.take("same_gpu", str, default)
    pairs = {
        (first, second): same_gpu
        for first in range(count)
        for second in range(count)
        if first != second and device.physical_gpu(first) == device.physical_gpu(second)
    }
    named: dict[tuple[int, int], tuple[str, str]] = {}
    for key in table.names():
        link_class = table.take(key, str)
        match = re.fullmatch(r"([0-9]{1,4})-([0-9]{1,4})", key)
        if not match or int(match[1]) == int(match[2]) or max(int(match[1]), int(match[2])) >= count:
            raise ModelError(f'{where}: links.{_bare(key)} must name two GPUs of {count}, such as "0-1"')
        first, second = int(match[1]), int(match[2])
        other, before = named.setdefault((min(first, second), max(first, second)), (key, link_class))
        if before != link_class:
            raise ModelError(
                f"{where}: links.{key} = {link_class!r} and links.{other} = {before!r}: a pair's link is the same both "
                "ways, name it once"
            )
        pairs[first, second] = pairs[second, first] = link_class
    for link_class in (default, same_gpu, *pairs.values()):
        if link_class not in links:
            raise ModelError(f"{where}: [links] names {shown(link_class)}, but the classes are {', '.join(links)}")
    return pairs, default

"""Facts about one machine: its GPUs, the links between them, and the software in between.

A :class:`Node` is made once, by a probing child process, and travels as JSON. Everything a case needs to
know about the machine is read from here, never asked of a runtime again.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_transferbench.transfer import HOST as HOST


class LinkClass(enum.StrEnum):
    """What carries the bytes between two ends."""

    LOCAL = "local"
    ON_DIE = "on-die"
    XGMI = "xGMI"
    NVLINK = "NVLink"
    PCIE = "PCIe"
    UALOE = "UALoE"
    HOST = "host"


@dataclass(frozen=True)
class Device:
    """One GPU as the runtime shows it.

    Sizes are bytes. ``None`` means that no source answered: a missing fact is never guessed.
    """

    index: int
    name: str
    arch: str
    pci: str
    compute_units: int
    memory_bytes: int
    xccs: int = 1
    warp_size: int = 64
    last_level_cache_bytes: int | None = None
    memory_gbps: float | None = None
    """Peak rate of the device's own memory, reads plus writes."""
    partition: str | None = None
    large_bar: bool | None = None
    numa_node: int | None = None
    copy_engines: int | None = None
    managed_memory: bool | None = None
    """Whether managed memory can be moved to this device and kept there."""
    pageable_access: bool | None = None
    """Whether its kernels reach host memory that nobody has pinned."""
    uuid: str | None = None
    physical_gpu: str | None = None
    """Equal for the partitions of one physical GPU: KFD unique_id, else PCI domain:bus:device."""


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node of the host with memory that this process may use, and how many processors it may run on there."""

    index: int
    cpus: int = 1


@dataclass(frozen=True)
class Link:
    """The way from one end to another; either end may be :data:`HOST`.

    ``gbps`` is the raw peak of one direction in GB/s (1e9 bytes a second), ``None`` where it is unknown.
    ``source_of_rate`` names what reported it, with the factors, such as ``NVML 18 x 26.562``.
    """

    source: int
    destination: int
    link_class: LinkClass
    gbps: float | None = None
    source_of_rate: str = "unknown"
    hops: int | None = None
    peer_access: bool = True


@dataclass(frozen=True)
class Node:
    """A machine: ``runtime`` is ``rocm``, ``cuda`` or ``host``; ``emulated`` names the node model, if any.

    ``why_no_gpu`` says, in one line, why ``devices`` is empty. ``notes`` are lines for the header (large BAR,
    IOMMU, queue and SDMA settings, anything a reader of the figures should know).
    """

    runtime: str
    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    emulated: str | None = None
    why_no_gpu: str | None = None
    driver: str | None = None
    runtime_version: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    batch_copy: bool = False
    """Whether the runtime has a call for many copies at once."""
    host_name: str = "CPU"
    host_cpus: int = 1
    host_cache_bytes: int | None = None
    """The largest last-level cache of the host's processors."""
    numa_nodes: tuple[NumaNode, ...] = (NumaNode(0),)
    """Where host memory can lie, by the kernel's own numbers: these may have gaps. At least one."""

    def closest_numa_node(self, gpu: int) -> int | None:
        """Return the NUMA node closest to ``gpu``; None where there are several and the kernel does not say which."""
        known = self.device(gpu).numa_node
        return self.numa_nodes[0].index if known is None and len(self.numa_nodes) == 1 else known

    def device(self, index: int) -> Device:
        """Return the device with ``index``; raises ``KeyError`` naming the devices there are."""
        for device in self.devices:
            if device.index == index:
                return device
        raise KeyError(f"no GPU {index}; this node has {self.describe_indices()}")

    def link(self, source: int, destination: int) -> Link:
        """Return the link from ``source`` to ``destination``; raises ``KeyError`` for a pair never probed."""
        try:
            return self._links_by_ends[source, destination]
        except KeyError:
            raise KeyError(f"no link from {source} to {destination} on this node") from None

    @functools.cached_property
    def _links_by_ends(self) -> dict[tuple[int, int], Link]:
        return {(link.source, link.destination): link for link in self.links}

    def describe_indices(self) -> str:
        """Say which GPUs there are, for messages: ``GPUs 0-7``, ``GPU 0`` or ``no GPU``."""
        indices = [device.index for device in self.devices]
        if not indices:
            return "no GPU"
        if len(indices) == 1:
            return f"GPU {indices[0]}"
        if indices == list(range(indices[0], indices[-1] + 1)):
            return f"GPUs {indices[0]}-{indices[-1]}"
        return "GPUs " + ", ".join(map(str, indices))

    def describe_numa_nodes(self) -> str:
        """Say which NUMA nodes there are, for messages: ``NUMA node 0`` or ``NUMA nodes 0, 1``."""
        indices = [numa_node.index for numa_node in self.numa_nodes]
        return f"NUMA node{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"

    def to_json(self) -> dict[str, Any]:
        """Return plain types only, fit for ``json.dumps`` and for pytest-xdist's ``workerinput``."""
        data = dataclasses.asdict(self)
        for link in data["links"]:
            link["link_class"] = str(link["link_class"])  # xdist carries exact types alone, no StrEnum
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Node:
        """Rebuild a node from :meth:`to_json`."""
        fields = dict(data)
        fields["devices"] = tuple(Device(**device) for device in fields["devices"])
        fields["links"] = tuple(
            Link(**{**link, "link_class": LinkClass(link["link_class"])}) for link in fields["links"]
        )
        fields["notes"] = tuple(fields["notes"])
        fields["numa_nodes"] = tuple(NumaNode(**numa_node) for numa_node in fields["numa_nodes"])
        return cls(**fields)

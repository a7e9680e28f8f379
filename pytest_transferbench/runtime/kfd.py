"""The AMD kernel driver's topology: a directory of small ``key value`` files, read and nothing more.

The root is a parameter: ``/sys/class/kfd/kfd/topology/nodes`` on a real machine, files of the node model on an
emulated one. The keys and units are those of the kernel's ``kfd_topology.c`` and ``kfd_crat.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")

IOLINK_PCIE = 2
IOLINK_XGMI = 11


@dataclass(frozen=True)
class IoLink:
    """A link of one node as the driver lists it; ``max_bandwidth`` is MB/s of one direction, 0 where unknown."""

    to_node: int
    type: int
    max_bandwidth: int
    weight: int = 0

    @property
    def gbps(self) -> float | None:
        return self.max_bandwidth / 1000 if self.max_bandwidth > 0 else None


@dataclass(frozen=True)
class KfdNode:
    """One node of the topology; a GPU partition is a node of its own, and so is every processor."""

    number: int
    properties: dict[str, int]
    caches: tuple[dict[str, int], ...] = ()
    links: tuple[IoLink, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.properties.get("simd_count", 0) > 0

    @property
    def unique_id(self) -> int:
        """The physical GPU's serial number; 0 where the driver gives none."""
        return self.properties.get("unique_id", 0)

    @property
    def pci(self) -> tuple[int, int, int, int]:
        """(domain, bus, device, function): ``location_id`` holds bus, device and function in its low 16 bits."""
        location = self.properties.get("location_id", 0) & 0xFFFF
        return self.properties.get("domain", 0), location >> 8, location >> 3 & 0x1F, location & 0x7

    @property
    def partition_number(self) -> int:
        """The number of this partition on its GPU, which the driver keeps in the top bits of ``location_id``."""
        return self.properties.get("location_id", 0) >> 28

    @property
    def xccs(self) -> int | None:
        return self.properties.get("num_xcc") or None

    @property
    def copy_engines(self) -> int | None:
        """All DMA engines, those for xGMI among them: ROCr numbers them through."""
        kinds = ("num_sdma_engines", "num_sdma_xgmi_engines")
        return sum(self.properties.get(kind, 0) for kind in kinds) or None

    def last_level_cache_bytes(self) -> int | None:
        """Return the size of the level 3 cache (the driver counts in KiB), None where the driver lists none.

        Each entry is one cache; partitions that share a cache all list it, so the largest entry is it.
        """
        sizes = [cache.get("size", 0) for cache in self.caches if cache.get("level") == 3]
        return max(sizes) * 1024 if sizes and max(sizes) > 0 else None

    def link_to(self, number: int) -> IoLink | None:
        """Return the fastest listed link to a node: a pair may be listed once as xGMI and once through the host."""
        found = [link for link in self.links if link.to_node == number]
        return max(found, key=lambda link: (link.type == IOLINK_XGMI, link.max_bandwidth), default=None)


def read_nodes(root: Path = KFD_NODES) -> tuple[KfdNode, ...]:
    """Return all nodes under ``root``, by number; empty where there is no such directory.

    A container hides the properties of the GPUs it was not given (they read as errors): those nodes are left out.
    """
    nodes = []
    for folder in sorted(_numbered(root), key=lambda path: int(path.name)):
        properties = _properties(folder / "properties")
        if properties:
            caches = tuple(_properties(cache / "properties") for cache in _numbered(folder / "caches"))
            links = [
                _link(_properties(link / "properties"))
                for group in ("io_links", "p2p_links")
                for link in _numbered(folder / group)
            ]
            nodes.append(KfdNode(int(folder.name), properties, caches, tuple(filter(None, links))))
    return tuple(nodes)


def _link(properties: dict[str, int]) -> IoLink | None:
    if "node_to" not in properties:
        return None
    return IoLink(
        properties["node_to"],
        properties.get("type", 0),
        properties.get("max_bandwidth", 0),
        properties.get("weight", 0),
    )


def _numbered(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _properties(path: Path) -> dict[str, int]:
    """Return the ``key value`` lines of a file; what is not a number (a list of hex words) is passed over."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[key] = int(value)
    return found

"""Writes topology directories as the AMD kernel driver lays them out."""

from __future__ import annotations

from pathlib import Path


class KfdTree:
    """A topology under ``root``; node 0 is the processor."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._write(root / "0", {"cpu_cores_count": 96, "simd_count": 0})

    def gpu(
        self,
        number: int,
        *,
        bus: int,
        function: int = 0,
        unique_id: int = 0,
        partition: int = 0,
        links: dict[int, tuple[int, int]] | None = None,
        p2p: dict[int, tuple[int, int]] | None = None,
        llc_kib: int | None = 262144,
        xcc: int = 8,
    ) -> None:
        """Add a GPU; ``links`` is node -> (type, MB/s)."""
        folder = self.root / str(number)
        properties = {
            "cpu_cores_count": 0,
            "simd_count": 1216,
            "num_xcc": xcc,
            "domain": 0,
            "location_id": partition << 28 | bus << 8 | function,
            "unique_id": unique_id,
            "num_sdma_engines": 2,
        }
        self._write(folder, properties)
        sizes = [(1, 32), (2, 4096), *([(3, llc_kib)] if llc_kib is not None else [])]
        for index, (level, size) in enumerate(sizes):
            self._write(folder / "caches" / str(index), {"level": level, "size": size})
        for group, entries in (("io_links", links), ("p2p_links", p2p)):
            for index, (to, (kind, rate)) in enumerate((entries or {}).items()):
                self._write(
                    folder / group / str(index),
                    {"type": kind, "node_from": number, "node_to": to, "max_bandwidth": rate},
                )

    def _write(self, folder: Path, properties: dict[str, int]) -> None:
        folder.mkdir(parents=True)
        (folder / "properties").write_text("".join(f"{key} {value}\n" for key, value in properties.items()))

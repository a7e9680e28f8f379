"""What is known of AMD architectures from their published documents, for facts that no driver file gives.

Asked last: after the kernel driver's topology and after amdsmi. An architecture or a fact that is not here is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_transferbench.node import LinkClass

MIB = 1 << 20


@dataclass(frozen=True)
class Architecture:
    """Facts of one architecture.

    ``last_level_cache_bytes`` is the cache behind the L2 that other devices' reads can hit, None where the L2 is the
    last. ``xgmi_gbps`` is one 16-lane link, one direction, raw. ``transfers_per_clock`` turns the memory clock that HIP
    reports into transfers a second. ``between_gpus`` is the class of the links that the driver lists as xGMI.
    ``source`` is the document that these facts come from.
    """

    last_level_cache_bytes: int | None
    xgmi_gbps: float | None
    transfers_per_clock: int | None
    source: str
    between_gpus: LinkClass = LinkClass.XGMI


ARCHITECTURES = {
    # The L2 of one die of MI200 is 8 MB and is the last level; links are 16 lanes x 25 GT/s. HIP says 1600 MHz for
    # memory of 3.2 Gbit/s a pin.
    "gfx90a": Architecture(8 * MIB, 50.0, 2, "AMD CDNA 2 white paper"),
    # 256 MB of Infinity Cache on MI300X and MI300A; links are 16 lanes x 32 GT/s. HIP says 1300 MHz for memory of
    # 5.2 Gbit/s a pin: twice that clock would put the ceiling below what the memory does.
    "gfx942": Architecture(256 * MIB, 64.0, 4, "AMD CDNA 3 white paper"),
    # 256 MB of Infinity Cache on MI350X and MI355X; links of 153.6 GB/s both ways together. HIP says 2000 MHz for
    # memory of 8 Gbit/s a pin.
    "gfx950": Architecture(256 * MIB, 76.8, 4, "AMD Instinct MI355X product page"),
    # Published documents give neither figure per link, and its links are UALoE: the driver's files are the only source.
    "gfx1250": Architecture(None, None, None, "no published figure", LinkClass.UALOE),
}


def architecture(gcn_arch_name: str) -> Architecture | None:
    """Return the entry of ``gfx942:sramecc+:xnack-`` and the like, None for an architecture that is not known."""
    return ARCHITECTURES.get(gcn_arch_name.partition(":")[0])

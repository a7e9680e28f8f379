"""Parts of an executor that a Transfer may name: one XCC of a GPU's kernel (``G0.2``), one DMA engine (``D0.3``)."""

from __future__ import annotations

from pytest_transferbench.node import Device, Node

_ARCHITECTURES_THAT_TELL = ("gfx942", "gfx950")
"""Those on which a kernel can read which XCC it runs on: ``tb_xcc`` of ``portability.h``."""


def unsupported_part(letter: str, gpu: int, part: int, node: Node) -> str | None:
    """Return, in one line, why executor ``letter`` of ``gpu`` cannot be its part ``part``; ``None`` when it can.

    A function of recorded facts alone; ``gpu`` is known to be there.
    """
    whole, named = f"{letter}{gpu}", f"{letter}{gpu}.{part}"
    if node.runtime != "rocm":
        return f"{named}: CUDA lets nobody choose a part of a GPU; use {whole}"
    if letter == "D":
        return f"{named}: no DMA engine can be chosen, HIP takes one itself; use {whole}"
    device = node.device(gpu)
    if not 0 <= part < device.xccs:
        xccs = "1 XCC, 0" if device.xccs == 1 else f"{device.xccs} XCCs, 0 to {device.xccs - 1}"
        return f"{named}: GPU {gpu} has {xccs}; use one of these, or {whole}"
    if device.xccs > 1 and device.arch not in _ARCHITECTURES_THAT_TELL:
        return f"{named}: a kernel on {device.arch} cannot tell which XCC it runs on; use {whole}"
    return None


def xcc_defines(device: Device, xcc: int) -> dict[str, int]:
    """Return what a kernel of ``copy.hip`` is compiled with, to work on one XCC; none where there is one alone.

    Its launch has :func:`xcc_blocks` blocks.
    """
    return {"TB_XCC": xcc, "TB_XCCS": device.xccs} if device.xccs > 1 else {}


def xcc_blocks(device: Device, blocks: int) -> int:
    """Return how many blocks to launch, so that ``blocks`` of them are on the one XCC that works."""
    return blocks * device.xccs


def xcc_units(device: Device) -> int:
    """Return the compute units of one XCC: as many blocks keep it busy."""
    return max(1, device.compute_units // device.xccs)

"""Parts of an executor that a Transfer may name: one XCC of a GPU's kernel (``G0.2``), one DMA engine (``D0.3``)."""

from __future__ import annotations

from pytest_transferbench.node import Device, Node

_ARCHITECTURES_THAT_TELL = ("gfx942", "gfx950")
"""Those on which a kernel can read which XCC it runs on: ``tb_xcc`` of ``portability.h``."""

_NEEDED = "hsa_amd_memory_async_copy_on_engine of libhsa-runtime64 (ROCm 5.7)"


def unsupported_part(letter: str, gpu: int, part: int, node: Node) -> str | None:
    """Return, in one line, why executor ``letter`` of ``gpu`` cannot be its part ``part``; ``None`` when it can.

    A function of recorded facts alone; ``gpu`` is known to be there.
    """
    whole, named = f"{letter}{gpu}", f"{letter}{gpu}.{part}"
    if node.runtime != "rocm":
        return f"{named}: CUDA lets nobody choose a part of a GPU; use {whole}"
    device = node.device(gpu)
    if letter == "D":
        return _unsupported_engine(named, whole, part, device, node)
    if not 0 <= part < device.xccs:
        return _not_there(named, whole, device, "XCC", device.xccs)
    if device.xccs > 1 and device.arch not in _ARCHITECTURES_THAT_TELL:
        return f"{named}: a kernel on {device.arch} cannot tell which XCC it runs on; use {whole}"
    return None


def _unsupported_engine(named: str, whole: str, part: int, device: Device, node: Node) -> str | None:
    if node.emulated:
        return f"{named}: an emulated node chooses its DMA engines itself; use {whole}"
    if not node.engine_copy:
        return f"{named}: no DMA engine can be chosen without {_NEEDED}; use {whole}"
    if device.copy_engines is not None and part >= device.copy_engines:
        return _not_there(named, whole, device, "DMA engine", device.copy_engines)
    return None


def _not_there(named: str, whole: str, device: Device, what: str, count: int) -> str:
    there = f"1 {what}, 0" if count == 1 else f"{count} {what}s, 0 to {count - 1}"
    return f"{named}: GPU {device.index} has {there}; use one of these, or {whole}"


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

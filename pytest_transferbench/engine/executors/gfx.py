"""G: a kernel on the GPU, one block a sub-executor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.executors.base import Executor, Geometry, Operands, Place
from pytest_transferbench.engine.parts import xcc_blocks, xcc_defines, xcc_units
from pytest_transferbench.engine.pattern import WRITE_KEY
from pytest_transferbench.node import Device, Node
from pytest_transferbench.runtime import Stream
from pytest_transferbench.transfer import MAX_ENDS, Transfer

# Threads a block and loads in flight a thread. A pull must cover bandwidth x round trip with loads: 16 blocks of
# 512 x 8 x 16 B fill NVLink4; a wave of CDNA holds 63 outstanding loads and one xGMI link needs only some blocks.
_SHAPES = {"gfx90a": (256, 8), "gfx94": (256, 4), "gfx95": (256, 4), "gfx": (256, 4), "sm_": (512, 8)}


SUMS_BYTES = 256
"""Room for the sum that a read-only launch adds to, and for the one it must find."""


def geometry(transfer: Transfer, node: Node, together: int) -> Geometry:
    """Return blocks and their shape for one of ``together`` Transfers that run at the same time."""
    device = node.device(transfer.executor.index)
    local, xcc = transfer.op == "local", transfer.executor.sub_index
    return blocks(device, transfer.nbytes, transfer.subexecutors, local=local, together=together, xcc=xcc)


def unsupported(transfer: Transfer, node: Node, sub_iterations: int) -> str | None:
    """A kernel does whatever its GPU can reach."""
    return None


def operations(transfer: Transfer, sub_iterations: int) -> int:
    """All passes are in one launch."""
    return 1


def remark(transfer: Transfer, node: Node) -> str:
    """There is nothing to know."""
    return ""


def make(place: Place, operands: Sequence[Operands], geometry: Geometry, launches: int) -> Executor:
    """Return what makes the copies in ``operands``, all in one launch."""
    stamps = place.take("stamps", 16 * geometry.subexecutors * len(operands) * launches)
    if len(operands[0].sources) > 1 or len(operands[0].destinations) > 1:
        (only,) = operands
        return GfxReduceExecutor(place.gpu, only, geometry, stamps, sums_at=place.take("sums", SUMS_BYTES))
    if len(operands) > 1:
        table = place.take("table", GfxManyExecutor.ROW_BYTES * len(operands))
        return GfxManyExecutor(place.gpu, operands, geometry, stamps, table)
    return GfxExecutor(place.gpu, operands[0], geometry, stamps, sums_at=place.take("sums", SUMS_BYTES))


def blocks(
    device: Device, nbytes: int, subexecutors: int, *, local: bool, together: int = 1, xcc: int | None = None
) -> Geometry:
    """Return blocks and their shape for one copy of ``nbytes`` by ``device``.

    ``subexecutors`` 0 means all compute units, fewer where half a block would have nothing to do: on H200, 64 KiB and
    256 KiB copies are a fifth faster spread over twice as many units. A local copy gets two blocks a unit: device
    memory needs more bytes in flight than any link. Copies that run ``together`` divide the units. With an ``xcc`` the
    units are its own.
    """
    threads, unroll = next(shape for prefix, shape in _SHAPES.items() if device.arch.startswith(prefix))
    useful = max(1, 2 * nbytes // (16 * threads))
    units = (device.compute_units if xcc is None else xcc_units(device)) * (2 if local else 1)
    count = subexecutors or min(max(1, units // together), useful)
    return Geometry(count, threads, unroll, xcc)


def _defines(device: Device, geometry: Geometry) -> dict[str, int]:
    """Return what a kernel of this geometry is compiled with."""
    chosen = {} if geometry.part is None else xcc_defines(device, geometry.part)
    return {"TB_BLOCK": geometry.block_threads, "TB_UNROLL": geometry.unroll, **chosen}


def _launched(device: Device, blocks: int, geometry: Geometry) -> int:
    """Return how many blocks are launched for ``blocks`` to do the work."""
    return blocks if geometry.part is None else xcc_blocks(device, blocks)


class GfxExecutor:
    """Copies, reads or writes with a kernel; slices and passes advance inside it."""

    letter = "G"
    wakes_behind_gate = False
    wake_passes = 1

    def __init__(
        self,
        context: DeviceContext,
        operands: Operands,
        geometry: Geometry,
        stamps_at: int,
        *,
        sums_at: int = 0,
    ) -> None:
        self.stream: Stream | None = context.stream
        self.stamps_per_launch = 2 * geometry.subexecutors
        self._runtime = context.runtime
        self._geometry = geometry
        self.stamps_at = stamps_at
        self.sums_at = sums_at
        self._operands = operands
        name = {(True, True): "tb_copy", (True, False): "tb_read", (False, True): "tb_write"}[
            bool(operands.sources), bool(operands.destinations)
        ]
        self._blocks = _launched(context.device, geometry.subexecutors, geometry)
        self._kernel = context.kernel("copy", name, **_defines(context.device, geometry))

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        operands, plan = self._operands, self._operands.plan
        stamps = np.uint64(self.stamps_at + 8 * self.stamps_per_launch * slot)
        nbytes, count = np.uint64(operands.nbytes), np.uint32(passes)
        if not operands.sources:
            args: tuple[np.generic, ...] = (
                np.uint64(operands.destinations[0]),
                nbytes,
                np.uint32(WRITE_KEY),
                count,
                stamps,
            )
        else:
            source, pitch = np.uint64(operands.sources[0]), np.uint64(plan.pitch)
            walk = (pitch, np.uint64(plan.slices), np.uint64(first_slice), count)
            if not operands.destinations:
                args = (source, nbytes, *walk, np.uint64(self.sums_at), stamps)
            else:
                args = (source, np.uint64(operands.destinations[0]), nbytes, *walk, stamps)
        assert self.stream is not None
        self._runtime.launch(self._kernel, self._blocks, self._geometry.block_threads, args, self.stream)


class GfxManyExecutor:
    """Makes several copies of equal size at the same time, in one launch: where each goes is in a table on the GPU.

    ``geometry`` is that of one copy; ``table_at`` has ``ROW_BYTES`` for each.
    """

    ROW_BYTES = 16

    letter = "G"
    wakes_behind_gate = False
    wake_passes = 1
    sums_at = 0

    def __init__(
        self,
        context: DeviceContext,
        operands: Sequence[Operands],
        geometry: Geometry,
        stamps_at: int,
        table_at: int,
    ) -> None:
        self.stream: Stream | None = context.stream
        self._runtime = context.runtime
        self._geometry = geometry
        blocks = geometry.subexecutors * len(operands)
        self._blocks = _launched(context.device, blocks, geometry)
        self.stamps_per_launch = 2 * blocks
        self.stamps_at = stamps_at
        self.table_at = table_at
        self._nbytes, self._plan = operands[0].nbytes, operands[0].plan
        context.write_words(table_at, [end for each in operands for end in (*each.sources, *each.destinations)])
        self._kernel = context.kernel("copy", "tb_copy_many", **_defines(context.device, geometry))

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        args = (
            np.uint64(self.table_at),
            np.uint32(self._geometry.subexecutors),
            np.uint64(self._nbytes),
            np.uint64(self._plan.pitch),
            np.uint64(self._plan.slices),
            np.uint64(first_slice),
            np.uint32(passes),
            np.uint64(self.stamps_at + 8 * self.stamps_per_launch * slot),
        )
        assert self.stream is not None
        self._runtime.launch(self._kernel, self._blocks, self._geometry.block_threads, args, self.stream)


class GfxReduceExecutor:
    """Adds up several sources, and gives several destinations the same: whatever has more than one of either.

    Several sources are float32 and added element by element; one is copied bit by bit. Without destinations, the
    words of all sources are added to the sum at ``sums_at``; without sources, the pattern of ``WRITE_KEY`` is written.
    """

    letter = "G"
    wakes_behind_gate = False
    wake_passes = 1

    ENDS = np.dtype([("sources", np.uint64, MAX_ENDS), ("destinations", np.uint64, MAX_ENDS), ("counts", np.uint32, 2)])
    """``tb_ends`` of reduce.hip."""

    def __init__(
        self, context: DeviceContext, operands: Operands, geometry: Geometry, stamps_at: int, *, sums_at: int
    ) -> None:
        self.stream: Stream | None = context.stream
        self.stamps_per_launch = 2 * geometry.subexecutors
        self.stamps_at = stamps_at
        self.sums_at = sums_at
        self._runtime = context.runtime
        self._geometry = geometry
        self._nbytes, self._plan = operands.nbytes, operands.plan
        self._ends = np.zeros((), self.ENDS)
        for name in ("sources", "destinations"):
            addresses = getattr(operands, name)
            self._ends[name][: len(addresses)] = addresses
        self._ends["counts"] = len(operands.sources), len(operands.destinations)
        self._blocks = _launched(context.device, geometry.subexecutors, geometry)
        self._kernel = context.kernel("reduce", "tb_reduce", **_defines(context.device, geometry))

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        args = (
            self._ends,
            np.uint64(self._nbytes),
            np.uint64(self._plan.pitch),
            np.uint64(self._plan.slices),
            np.uint64(first_slice),
            np.uint32(passes),
            np.uint32(WRITE_KEY),
            np.uint64(self.sums_at),
            np.uint64(self.stamps_at + 8 * self.stamps_per_launch * slot),
        )
        assert self.stream is not None
        self._runtime.launch(self._kernel, self._blocks, self._geometry.block_threads, args, self.stream)

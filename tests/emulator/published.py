"""What TransferBench published of two machines, measured again on their node models, in a process of its own.

    python -m tests.emulator.published bmasweep|p2p

prints the rates in GB/s as JSON: by size and columns DMA, BMA (1, 2, 4, 8), or by rows of the p2p tables.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from collections.abc import Callable

from pytest_transferbench.emulator import activate
from tests.emulator.gate import Gate, event_times
from tests.emulator.hip import HOST, NO_CU, Hip
from tests.emulator.lanes import Copy, Lane, Lanes, steps

BATCHES = (1, 2, 4, 8)
ALL_PEERS_UP_TO = 64 << 20
"""Larger destinations do not all fit at once: they are filled one peer after another, and copied to alone."""


def bmasweep(hip: Hip, gate: Gate) -> dict[str, list[float]]:
    """Copy from GPU 0 to all others, by DMA and in batches; each link is one's own, so that all get the same."""
    return {str(nbytes): _row(hip, gate, nbytes) for nbytes in (1 << shift for shift in range(12, 31))}


def _row(hip: Hip, gate: Gate, nbytes: int) -> list[float]:
    peers = range(1, hip.model.device.count if nbytes <= ALL_PEERS_UP_TO else 2)
    source, targets = hip.malloc(nbytes), [hip.malloc(nbytes, device=peer) for peer in peers]
    row = []
    with hip.stream() as stream:
        for batches in (0, *BATCHES):
            work = [_copy(hip, source, target, nbytes, batches, stream) for target in targets]
            seconds = event_times(hip, gate, stream, work)
            row.append(len(work) * nbytes / sum(seconds) / 1e9)
    for pointer in (source, *targets):
        hip.ok("hipFree", pointer)
    return row


def _copy(hip: Hip, source: int, target: int, nbytes: int, batches: int, stream: int) -> Callable[[], int]:
    if not batches:
        return lambda: hip.code("hipMemcpyAsync", target, source, nbytes, ctypes.c_int(NO_CU), stream)
    piece = nbytes // batches
    pointers = ctypes.c_void_p * batches
    targets, sources = (pointers(*[base + number * piece for number in range(batches)]) for base in (target, source))
    sizes = (ctypes.c_size_t * batches)(*[piece] * batches)
    return lambda: hip.code(
        "hipMemcpyBatchAsync", targets, sources, sizes, batches, None, None, 0, ctypes.byref(ctypes.c_size_t()), stream
    )


P2P_BYTES = 64 << 20
CPU, GPUS = "CPU 00", {"GPU 00": 0, "GPU 01": 1}
STEADY = 3
"""Copies of a stream, of which the last is taken."""


def p2p(hip: Hip, gate: Gate) -> dict[str, list[float]]:
    """Copy between all ends, the source's owner executing: one way alone, then both ways at once."""
    lanes = Lanes(hip, gate)
    ends = {CPU: HOST, **GPUS}
    rows = {}
    for source, owner in ends.items():
        alone = [_rates(lanes.play(_lane(owner, other, STEADY)))[0] for other in ends.values()]
        rows[f"{source} uni"] = alone
    for source, owner in ends.items():
        both = [
            _rates(lanes.play(_lane(owner, other, 1), _lane(other, owner, 1))) if other != owner else [math.nan] * 2
            for other in ends.values()
        ]
        rows[f"{source} ->"] = [there for there, _ in both]
        rows[f"{source} <-"] = [back for _, back in both]
        rows[f"{source} <->"] = [there + back for there, back in both]
    return rows


def _lane(source: int, target: int, copies: int) -> Lane:
    return Lane(source, (Copy(source, target, P2P_BYTES),) * (1 if source == HOST else copies))


def _rates(ends: list[list[float]]) -> list[float]:
    return [P2P_BYTES / steps(lane)[-1] / 1e9 for lane in ends]


STUDIES = {"bmasweep": ("mi355x-8", bmasweep), "p2p": ("mi210-pcie-2", p2p)}


def main() -> None:
    model, study = STUDIES[sys.argv[1]]
    hip = Hip(activate(model))
    gate = Gate(hip, ctypes.c_uint64.from_address(hip.host_malloc(64)))
    print(json.dumps(study(hip, gate)))


if __name__ == "__main__":
    main()

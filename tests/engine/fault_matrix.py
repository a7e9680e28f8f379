"""Every HIP call of a case failing on purpose: one row a call, a use of it, and once or for good."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import math
import re
from collections.abc import Iterator

from pytest_transferbench import latency, measurement
from pytest_transferbench.emulator import Activation, Fault, activate
from pytest_transferbench.engine import Bench
from pytest_transferbench.judge import judge
from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import Node
from pytest_transferbench.runtime import RuntimeFault, probe_node
from pytest_transferbench.transfer import AnyCase, Case, Message, MessageCase, Transfer

MODEL = "mi300x-8"
KIB = 1024
FAILURE, FULL = "hipErrorLaunchFailure", "hipErrorOutOfMemory"
ASKED = "bytes asked for"
"""In what the engine says of an allocation that failed, and of nothing else."""

ASIDE = ("hipGetDevice", "hipGetDeviceCount")
"""What CuPy asks inside its own calls: the engine names the call that it made."""

CASES = {
    "gfx": Transfer.pull("G5", "G4", 64 * KIB),
    "dma": Transfer.push("U4", "G5", 64 * KIB, "dma"),
    "host": Transfer.push("G4", "C0", 64 * KIB),
    "cpu": Transfer.push("C0", "G5", 64 * KIB, "cpu"),
    "ll": Message.push("ll128-sc", "G5", "G4", 4 * KIB),
}
ELSEWHERE = Transfer.pull("G7", "G6", 64 * KIB)
GPUS = range(4, 8)
"""Those of this matrix alone: what other tests of the process hold on a GPU would not survive its reset."""

PHASES = ("first", "again", "elsewhere", "close")
"""What a bench lives through: the case, the same once more, an item on other GPUs, its end."""


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one planned fault, and what should have."""

    case: str
    fault: Fault
    uses: int | None
    """How many there are when nothing fails; none of a call that is polled."""
    phase: str
    """Where the use lies that fails; empty where it was never reached."""
    measured: tuple[Measurement, ...]
    """Of the three items, and of the first one in a new bench on devices that were reset."""
    calls_on_lost: int
    """How many calls were made for the second item, if the first one has lost its device."""
    left: int
    """Allocations more than before, when all was closed; those of a lost device after its reset."""

    @property
    def verdicts(self) -> list[str]:
        return [verdict(measurement) for measurement in self.measured]

    @property
    def expected(self) -> list[str]:
        ends = self.fault.sticky and self.phase == "first"
        failing = (self.phase == "first", self.phase == "again" or ends, self.phase == "elsewhere", False)
        # What an earlier case left on other GPUs is no reason to fail: it is a warning.
        failing = (*failing[:2], failing[2] and not self.warned, failing[3])
        return ["DEVICE_ERROR" if fails else "OK" for fails in failing]

    @property
    def warned(self) -> bool:
        return any(self.fault.code in warning for warning in self.measured[2].warnings)

    @property
    def said(self) -> str:
        """What the item says in which the call failed."""
        if self.phase not in PHASES[:3]:
            return ""
        failed = self.measured[PHASES.index(self.phase)]
        return "; ".join([*(fault.detail for fault in failed.faults), *failed.warnings])

    def wrong(self) -> list[str]:
        """Return what is not as it should be."""
        call = "" if self.fault.call in ASIDE else self.fault.call.removesuffix("R0600")
        found = [f"{self.expected} was expected"] if self.verdicts != self.expected else []
        if self.said and not re.search(rf"{call}\b.* on (GPU \d|the host) failed: {self.fault.code}\b", self.said):
            found.append(f"call, device and code are not named: {self.said}")
        if not self.phase:
            found.append("never reached")
        if "\n" in self.said:
            found.append("more than one line")
        if self.fault.code == FULL and not (ASKED in self.said and "--transfer-rotate" in self.said):
            found.append(f"no advice: {self.said}")
        if self.calls_on_lost:
            found.append(f"{self.calls_on_lost} calls for a lost device")
        if self.left:
            found.append(f"{self.left} allocations left")
        return found

    def __str__(self) -> str:
        how = "sticky" if self.fault.sticky else "once"
        what = "memory" if self.fault.code == FULL else "failure"
        use = "polled" if self.uses is None else f"{self.fault.nth} of {self.uses}"
        verdicts = " ".join(f"{found:12}" for found in self.verdicts)
        cells = f"{self.case:4} {self.fault.call:27} {use:10} {self.phase:9} {how:6} {what:7} {verdicts}"
        return " ".join([cells, f"left {self.left}", *self.wrong()])


HEADER = (
    f"{'case':4} {'call':27} {'use':10} {'in':9} {'':6} {'':7} "
    + " ".join(f"{name:12}" for name in (*PHASES[:3], "after reset"))
    + " allocations"
)


@dataclasses.dataclass(frozen=True)
class Uses:
    """How often a call had been made at the end of each phase, when nothing failed.

    A call that is polled has no fixed number of uses: only its first counts.
    """

    ends: tuple[int, ...]
    polled: bool = False


class FaultMatrix:
    """Runs small cases on the emulated node with one planned fault at a time, all in this process."""

    def __init__(self) -> None:
        node = probe_node("emulator", MODEL)
        small = tuple(dataclasses.replace(device, last_level_cache_bytes=4 * KIB) for device in node.devices)
        self.node: Node = dataclasses.replace(node, devices=small, host_cache_bytes=4 * KIB)
        self.activation: Activation = activate(MODEL)
        self._hip = ctypes.CDLL(str(self.activation.library))
        self._live("gfx", ())  # the first bench of a process asks what CuPy knows from then on

    def uses(self, case: str) -> dict[str, Uses]:
        """Return the uses of every call that the case makes; one made more or less often another time is polled."""
        one, other = (self._live(case, ())[1] for _ in range(2))
        found = {call: tuple(counts.get(call, 0) for counts in one) for call in one[-1]}
        again = {call: tuple(counts.get(call, 0) for counts in other) for call in one[-1]}
        return {
            call: Uses(ends) if again[call] == ends else Uses(tuple(min(1, end) for end in ends), polled=True)
            for call, ends in found.items()
        }

    def rows(self, case: str, depth: int = 4) -> Iterator[Row]:
        """Yield the rows of a case, for ``depth`` uses of every call: the first, its last in the first item, of all
        the last, and the one in the middle; and for every allocation of the first item.
        """
        for call, uses in sorted(self.uses(case).items()):
            ends, total = uses.ends, uses.ends[-1]
            allocates = False
            for nth in sorted({1, *(ends[0] or total, total, math.ceil(total / 2))[: depth - 1]}):
                for sticky in (False, True):
                    row = self.row(case, Fault(call, nth, FAILURE, sticky), uses)
                    allocates = allocates or ASKED in row.said
                    yield row
            for nth in range(1, ends[0] + 1) if allocates else ():
                yield self.row(case, Fault(call, nth, FULL), uses)

    def row(self, case: str, fault: Fault, uses: Uses) -> Row:
        """Let one use of one call fail; ``uses`` are those of the call when nothing does."""
        before = self.activation.counters().allocations
        measured, counts = self._live(case, (fault,))
        left = self.activation.counters().allocations - before
        self.reset()
        if fault.sticky:
            left = self.activation.counters().allocations - before
        bench = Bench.open(self.node, MODEL)
        anew = measure(bench, CASES[case])
        bench.close()
        left += self.activation.counters().allocations - before
        fired = counts[-1].get(fault.call, 0) >= fault.nth
        phase = next(name for name, end in zip(PHASES, uses.ends, strict=True) if fault.nth <= end) if fired else ""
        on_lost = sum(counts[1].values()) - sum(counts[0].values()) if fault.sticky and phase == "first" else 0
        total = None if uses.polled else uses.ends[-1]
        return Row(case, fault, total, phase, (*measured, anew), on_lost, left)

    def _live(self, case: str, faults: tuple[Fault, ...]) -> tuple[list[Measurement], list[dict[str, int]]]:
        """Let a bench live through all phases; returns its measurements, and the uses of all calls after each phase."""
        import cupy  # only now: it binds to the emulated node

        cupy.clear_memo()  # modules that an earlier bench has loaded would not be loaded again
        gc.collect()  # they are unloaded now, and not at some moment while calls are counted
        bench = Bench.open(self.node, MODEL)
        self.activation.plan_faults(faults)
        measured, counts = [], []
        for transfer in (CASES[case], CASES[case], ELSEWHERE):
            measured.append(measure(bench, transfer))
            counts.append(self.activation.call_counts())
        bench.close()
        counts.append(self.activation.call_counts())
        self.activation.plan_faults()
        return measured, counts

    def reset(self) -> None:
        """Make the GPUs of the matrix usable again; what a lost one held is gone then."""
        for index in GPUS:
            self._hip.hipSetDevice(index)
            self._hip.hipDeviceReset()
        self._hip.hipSetDevice(0)


def verdict(measured: Measurement) -> str:
    """Return the verdict, OK for one that passes without having been compared."""
    found = judge(measured, ceiling=None)[0]
    return found.verdict if found.fails else "OK"


def measure(bench: Bench, transfer: Transfer | Message) -> Measurement:
    """Measure one small case; what the lease refuses is its verdict, as in a session."""
    if isinstance(transfer, Message):
        # A receiver to which nobody sends waits so long; on a busy machine a healthy one waits for its turn.
        case: AnyCase = MessageCase(transfer, samples=1, warmups=1, timeout_seconds=1.0)
    else:
        case = Case(transfer, samples=1, warmups=1, rotate_bytes=128 * KIB)
    try:
        if isinstance(case, MessageCase):
            return latency.measure(bench, case, key=case.name)
        with bench.lease(case) as lease:
            return bench.measure(lease, key=case.name)
    except RuntimeFault as fault:
        return Measurement(
            key=case.name,
            transfer=transfer,
            op=transfer.op,
            link_class="",
            nbytes=transfer.nbytes,
            method={},
            digest="",
            faults=(measurement.Fault("DEVICE_ERROR", f"{case.name}: {fault}"),),
            emulated=MODEL,
        )

"""Executors that break one leg of a Test, or two, on purpose."""

from __future__ import annotations

from pytest_transferbench.engine import Lease
from pytest_transferbench.engine.executors import Operands
from pytest_transferbench.engine.executors.gfx import GfxExecutor, GfxManyExecutor
from pytest_transferbench.measurement import Check, Measurement
from pytest_transferbench.transfer import Memory, RotationPlan
from tests.engine.mutants import Mutant


def wrong_checks(measurement: Measurement) -> list[Check]:
    return [check for check in measurement.checks if not check.passed]


class LegMutant(Mutant):
    """Knows the table of the Test's kernel: a source and a destination a row."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        assert isinstance(self.real, GfxManyExecutor)
        self.home = lease.bench.device(lease.case.transfer.executor.index)
        self.destinations_at = [
            self.real.table_at + GfxManyExecutor.ROW_BYTES * leg + 8 for leg in range(len(lease.legs))
        ]

    def take(self, role: str, nbytes: int) -> int:
        return self.lease.bench.arena.take(role, Memory("G", self.home.index), nbytes).pointer


class SwapsTwoDestinations(LegMutant):
    """Hands the first two Transfers each other's destination."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        first, second = (int(self.home.read_words(at, 1)[0]) for at in self.destinations_at[:2])
        self.home.write_words(self.destinations_at[0], [second])
        self.home.write_words(self.destinations_at[1], [first])


class LeavesOneLegOut(LegMutant):
    """Sends the second Transfer's bytes where nobody looks."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self.home.write_words(self.destinations_at[1], [self.take("stray", lease.plan.nbytes)])


class LeavesALastWord(LeavesOneLegOut):
    """Copies all but the last word of the second Transfer."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        whole, nbytes = lease.legs[1].operands(), lease.plan.nbytes - 4
        plan = RotationPlan(nbytes, 0, lease.plan.pitch, lease.plan.slices, lease.plan.budget)
        short = Operands(whole.sources, whole.destinations, nbytes, plan)
        self._short = GfxExecutor(self.home, short, lease.geometry, self.take("stray stamps", 4096))

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        super().launch(first_slice, passes, slot)
        self._short.launch(first_slice, passes, 0)

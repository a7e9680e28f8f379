"""The best number of SubExecutors: found by measuring the same case with several, a few samples each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import Node
from pytest_transferbench.transfer import Case, Test, TransferOrTest
from pytest_transferbench.transfer.case import candidate_subexecutors

TRIAL_SAMPLES = 5
"""Samples of a number that is only tried."""


def measure_best(case: Case, node: Node, measure: Callable[[Case], Measurement]) -> Measurement:
    """Try numbers of SubExecutors of ``case``, and return what ``measure`` makes of the one with the most bandwidth.

    What was tried, with its steady median in GB/s, is in the measurement's context. A trial that finds a fault or wrong
    data is returned in its place.
    """
    tried: dict[int, float] = {}
    for count in candidates(case.transfer, node):
        trial = measure(_with(case, count, min(case.samples, TRIAL_SAMPLES)))
        if trial.faults or trial.wrong_words or not math.isfinite(trial.gbps):
            return trial
        tried[count] = float(trial.gbps)
    best = max(tried, key=lambda count: tried[count])
    measurement = measure(_with(case, best, case.samples))
    context = {"best_subexecutors": best, "tried_gbps": {str(count): gbps for count, gbps in tried.items()}}
    return dataclasses.replace(measurement, context={**measurement.context, **context})


def candidates(transfer: TransferOrTest, node: Node) -> tuple[int, ...]:
    """Return the numbers of SubExecutors to try: up to what keeps all compute units busy, shared by a Test's Transfers.

    A local copy gets two blocks a unit, as where the number is left to the engine.
    """
    owners = [each.executor.owner for each in transfer.transfers]
    units = min(node.device(owner).compute_units // owners.count(owner) for owner in owners)
    return candidate_subexecutors(max(1, units * (2 if transfer.op == "local" else 1)))


def _with(case: Case, subexecutors: int, samples: int) -> Case:
    transfer = case.transfer
    made = tuple(dataclasses.replace(each, subexecutors=subexecutors) for each in transfer.transfers)
    counted = dataclasses.replace(transfer, transfers=made) if isinstance(transfer, Test) else made[0]
    return dataclasses.replace(case, transfer=counted, samples=samples, best=False)

"""What Transfers with several sources or destinations leave behind, by NumPy; and executors that break them."""

from __future__ import annotations

import dataclasses
import random

import numpy as np

from pytest_transferbench.engine import Bench, Lease, pattern
from pytest_transferbench.engine.executors import unsupported
from pytest_transferbench.engine.validation import Region
from pytest_transferbench.node import Node
from pytest_transferbench.transfer import EXECUTORS, MAX_ENDS, Case, Executor, Memory, Transfer
from tests.engine.mutants import Mutant

MOST_BYTES = 3 << 20


def random_case(choice: random.Random, node: Node) -> Case:
    """Return a case that ``node`` can run: any executor, its counts of ends, odd sizes and offsets."""
    devices = min(4, len(node.devices))  # the others of an emulated node are the fault matrix's
    while True:
        kind = choice.choice(EXECUTORS)
        place = choice.randrange(devices) if kind.on == "device" else 0

        def ends(most: int) -> tuple[Memory, ...]:
            count = choice.choice((1, 1, 2, 3, most)) if most > 1 else 1
            return tuple(
                Memory("C") if choice.random() < 0.2 else Memory(choice.choice("GFU"), choice.randrange(devices))
                for _ in range(count)
            )

        sources = ends(MAX_ENDS if kind.many_sources else 1)
        destinations = ends(MAX_ENDS if kind.many_destinations else 1)
        nbytes = 4 * choice.choice(
            (choice.randint(1, 64), choice.randint(1, 1 << 12), choice.randint(1, MOST_BYTES // 4))
        )
        try:
            transfer = Transfer(
                sources, Executor(kind.letter, place), destinations, nbytes, choice.choice((0, 0, 1, 3, 8))
            )
        except ValueError:  # a copy engine that owns neither end
            continue
        case = Case(
            transfer,
            samples=1,
            warmups=0,
            sub_iterations=choice.choice((1, 2, 3)),
            rotate_bytes=choice.choice((0, 3 * nbytes)),
            byte_offset=4 * choice.randrange(8),
        )
        if unsupported(transfer, node, case.sub_iterations) is None:
            return case


def words(bench: Bench, region: Region, owner: int) -> pattern.Words:
    return np.frombuffer(bench.runtime.read(region.pointer, region.nbytes, owner), dtype=np.uint32).copy()


def moved(bench: Bench, lease: Lease, iteration: int) -> tuple[pattern.Words, list[pattern.Words]]:
    """Launch one iteration over random data; return NumPy's answer and what each destination holds."""
    (leg,), plan, subs = lease.legs, lease.plan, lease.case.sub_iterations
    random_numbers = np.random.default_rng(iteration)
    data = []
    for source, allocation in zip(leg.sources, lease.case.transfer.sources, strict=True):
        numbers = random_numbers.integers(0, pattern.NUMBER_MASK, (plan.slices, plan.nbytes // 4))
        raw = numbers.astype(np.float32) if leg.numbers else numbers.astype(np.uint32)
        for index, each in enumerate(raw):
            bench.runtime.write(source.pointer + index * plan.pitch, each.tobytes(), allocation.owner)
        data.append(raw)
    for destination in leg.destinations:
        destination.prepare_guards()
    for index in lease.owners:
        bench.device(index).synchronize()
    lease.executor.launch(plan.slice_of(iteration, 0, subs), subs, 0)
    for index in lease.owners:
        bench.device(index).synchronize()
    last = plan.slice_of(iteration, subs - 1, subs)
    answer = np.sum([each[last] for each in data], axis=0, dtype=data[0].dtype) if leg.numbers else data[0][last]
    found = [words(bench, destination.data, destination.owner) for destination in leg.destinations]
    assert all(guard.passed for destination in leg.destinations for guard in destination.check_guards())
    return answer.view(np.uint32), found


class LeavesOneSourceOut(Mutant):
    """Adds up all sources but the second."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        operands = lease.legs[0].operands()
        first, _, *others = operands.sources
        less = dataclasses.replace(operands, sources=(first, *others))
        lease.executor = lease.make_executor([less], "", lease.method.copies)


class LeavesOneDestinationOut(Mutant):
    """Writes to all destinations but the last."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        operands = lease.legs[0].operands()
        less = dataclasses.replace(operands, destinations=operands.destinations[:-1])
        lease.executor = lease.make_executor([less], "", lease.method.copies)


class ReadsOneSliceTwice(Mutant):
    """Reads slice 0 of all sources in every pass."""

    def launch(self, first_slice: int, passes: int, slot: int) -> None:
        self.real.launch(0, passes, slot)

"""Several sources, several destinations and batches on real GPUs: what arrives is what NumPy says.

One GPU is enough for sums and broadcasts within it and the host's memory; more GPUs take part where there are any.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.engine.executors import unsupported
from pytest_transferbench.transfer import Executor, Memory, Transfer
from tests.engine import ends_proof
from tests.engine.proof import KIB, MIB, corrupt_check, measured

RANDOM_TRANSFERS = 100


def ends(text: str) -> tuple[Memory, ...]:
    return tuple(Memory(end[0], int(end[1:])) for end in text.split())


def transfer(sources: str, executor: str, destinations: str, nbytes: int = MIB + 20, parts: int = 0) -> Transfer:
    return Transfer(ends(sources), Executor(executor[0], int(executor[1:])), ends(destinations), nbytes, parts)


WHOLE = [
    transfer("G0 G0", "G0", "G0"),
    transfer("G0 C0 G0 G0 G0 C0 G0 G0", "G0", "G0 C0"),
    transfer("G0", "G0", "G0 G0 C0"),
    transfer("G0", "D0", "G0 C0"),
    transfer("G0", "B0", "G0 C0", parts=3),
    transfer("C0", "B0", "G0", 64 * KIB + 4, parts=8),
    transfer("C0 C0 C0", "C0", "C0 C0"),
    transfer("G0 G1", "G0", "G0 G1"),
    transfer("G1", "B0", "G0", parts=4),
    transfer("G0", "B0", "G1", parts=4),
]


@pytest.mark.parametrize("case", WHOLE, ids=Transfer.case_name)
def test_it_is_measured_and_proved(any_bench: Bench, case: Transfer) -> None:
    reason = unsupported(case, any_bench.node, 2)
    if reason is not None:
        pytest.skip(reason)
    measurement = measured(any_bench, case, rotate_bytes=4 * MIB, byte_offset=4, sub_iterations=2)
    assert (measurement.faults, measurement.wrong_words) == ((), 0)
    assert measurement.gbps > 0


def test_a_source_left_out_is_named(any_bench: Bench) -> None:
    summed = transfer("G0 C0 G0", "G0", "G0")
    check = corrupt_check(measured(any_bench, summed, ends_proof.LeavesOneSourceOut))
    assert check.found == "the sum without source 2 of 3"


def test_a_destination_left_out_is_named(any_bench: Bench) -> None:
    for case in (WHOLE[2], WHOLE[3], WHOLE[4]):
        if unsupported(case, any_bench.node) is None:
            check = corrupt_check(measured(any_bench, case, ends_proof.LeavesOneDestinationOut))
            assert (check.what, check.found.partition(")")[0]) == ("steady at C0", "poison (nothing was written")


def test_random_transfers_leave_what_numpy_says(any_bench: Bench) -> None:
    choice = random.Random(2026)
    for number in range(RANDOM_TRANSFERS):
        case = ends_proof.random_case(choice, any_bench.node)
        with any_bench.lease(case) as lease:
            answer, found = ends_proof.moved(any_bench, lease, number)
            for held in found:
                assert np.array_equal(held, answer), (case.transfer.notation(), case)

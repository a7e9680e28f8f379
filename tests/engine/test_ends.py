"""Transfers with several sources, several destinations, or a null end: what arrives, what is said of what does not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.engine.executors import file_of
from pytest_transferbench.node import Node
from pytest_transferbench.transfer import Case, Executor, Memory, Transfer, parse_memory
from tests.engine import ends_proof
from tests.engine.mutants import Mutant
from tests.engine.proof import KIB, QUICK, corrupt_check, measured

RANDOM_TRANSFERS, BATCH = 500, 50


def transfer(sources: str, executor: str, destinations: str, nbytes: int = 64 * KIB + 20) -> Transfer:
    def ends(text: str) -> tuple[Memory, ...]:
        return tuple(map(parse_memory, text.split()))

    return Transfer(ends(sources), Executor(executor[0], int(executor[1:])), ends(destinations), nbytes)


SEVERAL = [
    transfer("G0 G1", "G0", "G0"),
    transfer("G0 G1 G2 C0 F0 F1 U2 G3", "G3", "G3"),
    transfer("G0", "G0", "G1 G2 G3"),
    transfer("G1 U2", "G0", "G0 G3 C0"),
    transfer("G0", "D0", "G1 G2 C0"),
    transfer("C0 G1", "C0", "C0 G2"),
    transfer("C0", "C0", "C0 C0"),
    transfer("N", "G0", "G0 G1"),
    transfer("G1 G2", "G0", "N"),
]


@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_several_ends_are_measured_and_proved(bench: Bench, case: Transfer) -> None:
    measurement = measured(bench, case, rotate_bytes=300 * KIB, byte_offset=4, sub_iterations=2)
    assert (measurement.faults, measurement.wrong_words) == ((), 0)
    assert measurement.gbps > 0
    assert [arm.name for arm in measurement.arms] == ["steady"]
    assert [check.what.partition(" ")[0] for check in measurement.checks] == ["steady"] * len(case.destinations)


@pytest.mark.parametrize(
    ("broken", "mutant", "said"),
    [
        (SEVERAL[0], ends_proof.LeavesOneSourceOut, "the sum without source 2 of 2"),
        (SEVERAL[1], ends_proof.LeavesOneSourceOut, "the sum without source 2 of 8"),
        (SEVERAL[5], ends_proof.LeavesOneSourceOut, "the sum without source 2 of 2"),
        (SEVERAL[0], ends_proof.ReadsOneSliceTwice, "slice 0 of all sources instead of slice "),
        (SEVERAL[0], ends_proof.LeavesOneDestinationOut, "poison (nothing was written)"),
    ],
)
def test_a_sum_that_is_wrong_is_named(bench: Bench, broken: Transfer, mutant: type[Mutant], said: str) -> None:
    if mutant is ends_proof.LeavesOneDestinationOut:
        broken = transfer("G0 G1", "G0", "G0 G1")
    measurement = measured(bench, broken, mutant, rotate_bytes=300 * KIB)
    wrong = [check for check in measurement.checks if not check.passed]
    assert wrong
    assert wrong[0].found.startswith(said)


@pytest.mark.parametrize("broken", [SEVERAL[2], SEVERAL[4], SEVERAL[6], SEVERAL[7]], ids=str)
def test_a_destination_left_out_is_named(bench: Bench, broken: Transfer) -> None:
    check = corrupt_check(measured(bench, broken, ends_proof.LeavesOneDestinationOut))
    last = broken.destinations[-1]
    at = "destination 2" if len(set(broken.destinations)) == 1 else str(last)
    assert check.what == f"steady at {at}"
    assert check.found.startswith("poison (nothing was written)")


def test_a_read_of_fewer_sources_is_caught(bench: Bench) -> None:
    check = corrupt_check(measured(bench, SEVERAL[8], ends_proof.LeavesOneSourceOut))
    assert check.found.startswith("checksum ")


@pytest.mark.parametrize("batch", range(RANDOM_TRANSFERS // BATCH))
def test_random_transfers_leave_what_numpy_says(bench: Bench, batch: int) -> None:
    choice = random.Random(batch)
    for number in range(BATCH):
        case = ends_proof.random_case(choice, bench.node)
        with bench.lease(case) as lease:
            answer, found = ends_proof.moved(bench, lease, batch + number)
            for held in found:
                assert np.array_equal(held, answer), (case.transfer.notation(), case)


def test_data_of_ones_own_goes_one_way(bench: Bench) -> None:
    case = Case(SEVERAL[0], samples=QUICK)
    words = np.zeros(case.transfer.nbytes // 4, dtype=np.uint32)
    with bench.lease(case) as lease, pytest.raises(ValueError, match=r"exactly one source to one destination at most$"):
        bench.measure(lease, key="x", data=words)


def test_what_has_no_single_source_says_where_they_are(bench: Bench) -> None:
    with bench.lease(Case(SEVERAL[3])) as lease:
        with pytest.raises(ValueError, match=r"has 2 sources: ask \.legs\[0\]\.sources for each$"):
            _ = lease.slices
        with pytest.raises(ValueError, match=r"has 3 destinations: ask \.legs\[0\]\.destinations for each$"):
            _ = lease.peer


def test_every_destination_of_a_copy_engine_is_an_operation(bench: Bench) -> None:
    node: Node = bench.node
    most = file_of(SEVERAL[4]).unsupported(SEVERAL[4], node, 21)
    assert most == "dma queues every sub-iteration by itself: use at most 20 sub-iterations"
    assert file_of(SEVERAL[4]).unsupported(SEVERAL[4], node, 20) is None

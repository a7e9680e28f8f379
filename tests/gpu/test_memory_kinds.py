"""Memory kinds on real hardware: each is where it was asked for, and is copied and proved by whoever reaches it.

One GPU is enough. What this machine lacks is skipped with the reason that a user reads.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.engine.executors import unsupported
from pytest_transferbench.runtime import numa
from pytest_transferbench.transfer import MEMORIES, Memory, Transfer, memory_kind, parse_transfer
from tests.engine.proof import measured

LETTERS = [row.letter for row in MEMORIES if row.on != "none"]
NBYTES = (1 << 20) + 20


def places(bench: Bench, letter: str) -> list[Memory]:
    """GPU 0's memory of a kind, or that of every NUMA node."""
    if memory_kind(letter).on == "device" or memory_kind(letter).by_gpu:
        return [Memory(letter, 0)]
    return [Memory(letter, numa_node.index) for numa_node in bench.node.numa_nodes]


def runnable(bench: Bench, text: str) -> Transfer:
    transfer = parse_transfer(text, nbytes=NBYTES)
    reason = unsupported(transfer, bench.node)
    if reason:
        pytest.skip(reason)
    return transfer


@pytest.mark.parametrize("letter", LETTERS)
def test_memory_lies_where_it_was_asked_for(any_bench: Bench, letter: str) -> None:
    for memory in places(any_bench, letter):
        runnable(any_bench, f"{memory}->D0->G0")
        allocation = any_bench.runtime.allocate(memory, NBYTES)
        any_bench.runtime.free(allocation)
        if memory.on == "host" and allocation.unchecked:
            pytest.skip(allocation.unchecked)


@pytest.mark.parametrize("route", ["{}->G0->G0", "G0->G0->{}", "{}->D0->G0", "G0->D0->{}", "{0}->C{1}->{0}"])
@pytest.mark.parametrize("letter", LETTERS)
def test_a_kind_is_copied_and_proved(any_bench: Bench, letter: str, route: str) -> None:
    with_processors = next(numa_node.index for numa_node in any_bench.node.numa_nodes if numa_node.cpus)
    for memory in places(any_bench, letter):
        measurement = measured(any_bench, runnable(any_bench, route.format(memory, with_processors)))
        assert measurement.faults == ()
        assert measurement.wrong_words == 0
        assert measurement.gbps > 0


def test_managed_memory_stays_on_its_gpu_while_it_is_measured(any_bench: Bench) -> None:
    transfer = runnable(any_bench, "M0->G0->G0")
    with any_bench.arena.case():
        held = any_bench.arena.take("managed", transfer.sources[0], NBYTES)
        assert measured(any_bench, transfer).faults == ()
        try:
            found = numa.pages_by_place(held.pointer, held.nbytes)
        except OSError as error:
            pytest.skip(numa.why_denied(error))
        numa.check_off_host(held.memory, found)

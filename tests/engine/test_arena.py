"""What is kept between cases, and what is given back."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_transferbench.engine.arena import Arena
from pytest_transferbench.runtime import Allocation, RuntimeFault
from pytest_transferbench.transfer import Memory


@dataclasses.dataclass
class CountingRuntime:
    """Allocates numbers, and refuses beyond ``room`` bytes."""

    room: int = 1 << 20
    live: dict[int, int] = dataclasses.field(default_factory=dict)
    made: int = 0
    refused_frees: int = 0

    def allocate(self, memory: Memory, nbytes: int) -> Allocation:
        if sum(self.live.values()) + nbytes > self.room:
            raise RuntimeFault("malloc", memory.owner, "hipErrorOutOfMemory")
        self.made += 1
        self.live[self.made] = nbytes
        return Allocation(self.made, nbytes, memory, memory.owner)

    def free(self, allocation: Allocation) -> None:
        if self.refused_frees:
            self.refused_frees -= 1
            raise RuntimeFault("free", allocation.owner, "hipErrorUnknown")
        del self.live[allocation.pointer]


G0, G1, C0 = Memory("G", 0), Memory("G", 1), Memory("C", 0)


@pytest.fixture
def runtime() -> CountingRuntime:
    return CountingRuntime()


@pytest.fixture
def arena(runtime: CountingRuntime) -> Arena:
    return Arena(runtime)  # type: ignore[arg-type]  # only the two calls an arena makes


def test_the_same_size_is_reused_and_roles_are_apart(arena: Arena, runtime: CountingRuntime) -> None:
    source = arena.take("source", G0, 1000)
    assert arena.take("source", G0, 1000) is source
    assert arena.take("evict", G0, 1000) is not source
    assert runtime.made == 2


def test_a_larger_or_much_smaller_request_replaces(arena: Arena, runtime: CountingRuntime) -> None:
    arena.take("source", G0, 1000)
    assert arena.take("source", G0, 4000).nbytes == 4000
    assert arena.take("source", G0, 3000).nbytes == 4000
    assert arena.take("source", G0, 100).nbytes == 100
    assert sum(runtime.live.values()) == arena.held_bytes() == 100


def test_another_case_keeps_only_its_own_devices(arena: Arena, runtime: CountingRuntime) -> None:
    for memory in (G0, G1, C0):
        arena.take("source", memory, 1000)
    arena.keep_only({0})
    assert arena.held_bytes() == 2000
    arena.take("source", G0, 1000)
    arena.keep_only({0})
    assert arena.held_bytes() == 1000, "what the last case did not take is given back"


def test_nothing_is_lost_when_memory_runs_out(arena: Arena, runtime: CountingRuntime) -> None:
    arena.take("source", G0, 1000)
    with pytest.raises(RuntimeFault, match="malloc on GPU 0 failed: hipErrorOutOfMemory"):
        arena.take("source", G0, 1 << 21)
    assert runtime.live == {}
    arena.clear()
    assert arena.held_bytes() == 0


def test_what_an_earlier_case_left_makes_room(arena: Arena, runtime: CountingRuntime) -> None:
    runtime.room = 3000
    arena.take("source", G0, 2000)
    arena.keep_only({0})
    assert arena.take("destination", G0, 2500).nbytes == 2500
    assert arena.held_bytes() == 2500


def test_nothing_is_kept_of_a_spoilt_case(arena: Arena, runtime: CountingRuntime) -> None:
    with arena.case():
        arena.take("source", G0, 1000)
        arena.spoil()
        assert arena.held_bytes() == 1000, "the case may still look at it"
    assert runtime.live == {}
    with arena.case():
        arena.take("source", G0, 1000)
    assert arena.held_bytes() == 1000, "the next case is its own"


def test_a_spoilt_case_within_a_case_leaves_the_outer_one_alone(arena: Arena, runtime: CountingRuntime) -> None:
    with arena.case():
        arena.take("source", G0, 1000)
        with arena.case():
            arena.take("source", G0, 2000)
            arena.spoil()
    assert arena.held_bytes() == sum(runtime.live.values()) == 1000


@pytest.mark.parametrize("refused", [1, 2])
def test_memory_that_was_not_given_back_is_given_back_later(
    arena: Arena, runtime: CountingRuntime, refused: int
) -> None:
    with arena.case():
        arena.take("source", G0, 1000)
        arena.spoil()
        runtime.refused_frees = refused
    assert arena.held_bytes() == sum(runtime.live.values()) == (1000 if refused > 1 else 0)
    arena.clear()
    assert runtime.live == {}


def test_memory_of_a_lost_device_is_given_up(arena: Arena, runtime: CountingRuntime) -> None:
    arena.take("source", G0, 1000)
    arena.take("source", G1, 2000)
    arena.forget(1)
    arena.clear()
    assert sum(runtime.live.values()) == 2000

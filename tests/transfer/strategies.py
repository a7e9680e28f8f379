"""Random but legal Transfers and Tests, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_transferbench.transfer import (
    EXECUTORS,
    MAX_BYTES,
    MAX_ENDS,
    MEMORIES,
    Executor,
    Memory,
    Test,
    Transfer,
    executor_kind,
)

indices = st.integers(0, 12)
memories = st.builds(Memory, st.sampled_from([row.letter for row in MEMORIES if row.on != "none"]), indices)
sizes = st.integers(1, MAX_BYTES // 4).map(lambda words: words * 4) | st.integers(0, 34).map(lambda bits: 4 << bits)
counts = st.just(0) | st.integers(0, 999_999)
variants = st.from_regex(r"[A-Za-z0-9_.-]{0,8}", fullmatch=True).filter(lambda variant: not variant.startswith("at-"))


@st.composite
def executors(draw: st.DrawFn) -> Executor:
    kind = draw(st.sampled_from(EXECUTORS))
    return Executor(kind.letter, draw(indices), draw(st.none() | indices) if kind.sub_index else None)


def lists_of(memory: st.SearchStrategy[Memory], most: int) -> st.SearchStrategy[tuple[Memory, ...]]:
    """One memory more often than several."""
    return st.tuples(memory) | st.lists(memory, min_size=1, max_size=most).map(tuple)


@st.composite
def transfers(draw: st.DrawFn, small: bool = False) -> Transfer:
    """A Transfer of any executor that takes part in it; ``small`` ones are of few kinds, and often equal."""
    executor = draw(executors())
    kind = executor_kind(executor.kind)
    letters = st.sampled_from([row.letter for row in MEMORIES if row.on == kind.on])
    near = st.builds(Memory, letters, indices if kind.on == "host" else st.just(executor.index))
    many = MAX_ENDS if not small else 2
    sources = draw(lists_of(near | memories, many if kind.many_sources else 1))
    destinations = draw(lists_of(near | memories, many if kind.many_destinations else 1))
    if kind.reaches_null and draw(st.integers(0, 7)) == 0:
        sources, destinations = draw(st.sampled_from([((Memory("N"),), destinations), (sources, (Memory("N"),))]))
    if not kind.relays and not any(all(m.owner == executor.owner for m in ends) for ends in (sources, destinations)):
        sources = tuple(draw(near) for _ in sources)
    nbytes = draw(st.sampled_from([4096, 1 << 20]) if small else sizes)
    return Transfer(sources, executor, destinations, nbytes, draw(st.sampled_from([0, 8]) if small else counts))


tests_of_any = st.lists(transfers(small=True) | transfers(), min_size=2, max_size=12).map(
    lambda some: Test(tuple(some))
)


@st.composite
def alike_tests(draw: st.DrawFn) -> Test:
    """Transfers of one gfx executor, op, size and number of SubExecutors, equal ones among them."""
    home, op = draw(indices), draw(st.sampled_from(["local", "push", "pull", "relay"]))
    at_home = st.sampled_from("GFUM").map(lambda kind: Memory(kind, home))
    afar = st.builds(Memory, st.sampled_from("CPBDKHGFUM"), indices).filter(lambda memory: memory.owner != home)
    source = at_home if op in ("local", "push") else afar
    destination = at_home if op in ("local", "pull") else afar
    pairs = draw(st.lists(st.tuples(source, destination), min_size=2, max_size=6))
    nbytes, subexecutors = draw(sizes), draw(counts)
    return Test(tuple(Transfer((s,), Executor("G", home), (d,), nbytes, subexecutors) for s, d in pairs))


@st.composite
def nearly_equal(draw: st.DrawFn) -> tuple[Test, Test]:
    """Two Tests made of the same few Transfers."""
    pool = draw(st.lists(transfers(small=True), min_size=1, max_size=3))
    some = st.lists(st.sampled_from(pool), min_size=2, max_size=10).map(lambda chosen: Test(tuple(chosen)))
    return draw(some), draw(some)


whole_tests = alike_tests() | tests_of_any
cases = transfers() | transfers(small=True) | whole_tests

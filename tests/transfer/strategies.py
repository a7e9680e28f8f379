"""Random but legal Transfers, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_transferbench.transfer import MAX_BYTES, Executor, Memory, Test, Transfer, executor_kind

indices = st.integers(0, 12)
memories = st.builds(Memory, st.sampled_from("CPBDKHGFUM"), indices) | st.just(Memory("N"))
executors = st.builds(Executor, st.sampled_from("CGD"), indices)
sizes = st.integers(1, MAX_BYTES // 4).map(lambda words: words * 4) | st.integers(0, 34).map(lambda bits: 4 << bits)
variants = st.from_regex(r"[A-Za-z0-9_.-]{0,8}", fullmatch=True).filter(lambda variant: not variant.startswith("at-"))


@st.composite
def transfers(draw: st.DrawFn) -> Transfer:
    source, executor, destination = draw(memories), draw(executors), draw(memories)
    kind = executor_kind(executor.kind)
    ends = [memory for memory in (source, destination) if memory.on != "none"]
    if not ends:
        source, ends = Memory("G", 3), [Memory("G", 3)]
    if not kind.reaches_null and len(ends) == 1:
        source = destination = ends[0]
    if not kind.relays:
        owners = [memory.owner for memory in (source, destination)]
        if executor.owner not in owners:
            home = draw(st.sampled_from("GFUM"))
            source = Memory(home, executor.index)
    return Transfer((source,), executor, (destination,), draw(sizes), draw(st.integers(0, 999_999)))


@st.composite
def whole_tests(draw: st.DrawFn) -> Test:
    """Transfers of one gfx executor, op, size and number of SubExecutors."""
    home, op = draw(indices), draw(st.sampled_from(["local", "push", "pull", "relay"]))
    at_home = st.sampled_from("GFUM").map(lambda kind: Memory(kind, home))
    afar = st.builds(Memory, st.sampled_from("CPBDKHGFUM"), indices).filter(lambda memory: memory.owner != home)
    source = at_home if op in ("local", "push") else afar
    destination = at_home if op in ("local", "pull") else afar
    pairs = draw(st.lists(st.tuples(source, destination), min_size=2, max_size=6, unique=True))
    nbytes, subexecutors = draw(sizes), draw(st.integers(0, 999_999))
    return Test(tuple(Transfer((s,), Executor("G", home), (d,), nbytes, subexecutors) for s, d in pairs))

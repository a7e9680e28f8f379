"""Random but legal Transfers, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_transferbench.transfer import MAX_BYTES, Executor, Memory, Transfer, executor_kind

indices = st.integers(0, 12)
memories = st.builds(Memory, st.sampled_from("CGFU"), indices) | st.just(Memory("N"))
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
            home = draw(st.sampled_from("GFU"))
            source = Memory(home, executor.index)
    return Transfer((source,), executor, (destination,), draw(sizes), draw(st.integers(0, 999_999)))

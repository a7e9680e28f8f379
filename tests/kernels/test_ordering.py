"""The LL kernels keep their promises on memory as weak as a GPU's may be; without any one of their orderings they fail.

``pytest tests/kernels/test_ordering.py -s`` prints the table of mutations. The machine is in ``weak_memory.cpp``. It
draws everything from a seed: whatever happens here happens on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

import hipkernels
from tests.kernels.weak_memory import (
    AMD,
    LEADERS_SEED,
    LL,
    NVIDIA,
    PROTOCOLS,
    STRONG,
    Builder,
    Exchange,
    Machine,
    Model,
    Protocol,
    place,
)

SEEDS = range(1, 9)
AMD_WAVE32 = Machine(Model.AMD, 32, 1)
MACHINES = {"strong": STRONG, "AMD": AMD, "NVIDIA": NVIDIA}
ONE_OF_EACH_KIND = (LL, *(Protocol(order, 128) for order in (1, 2, 3)))
KINDS = tuple(protocol.kind for protocol in ONE_OF_EACH_KIND)
One = TypeVar("One")
Result = TypeVar("Result")


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("weak_memory"))


def side_by_side(do: Callable[[One], Result], ones: Iterable[One]) -> list[Result]:
    """Compilers and machines both let Python's lock go."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(do, ones))


# ---- the kernels as they are ----

SHAPES = (
    *((nbytes, 1, 3) for nbytes in (8, 119, 120, 121)),
    (4096, 0, 8),
    (4096, 5, 3),  # more blocks than there are lines for
    (12288, 0, 1),  # six blocks
    (12288, 1, 3),  # more turns than loads are ahead
)
"""Bytes, blocks, seeds."""


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_every_word_comes_once_and_whole(builder: Builder, protocol: Protocol) -> None:
    def try_all(machines: tuple[Machine, ...]) -> list[str]:
        library = builder.build(hipkernels.source("ll"), protocol, machines[0].words_a_lane)
        runs = [
            Exchange(protocol, machine, seed, nbytes, blocks, iterations=4, first_flag=2**32 - 5).run(library)
            for machine in machines
            for nbytes, blocks, seeds in SHAPES
            for seed in SEEDS[:seeds]
        ]
        return [f"{run}: {run.faults}" for run in runs if run.faults]

    assert side_by_side(try_all, ((STRONG, AMD, AMD_WAVE32), (NVIDIA,))) == [[], []]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_ping_pong_brings_every_lap_back(builder: Builder, machine: Machine) -> None:
    library = builder.build(hipkernels.source("ll"), LL, machine.words_a_lane)
    for seed in SEEDS:
        run = Exchange(LL, machine, seed, nbytes=8, iterations=50).run(library, "ping_pong")
        sum_of_laps = sum(place(i, 1 + i + LEADERS_SEED) for i in range(50)) % 2**64
        assert (run.receiver.late_at, run.sender.late_at) == (None, None)
        assert (run.sender.wrong_words, run.sender.sum) == (0, sum_of_laps)
        assert run.ended_after


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_run_repeats_exactly(builder: Builder, machine: Machine) -> None:
    library = builder.build(hipkernels.source("ll"), PROTOCOLS[1], machine.words_a_lane)
    first, again, other = (Exchange(PROTOCOLS[1], machine, seed).run(library) for seed in (1, 1, 2))
    assert first.arrays["stamps"].tolist() == again.arrays["stamps"].tolist()
    assert first.arrays["stamps"].tolist() != other.arrays["stamps"].tolist()


# ---- something is lost ----


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=str)
def test_a_lost_flag_ends_both_kernels_and_is_named(builder: Builder, protocol: Protocol, machine: Machine) -> None:
    word = protocol.flag_word(protocol.lines_a_set(machine.words_a_lane))  # of the first line of block 1
    # Where a flag is the second half of a lane's pair, it is stored twice a message.
    stores = 1 if protocol == LL else machine.words_a_lane
    run = run_and_lose(builder, protocol, machine, ("ring", word, 4 * stores))
    assert run.receiver.late_at == (3, 1)
    assert run.sender.late_at == (3, 0)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=str)
def test_a_lost_ack_ends_both_kernels_and_is_named(builder: Builder, protocol: Protocol, machine: Machine) -> None:
    run = run_and_lose(builder, protocol, machine, ("ack", 0, 4))
    assert run.sender.late_at == (3, 0)
    assert run.receiver.late_at == (4, 0)


def run_and_lose(builder: Builder, protocol: Protocol, machine: Machine, lost: tuple[str, int, int]) -> Exchange:
    library = builder.build(hipkernels.source("ll"), protocol, machine.words_a_lane)
    whole = Exchange(protocol, machine, seed=1).run(library)
    # Many turns, so that the deadline is long beside the polls between two looks at the clock.
    run = Exchange(protocol, machine, seed=1, lost=lost, turns=4000).run(library)
    assert run.receiver.wrong_words == 0
    # Both sides wait at the same time, from before the run without a loss was over.
    assert run.deadline_ticks < run.ended_after < whole.ended_after + 2 * run.deadline_ticks
    return run


# ---- mutations ----


@dataclass(frozen=True)
class Mutation:
    """A way to break the kernels, as edits of their text, and where it shows.

    ``caught`` maps each kind of protocol that has what is removed to the machines that must catch it, on every seed; on
    the other ones it must be harmless. Where the strong machine sees nothing, it is the weak memory that shows what is
    missing, not the schedule.
    """

    name: str
    edits: Mapping[str, str]
    caught: Mapping[str, str]
    nbytes: int = 4096
    messages: int = 6
    blocks: int = 0

    def apply(self, text: str) -> str:
        for old, new in self.edits.items():
            assert text.count(old) == 1, f"{self.name}: {old!r} is there {text.count(old)} times"
            text = text.replace(old, new)
        return text

    def exchange(self, protocol: Protocol, machine: Machine, seed: int) -> Exchange:
        return Exchange(protocol, machine, seed, self.nbytes, self.blocks, self.messages)


EVERYWHERE = "strong AMD NVIDIA"
WEAK = "AMD NVIDIA"
FENCE_OF_A_LINE = "    if (TB_ORDER == TB_WRITTEN_BACK) tb_fence_system();\n"
FIRST_HALF = "(line.first ^ flag << 32)"
SECOND_HALF = "(line.second ^ flag << 32)"

MUTATIONS = (
    # With a fence behind it the drain is only what the protocol is defined by; NVIDIA has none.
    Mutation("no drain", {"    tb_drain();\n": ""}, {"sc": "AMD", "sc+wb": ""}),
    Mutation("no drain and no fence", {"    tb_drain();\n" + FENCE_OF_A_LINE: ""}, {"sc+wb": WEAK}),
    Mutation("no fence for a line", {FENCE_OF_A_LINE: ""}, {"sc+wb": "NVIDIA"}),
    Mutation(
        "no fence for all lines", {"  tb_fence_system();\n  __syncthreads();": "  __syncthreads();"}, {"tf": WEAK}
    ),
    # AMD's lanes go together anyway; what the compiler does there is for the tests of its code.
    # It takes a data lane that is held up while the flag's goes on: many messages, of one line.
    Mutation("no wave sync", {"    tb_wave_sync();": "    "}, {"sc": "NVIDIA", "sc+wb": "NVIDIA"}, 120, 200),
    Mutation("flag does not release", {"tb_store_flag(tb_flag_of": "tb_store_system(tb_flag_of"}, {"sc": "NVIDIA"}),
    Mutation(
        "no barrier after the fence",
        {"  tb_fence_system();\n  __syncthreads();": "  tb_fence_system();"},
        {"tf": EVERYWHERE},
        messages=20,
    ),
    Mutation(
        "data loaded along with the flag",
        {
            "      if (!tb_any(missing)) break;\n": """\
      tb_taken tried = taken;
      tb_get(ring, line, share.lines, flag, tried, report);
      if (!tb_any(missing)) {
        taken = tried;
        break;
      }
""",
            "    }\n    tb_get(ring, line, share.lines, flag, taken, report);\n": "    }\n",
        },
        {"sc": WEAK, "sc+wb": WEAK},
        # One line: a warp with several waits for the last flag, which mostly comes long after the data of all.
        *(120, 100),
    ),
    Mutation(
        "data loaded along with the flag, by each thread",
        {
            "  __syncthreads();\n  if (*leaving) return;\n": "",
            "  for (tb_u32 i = threadIdx.x; i < share.turns * TB_ROWS; i += TB_THREADS) {\n"
            "    const tb_u32 line = tb_line(share, i / TB_ROWS, i % TB_ROWS);\n    tb_wait": "  while (false) {\n"
            "    const tb_u32 line = 0;\n    tb_wait",
            "    for (int a = 0; a < TB_AHEAD; ++a) line[a] = tb_line(share, turn + a, threadIdx.x / TB_LANES);\n"
            "    tb_get(ring, line, share.lines, flag, taken, report);\n": """\
    for (int a = 0; a < TB_AHEAD; ++a) line[a] = tb_line(share, turn + a, threadIdx.x / TB_LANES);
    tb_taken tried;
    bool missing;
    do {
      tried = taken;
      missing = false;
      for (int a = 0; a < TB_AHEAD; ++a)
        missing |= line[a] < share.lines && tb_load_system(tb_flag_of(ring, line[a])) != flag;
      tb_get(ring, line, share.lines, flag, tried, report);
    } while (missing);
    taken = tried;
""",
        },
        {"tf": WEAK},
    ),
    Mutation("first half of the flag not checked", {f"{FIRST_HALF} | ": ""}, {"LL": WEAK}),
    Mutation("second half of the flag not checked", {f" | {SECOND_HALF}": ""}, {"LL": WEAK}),
    Mutation(
        "no barrier between flags and data", {"  __syncthreads();\n  if (*leaving) return;\n": ""}, {"tf": EVERYWHERE}
    ),
    Mutation(
        "receiver: no barrier before the ACK",
        {"    __syncthreads();\n    if (leaving) break;\n": "    if (leaving) break;\n"},
        dict.fromkeys(KINDS, EVERYWHERE),
        *(1920, 60),  # one block: its ACK waits for no other one
    ),
    Mutation(
        "receiver: its first block sends the ACK",
        {"+ 1 == all)": "+ 1 > all - share.workers)"},
        dict.fromkeys(KINDS, EVERYWHERE),
        messages=12,
    ),
    Mutation(
        "receiver: blocks without lines count too",
        {
            "  if (!share.turns) return;\n  if (threadIdx.x == 0) leaving = 0;": "  if (threadIdx.x == 0) leaving = 0;",
            "(i + 1) * share.workers": "(i + 1) * gridDim.x",
            "share.workers == 1 ||": "gridDim.x == 1 ||",
        },
        dict.fromkeys(KINDS, EVERYWHERE),
        blocks=5,
    ),
    Mutation(
        "sender: does not wait for the ACK", {"tb_load_system(ack) < flag": "false"}, dict.fromkeys(KINDS, EVERYWHERE)
    ),
    Mutation(
        "sender: no barrier after the ACK",
        {"    __syncthreads();\n    if (leaving) return;\n": "    if (leaving) return;\n"},
        dict.fromkeys(KINDS, EVERYWHERE),
    ),
    Mutation(
        "a flag serves two messages",
        {
            "word & 0xffffffffu) | flag << 32": "word & 0xffffffffu) | flag / 2 << 32",
            "word >> 32 | flag << 32": "word >> 32 | flag / 2 << 32",
            f"{FIRST_HALF} | {SECOND_HALF}": f"{FIRST_HALF} | {SECOND_HALF}".replace("flag", "flag / 2"),
            ": flag - 1)": ": (flag - 1) / 2)",
            "tb_store_flag(tb_flag_of(ring, line), flag)": "tb_store_flag(tb_flag_of(ring, line), flag / 2)",
            "line), flag);\n    else": "line), flag / 2);\n    else",
            "if (line < share.lines) tb_store_system(tb_flag_of(ring, line), flag)": "if (line < share.lines) "
            "tb_store_system(tb_flag_of(ring, line), flag / 2)",
            "? seen[a] ^ flag : 0": "? seen[a] ^ flag / 2 : 0",
            "(tb_flag_of(ring, line)) != flag": "(tb_flag_of(ring, line)) != flag / 2",
        },
        dict.fromkeys(KINDS, EVERYWHERE),
    ),
)


@dataclass
class Table:
    rows: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)

    def __str__(self) -> str:
        columns = [(machine, kind) for machine in MACHINES for kind in KINDS]
        width = max(map(len, self.rows))
        lines = [
            " " * width + "".join(f" | {machine:29}" for machine in MACHINES),
            " " * width + "".join(f"{' | ' if kind == 'LL' else ' '}{kind:>6}" for _, kind in columns),
        ]
        for name, cells in self.rows.items():
            lines.append(
                f"{name:{width}}"
                + "".join(f"{' | ' if column[1] == 'LL' else ' '}{cells.get(column, ''):>6}" for column in columns)
            )
        return "\n".join(lines)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table()
    yield table
    print(f"\nRuns in which a mutation is caught, of all; lines of 128 bytes:\n{table}")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_caught_on_every_run(builder: Builder, table: Table, mutation: Mutation) -> None:
    text = mutation.apply(hipkernels.source("ll"))

    def try_one(what: tuple[Protocol, int]) -> dict[tuple[str, str], list[bool]]:
        protocol, words_a_lane = what
        library = builder.build(text, protocol, words_a_lane)
        return {
            (name, protocol.kind): [
                bool(mutation.exchange(protocol, machine, seed).run(library).faults) for seed in SEEDS
            ]
            for name, machine in MACHINES.items()
            if machine.words_a_lane == words_a_lane
        }

    protocols = [protocol for protocol in ONE_OF_EACH_KIND if protocol.kind in mutation.caught]
    found: dict[tuple[str, str], list[bool]] = {}
    for cells in side_by_side(try_one, [(protocol, words) for protocol in protocols for words in (1, 2)]):
        for cell, runs in cells.items():
            found.setdefault(cell, []).extend(runs)
    table.rows[mutation.name] = {cell: f"{sum(runs)}/{len(runs)}" for cell, runs in found.items()}
    wanted = {(name, kind): name in mutation.caught[kind].split() for name, kind in found}
    assert {cell: set(runs) for cell, runs in found.items()} == {
        cell: {is_caught} for cell, is_caught in wanted.items()
    }

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import (
    EXECUTORS,
    MEMORIES,
    Executor,
    ExecutorKind,
    Memory,
    MemoryKind,
    Places,
    Test,
    Transfer,
    ends,
    executor_kind,
    format_size,
    letters,
    memory_kind,
    parse_executor,
    parse_line,
    parse_memory,
    parse_transfer,
    parse_transfers,
)
from pytest_transferbench.transfer.ends import executors_named, memories_named

from ..refusals import refusal, refuses
from .strategies import cases, indices, transfers

PULL = Transfer((Memory("G", 1),), Executor("G", 0), (Memory("G", 0),), 64 * 2**20)


@given(transfers())
def test_a_transfer_survives_writing_and_reading(transfer: Transfer) -> None:
    assert parse_transfer(transfer.notation()) == transfer


@given(transfers(), st.booleans(), st.booleans(), st.sampled_from(["->", " -> ", " ", "  "]), st.data())
def test_every_spelling_reads_alike(
    transfer: Transfer, words: bool, brackets: bool, arrow: str, data: st.DataObject
) -> None:
    def spell(name: str, index: str) -> str:
        return data.draw(st.sampled_from([name, name.lower(), name.upper(), name.title()])) + index

    def spell_place(place: Memory | Executor) -> str:
        row = executor_kind(place.kind) if isinstance(place, Executor) else memory_kind(place.kind)
        return spell(row.word if words else row.letter, str(place)[1:])

    ends = transfer.sources, (transfer.executor,), transfer.destinations
    parts = ["".join(map(spell_place, end)) for end in ends]
    text = f"{arrow.join(parts)} {transfer.subexecutors} {format_size(transfer.nbytes)}"
    assert parse_transfer(f" ({text}) " if brackets else text) == transfer


@pytest.mark.parametrize(
    "text",
    [
        "G1->G0->G0",
        "G1 G0 G0",
        "(G1 G0 G0)",
        "g1->gfx0->g0",
        "device1->GFX0->Device0",
        "G1 G0 G0 0 64M",
        "(G1->G0->G0 0 0)",
    ],
)
def test_the_arguments_serve_where_the_text_says_nothing(text: str) -> None:
    assert parse_transfer(text, 64 * 2**20) == PULL


def test_what_the_text_says_wins() -> None:
    assert parse_transfer("(G1 G0 G0 8 64M)", 4096, 2) == Transfer(
        PULL.sources, PULL.executor, PULL.destinations, PULL.nbytes, 8
    )
    assert parse_transfer("G1 G0 G0", PULL.nbytes, 2).subexecutors == 2


def test_the_index_of_null_memory_means_nothing() -> None:
    assert parse_memory("N7") == parse_memory("n") == parse_memory("null3") == Memory("N")


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("", "''"),
        ("()", "'()'"),
        ("G1->G0", "'G1->G0'"),
        ("G1->G0->G0 8", "'G1->G0->G0 8'"),
        ("G1->G0->G0 8 64M 3", "'G1->G0->G0 8 64M 3'"),
        ("(G1->G0->G0", "'(G1->G0->G0'"),
        ("G1->G0->G0)", "'G1->G0->G0)'"),
        ("((G1->G0->G0))", "'((G1->G0->G0))'"),
        ("(G1->G0->G0) 8 64M", "'(G1->G0->G0) 8 64M'"),
        ("X1->G0->G0", "'X1'"),
        ("G1->X0->G0", "'X0'"),
        ("G1->N0->G0", "'N0'"),
        ("G1->G0->warp0", "'warp0'"),
        ("G->G0->G0", "'G'"),
        ("G1->gfx->G0", "'gfx'"),
        ("G1->G0->0", "'0'"),
        ("G1->G0->G-1", "'G-1'"),
        ("G1->G0->G1.5", "'G1.5'"),
        ("G1->G0->G99999", "'G99999'"),
        ("G1->G0->G\N{ARABIC-INDIC DIGIT ZERO}", "'G\N{ARABIC-INDIC DIGIT ZERO}'"),
        ("G1>G0>G0", "'G1>G0>G0'"),
        ("G1X2->G0->G0", "'X2'"),
        ("G1 G2->G0->G0", "it has 4 parts"),
        ("G1->G0G1->G0", "'G0G1'"),
        ("G1->C0.1->C0", "cpu has no parts to choose from, write 'C0'"),
        ("G1->G0.->G0", "'G0.'"),
        ("G1->G0.x->G0", "'G0.x'"),
        ("G1->G0->G0 x 64M", "'x'"),
        ("G1->G0->G0 -1 64M", "'-1'"),
        ("G1->G0->G0 1.5 64M", "bad subexecutors '1.5'"),
        ("G1->G0->G0 1000000 64M", "bad subexecutors '1000000'"),
        ("G1->G0->G0 8 64Q", "'64Q'"),
        ("G1->G0->G0 8 -64M", "'-64M'"),
        ("G1->G0->G0 8 99999999999G", "'99999999999G'"),
    ],
)
def test_a_malformed_transfer_is_refused_in_one_line_naming_the_token(text: str, token: str) -> None:
    assert token in refusal(parse_transfer, text, 4096)


@pytest.mark.parametrize("text", ["(G1->G0->G0", "((G1->G0->G0))", "(G1->G0->G0))"])
def test_brackets_go_around_all_or_nothing(text: str) -> None:
    assert "one pair of brackets, if any, goes around all of it" in refusal(parse_transfer, text)


@pytest.mark.parametrize("text", ["G1->G0->G0", "(G1->G0->G0 8 0)"])
def test_a_size_has_to_come_from_somewhere(text: str) -> None:
    assert f"no bytes in Transfer {text!r}" in refusal(parse_transfer, text)


@given(st.text(alphabet="GCDNRgfxdma0129->() MKQ*[],.#\n", max_size=30), st.booleans())
def test_any_text_is_transfers_or_a_one_line_refusal(text: str, with_places: bool) -> None:
    arguments = text, 4096, 0, NODE if with_places else None
    if not refuses(parse_transfers, *arguments):
        transfers = parse_transfers(*arguments)
        assert parse_transfers(" ".join(transfer.notation() for transfer in transfers)) == transfers


def read(text: str, nbytes: int | None = 4096, places: Places | None = None) -> list[str]:
    return [transfer.notation() for transfer in parse_line(text, nbytes, places)]


@pytest.mark.parametrize(
    "text",
    [
        "2 8 (G0->G0->G1) (G1->G1->G0)",
        "2 8 G0 G0 G1 G1 G1 G0",
        "2 8 G0->G0->G1 G1->G1->G0",
        "  2\t8 (G0->G0->G1)(G1->G1->G0)  # two ways",
        "2 8 G0:G0:G1 (G1 - G1 > G0)",
        "-2 (G0->G0->G1 8 4K) (G1->G1->G0 8 4K)",
        "-2 (G0 G0 G1 8 4096)(G1 G1 G0 8 0)\r",
        "-2 G0 G0 G1 8 0 G1 G1 G0 8 0",
        "-2 (R0G0->R0G0->R0G1 8 4096)(R0G1->R0G1->R0G0 8 4096)",
        "2 8 (g0->GFX0->device1) (Device1->G1->G0)",
    ],
)
def test_a_line_in_either_form_and_with_any_decoration(text: str) -> None:
    assert read(text) == ["(G0->G0->G1 8 4K)", "(G1->G1->G0 8 4K)"]


def test_what_transferbench_dumps_is_read() -> None:
    """TB_DUMP_CFG_FILE writes a rank before every place and no blank between brackets, SWEEP_FILE neither."""
    dumped = "-3 (R0G0->R0G0.2->R0G1R0G2 8 67108864)(N->R0D1->R0C0 1 4)(R0F0->R0C0->N 4 1024)\n"
    with_memory = dumped.replace("(N->R0D1", "(R0G1->R0D1").replace("R0C0->N", "R0C0->R0C1")
    assert read(with_memory) == ["(G0->G0.2->G1G2 8 64M)", "(G1->D1->C0 0 4)", "(F0->C0->C1 4 1K)"]
    assert read("-2 (G0->D0->G1 4 268435456) (N->G1->G0 4 268435456)") == [
        "(G0->D0->G1 0 256M)",
        "(N->G1->G0 4 256M)",
    ]


@pytest.mark.parametrize("text", ["", "   ", "\t", "\n", "# 2 8 (G0->G0->G1)", "  ## Two ways", "#"])
def test_blank_lines_and_comments_have_no_transfers(text: str) -> None:
    # TransferBench starts reading an empty line one character behind its end.
    assert parse_line(text) == ()


def test_a_blank_before_the_minus_means_nothing() -> None:
    # TransferBench loses the minus there, and takes an advanced line for a basic one.
    assert read("  -2 (G0 G0 G1 8 64M) (G1 G1 G0 4 1M)") == ["(G0->G0->G1 8 64M)", "(G1->G1->G0 4 1M)"]


def test_zeros_are_left_to_whoever_asks() -> None:
    assert read("1 0 (G0->G0->G1)", 1 << 20) == ["(G0->G0->G1 0 1M)"]
    assert read("-1 (G0->G0->G1 0 0)", 1 << 20) == ["(G0->G0->G1 0 1M)"]


def test_subexecutors_of_a_basic_line_are_those_of_every_transfer() -> None:
    assert read("3 4 (G0->G0->G1) (C0->C0->G1) (G0->D0->C0)") == [
        "(G0->G0->G1 4 4K)",
        "(C0->C0->G1 4 4K)",
        "(G0->D0->C0 0 4K)",
    ]


def test_memories_back_to_back() -> None:
    assert read("1 16 (G0->G0->G0G1)") == ["(G0->G0->G0G1 16 4K)"]
    assert read("2 4 (G0C0F1->G2->U3) (G1->D1->G0C1)") == ["(G0C0F1->G2->U3 4 4K)", "(G1->D1->G0C1 0 4K)"]
    assert read("1 4 (N7->G0->G0G1)") == ["(N->G0->G0G1 4 4K)"]


def test_equal_transfers_are_several() -> None:
    assert read("2 8 (G0->G0->G1) (G0->G0->G1)") == ["(G0->G0->G1 8 4K)"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 8 (G0->G0->G1)", "2 Transfers of 3 parts (SRC EXE DST) have 6 parts, not 3"),
        ("1 8 (G0->G0->G1) (G1->G1->G0)", "1 Transfers of 3 parts (SRC EXE DST) have 3 parts, not 6"),
        ("-2 (G0 G0 G1 8 64M) (G1 G1 G0 4)", "2 Transfers of 5 parts (SRC EXE DST SubExecutors bytes) have 10 parts"),
        ("-1 8 (G0->G0->G1)", "1 Transfers of 5 parts"),
        ("0 8 (G0->G0->G1)", "'0' Transfers; write 2 8 (G0->G0->G1) (G1->G1->G0)"),
        ("-0", "'-0' Transfers"),
        ("4097 1", "'4097' Transfers"),
        ("9" * 5000, "Transfers; write"),
        ("3", "SubExecutors are missing"),
        ("2 -8 (G0->G0->G1) (G1->G1->G0)", "bad number '-8'"),
        ("-1 (G0->G0->G1 8 -64M)", "bad number '-64M'"),
        ("1 x (G0->G0->G1)", "bad subexecutors 'x'"),
        ("1 8 (G0->G0->Q1)", "bad memory 'Q1': unknown memory kind 'Q'"),
        ("-1 (G0->G0->G1 8 3)", "bad size 3 of G0->G0->G1"),
        ("-1 (G0->G0->G1 8 64Q)", "bad size '64Q'"),
        ("G0->G0->G1", "begins with its number of Transfers; write 2 8 (G0->G0->G1)"),
        ("(G0->G0->G1 8 64M)", "begins with its number of Transfers"),
        ("()", "begins with its number of Transfers"),
        ("- 2 (G0 G0 G1 8 64M)", "begins with its number of Transfers"),
        ("2x 8 (G0->G0->G1)", "begins with its number of Transfers"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused_in_one_line(text: str, said: str) -> None:
    assert said in refusal(parse_line, text, 4096)


def test_a_size_of_a_basic_line_has_to_come_from_somewhere() -> None:
    assert "no bytes in Transfer '1 8 (G0->G0->G1)'" in refusal(parse_line, "1 8 (G0->G0->G1)")


@pytest.mark.parametrize(
    ("executor", "what"),
    [
        ("I0.2", "a NIC is not measured here; use C or cpu, G or gfx"),
        ("I*.*", "a NIC is not measured here"),
        ("N0.1", "the nearest NIC is not measured here"),
        ("N", "the nearest NIC is not measured here"),
        ("N0A.1B", "the nearest NIC is not measured here"),
        ("N0*.1*", "the nearest NIC is not measured here"),
        ("R0N0.1", "the nearest NIC is not measured here"),
        ("T0", "the tensor data mover is not measured here"),
    ],
)
def test_executors_of_transferbench_that_are_not_here(executor: str, what: str) -> None:
    # Of a bare N, TransferBench's parser follows a null pointer; of slots *, it takes NICs for the slots of one.
    said = refusal(parse_line, f"1 1 (F0->{executor}->F1)", 4096)
    assert what in said
    assert f"bad executor {executor!r}" in said


@pytest.mark.parametrize("text", ["R1G0->G0->G1", "G0->R2G0->G1", "G0->G0->G0R1G1", "R*G0->G0->G1", "R[0,1]G0->G0->G1"])
def test_other_ranks_are_refused(text: str) -> None:
    assert "another machine, and a Transfer stays within one here: leave it out, or write R0" in refusal(
        parse_transfers, text, 4096
    )


NODE = Places(gpus=(0, 1, 3), numa_nodes=(0, 1), xccs={0: 2, 1: 2, 3: 3}, copy_engines={0: 2, 1: 1})


def routes(text: str, places: Places | None = NODE) -> list[str]:
    return [transfer.notation()[1:].partition(" ")[0] for transfer in parse_transfers(text, 4096, 0, places)]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("G*->G0->G0", ["G0->G0->G0", "G1->G0->G0", "G3->G0->G0"]),
        ("C*->C0->C0", ["C0->C0->C0", "C1->C0->C0"]),
        ("G[1]->G0->G0", ["G1->G0->G0"]),
        ("G[2..2]->G0->G0", ["G2->G0->G0"]),
        ("G[1..3]->G0->G0", ["G1->G0->G0", "G2->G0->G0", "G3->G0->G0"]),
        ("G[0,2,5]->G0->G0", ["G0->G0->G0", "G2->G0->G0", "G5->G0->G0"]),
        ("G[5,0..1]->G0->G0", ["G5->G0->G0", "G0->G0->G0", "G1->G0->G0"]),
        ("G*->G*->G0", [f"G{a}->G{b}->G0" for a in (0, 1, 3) for b in (0, 1, 3)]),
        ("G[0,1]C0->G0->F[0,1]", [f"G{a}C0->G0->F{b}" for a in (0, 1) for b in (0, 1)]),
        ("G0->G0.*->G1", ["G0->G0.0->G1", "G0->G0.1->G1"]),
        ("G0->G0.[0..1]->G1", ["G0->G0.0->G1", "G0->G0.1->G1"]),
        ("G0->D0.*->G1", ["G0->D0.0->G1", "G0->D0.1->G1"]),
        ("G0->G*.*->G1", [f"G0->G{gpu}.{xcc}->G1" for gpu, xccs in ((0, 2), (1, 2), (3, 3)) for xcc in range(xccs)]),
        ("G0->G*.1->G1", ["G0->G0.1->G1", "G0->G1.1->G1", "G0->G3.1->G1"]),
        ("N*->G[0,1]->G0", ["N->G0->G0", "N->G1->G0"]),
    ],
)
def test_wildcards_make_a_transfer_of_every_combination(text: str, expanded: list[str]) -> None:
    # G*.* expands the XCCs of every GPU; TransferBench forgets the wildcard after the first.
    assert routes(text) == expanded


@pytest.mark.parametrize("kind", [row for row in EXECUTORS if not row.sub_index], ids=lambda row: row.word)
def test_a_wildcard_of_parts_that_are_none_is_one_transfer_a_place(kind: ExecutorKind) -> None:
    # TransferBench expands B*.* to nothing, because B reports no sub-indices.
    indices = NODE.indices(by_gpu=kind.on == "device")
    assert executors_named(f"{kind.letter}*.*", NODE) == [Executor(kind.letter, index) for index in indices]


def test_a_memory_of_the_host_may_be_indexed_by_the_gpu_it_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(letters._MEMORIES_BY_NAME, "q", MemoryKind("Q", "near", "host", "near a GPU", by_gpu=True))
    monkeypatch.setattr(ends, "MEMORIES", (*MEMORIES, letters._MEMORIES_BY_NAME["q"]))
    assert [str(memory) for memory in memories_named("Q*", NODE)[0]] == ["Q0", "Q1", "Q3"]


def test_a_line_counts_its_transfers_before_wildcards_are_expanded() -> None:
    assert len(parse_line("2 8 (G*->G0->G0) (G0->G0->G*)", 4096, NODE)) == 6
    assert len(parse_line("-1 (G*->G0->G[1..3] 8 64M)", None, NODE)) == 9


@given(
    st.lists(indices, min_size=1, max_size=6, unique=True),
    st.lists(indices, min_size=1, max_size=3, unique=True),
    st.dictionaries(indices, st.integers(1, 8), min_size=1),
)
def test_stars_stand_for_all_there_are(gpus: list[int], numa_nodes: list[int], xccs: dict[int, int]) -> None:
    places = Places(tuple(gpus), tuple(numa_nodes), xccs={gpu: xccs.get(gpu, 1) for gpu in gpus})
    expected = [
        Transfer((Memory("C", node),), Executor("G", gpu, xcc), (Memory("G", peer),), 4096)
        for node in numa_nodes
        for peer in gpus
        for gpu in gpus
        for xcc in range(xccs.get(gpu, 1))
    ]
    assert list(parse_transfers("C*->G*.*->G*", 4096, 0, places)) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("G[]->G0->G0", "bad memory 'G[]': write '[]' as [1], [0,2,5] or [1..3]"),
        ("G[x]->G0->G0", "write '[x]' as [1], [0,2,5] or [1..3]"),
        ("G[1,]->G0->G0", "write '[1,]' as"),
        ("G[1..]->G0->G0", "write '[1..]' as"),
        ("G[-1]->G0->G0", "write '[-1]' as"),
        ("G[3..1]->G0->G0", "bad memory 'G[3..1]': 3..1 ends below its start"),
        ("G[1,1]->G0->G0", "'[1,1]' has an index twice"),
        ("G[1..3,2]->G0->G0", "'[1..3,2]' has an index twice"),
        ("G[1->G0->G0", "bad memory 'G[1'"),
        ("G0->C0.[0,1]->G0", "cpu has no parts to choose from, write 'C0'"),
        ("G0->D3.*->G0", "'D3.*': how many DMA engines GPU 3 has is not known: give a number"),
        ("G[0..9999]->G[0..9999]->G0", "it names 100000000 Transfers, at most 4096 run at the same time"),
    ],
)
def test_wildcards_that_stand_for_nothing_are_refused(text: str, said: str) -> None:
    assert said in refusal(parse_transfers, text, 4096, 0, NODE)


def test_many_transfers_of_several_brackets_are_refused_too() -> None:
    assert "at most 4096" in refusal(parse_transfers, "(G[0..4000]->G0->G0)" * 2, 4096, 0, NODE)


def test_a_star_needs_a_machine() -> None:
    assert "bad memory 'G*': '*' stands for all there are of a machine" in refusal(parse_transfers, "G*->G0->G0", 4096)
    assert "bad executor 'G0.*': '*' stands for all" in refusal(parse_transfers, "G0->G0.*->G0", 4096)
    assert "names none on this machine" in refusal(parse_transfers, "G*->C0->C0", 4096, 0, Places(gpus=()))


def test_one_is_one() -> None:
    assert parse_transfer("1 8 (G1->G0->G0)", 4096) == parse_transfer("(G1->G0->G0 8 4K)")
    assert "it names 2 Transfers, give one" in refusal(parse_transfer, "G[0,1]->G0->G0", 4096)
    assert "bad memory 'G0G1': it names several" in refusal(parse_memory, "G0G1")
    assert "bad executor 'G[0,1]': it names several" in refusal(parse_executor, "G[0,1]")
    assert parse_executor("gfx[1].2") == Executor("G", 1, 2)


@given(cases)
def test_a_comment_behind_means_nothing(case: Transfer | Test) -> None:
    assert parse_line(f"{case.line()} # {case.line()}") == case.transfers

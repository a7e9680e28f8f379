"""Settings and a node become cases: which, in what order, under what names, and which are skipped."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections import Counter
from typing import Any

import pytest

from pytest_transferbench import cases
from pytest_transferbench.cases import (
    CASE_LIMIT,
    EMULATED_SIZES,
    HOST_SIZES,
    REAL_SIZES,
    Plan,
    Planned,
    Request,
    build_cases,
    case_of,
    default_sizes,
    places_of,
    read_config,
    request_from_marks,
    selected_gpus,
)
from pytest_transferbench.node import Node, NumaNode
from pytest_transferbench.options import Settings, resolve
from pytest_transferbench.transfer import AnyCase, Case, Places, Test, Transfer, ends, parse_transfers, together
from tests.plugin.fake_machine import FakeMachine
from tests.refusals import refusal

MIB = 2**20


def supported(case: AnyCase, node: Node) -> str | None:
    return None


def node(gpus: int = 2, **facts: Any) -> Node:
    return FakeMachine(gpus=gpus, **facts).node()


def plan(gpus: int = 2, selected: tuple[int, ...] | None = None, /, *marks: pytest.MarkDecorator, **asked: str) -> Plan:
    settings = resolve({"sizes": "1M", **asked}, {}, {})
    request = request_from_marks(settings, [mark.mark for mark in marks])
    return build_cases(request, node(gpus), tuple(range(gpus)) if selected is None else selected, supported)


def names(got: Plan) -> list[str]:
    return [item.name for item in got.items]


def mark(*transfers: Any, **keywords: Any) -> pytest.MarkDecorator:
    return pytest.mark.transferbench.with_args(*transfers, **keywords)


def test_gpu_pairs_and_local_copies_of_two_gpus() -> None:
    assert names(plan(executors="gfx")) == [
        "push-gfx-G0-G1-1M",
        "push-gfx-G1-G0-1M",
        "pull-gfx-G0-G1-1M",
        "pull-gfx-G1-G0-1M",
        "local-gfx-G0-G0-1M",
        "local-gfx-G1-G1-1M",
    ]


def test_the_host_is_pulled_from_and_pushed_to_by_gpus_and_the_other_way_round_by_threads() -> None:
    assert names(plan(1, None, mark(pairs="host"))) == [
        "push-gfx-G0-C0-1M",
        "push-dma-G0-C0-1M",
        "push-cpu-C0-G0-1M",
        "pull-gfx-C0-G0-1M",
        "pull-dma-C0-G0-1M",
        "pull-cpu-G0-C0-1M",
        "local-cpu-C0-C0-1M",
    ]


def test_all_pairs_are_gpu_and_host_pairs() -> None:
    both = Counter(names(plan())) + Counter(names(plan(2, None, mark(pairs="host"))))
    assert Counter(names(plan(2, None, mark(pairs="all")))) == both


def test_a_relay_is_run_by_a_third_gpu_or_by_the_host() -> None:
    got = names(plan(3, None, ops="relay"))
    assert "relay-gfx-G0-G1-1M-at-G2" in got
    assert "relay-cpu-G0-G1-1M-at-C0" in got
    assert not [name for name in got if "dma" in name]
    assert len(got) == 12


def test_pairs_by_name() -> None:
    assert names(plan(2, None, mark(pairs="G1-G0, C0-G1", ops="pull", executors="gfx"))) == [
        "pull-gfx-G1-G0-1M",
        "pull-gfx-C0-G1-1M",
    ]


def test_a_pair_named_twice_is_run_once() -> None:
    assert names(plan(2, None, mark(pairs="G1-G0,G1-G0", ops="pull", executors="gfx"))) == ["pull-gfx-G1-G0-1M"]


@pytest.mark.parametrize(("pairs", "says"), [("G0", "bad pair 'G0'"), ("G0-Q1", "unknown memory kind 'Q'")])
def test_pairs_that_are_none(pairs: str, says: str) -> None:
    assert says in refusal(plan, 2, None, mark(pairs=pairs))


def test_transfers_and_notations_are_run_as_given() -> None:
    given = [Transfer.push(0, 1, 4096), "G1->G0->G0", "(G0 D0 G1 0 2M)", "(G0 G0 G1 8 0)"]
    assert names(plan(2, None, mark(*given), sizes="1M,4M")) == [
        "push-gfx-G0-G1-4K",
        "pull-gfx-G1-G0-4M",
        "pull-gfx-G1-G0-1M",
        "push-dma-G0-G1-2M",
        "push-gfx8-G0-G1-4M",
        "push-gfx8-G0-G1-1M",
    ]


def test_a_notation_of_several_is_a_test_at_every_size() -> None:
    given = ["(G1->G0->G0) (C0->G0->G0)", Test.push_to_peers(1, (0, 1), 4096, 4)]
    got = plan(2, None, mark(*given, subexecutors=8), sizes="1M,4M")
    assert names(got) == ["pull-gfx8-G1+C0-G0-4M", "pull-gfx8-G1+C0-G0-1M", "push-gfx4-G1-peers-4K"]
    assert [item.skip for item in got.items] == [None] * 3
    assert [keywords(item) for item in got.items[1:]] == [
        {"op": "pull", "exe": "gfx", "src": "G1+C0", "dst": "G0", "size": "1M"},
        {"op": "push", "exe": "gfx", "src": "G1", "dst": "peers", "size": "4K"},
    ]
    (missing,) = plan(2, None, mark("(G1->G0->G0) (G7->G0->G0)")).items
    assert missing.skip == "no GPU 7: this node has GPUs 0-1"


def keywords(item: Planned) -> dict[str, Any]:
    return next(mark.kwargs for mark in item.as_param().marks if mark.name == "transfer")


def test_peers_are_all_the_other_selected_gpus() -> None:
    got = plan(4, (0, 2, 3), mark(pairs="peers", subexecutors=8), sizes="1M,4M", ops="pull,push")
    assert names(got) == [
        f"{op}-gfx8-{source}-{destination}-{size}"
        for op in ("push", "pull")
        for gpu in ("G0", "G2", "G3")
        for source, destination in [(gpu, "peers") if op == "push" else ("peers", gpu)]
        for size in ("4M", "1M")
    ]
    cases = [item.case for item in got.items]
    assert cases[-1] is not None
    assert cases[-1].transfer == Test.pull_from_peers(3, (0, 2, 3), MIB, 8)
    assert all(item.skip is None for item in got.items)


def test_peers_of_one_gpu_beside_pairs_by_name() -> None:
    assert names(plan(3, None, mark(pairs="G1-G0,peers-G0,G2-peers", executors="gfx"))) == [
        "push-gfx-G1-G0-1M",
        "pull-gfx-G1-G0-1M",
        "pull-gfx-peers-G0-1M",
        "push-gfx-G2-peers-1M",
    ]
    assert names(plan(3, None, mark(pairs="peers-G0,G2-peers", ops="push"))) == ["push-gfx-G2-peers-1M"]


@pytest.mark.parametrize("pairs", ["peers", "peers-G0,G0-peers"])
def test_a_gpu_without_peers_says_so(pairs: str) -> None:
    got = plan(1, None, mark(pairs=pairs))
    assert [(item.name, item.skip) for item in got.items] == [
        ("push-gfx-too-few-gpus", "push needs 2 GPUs; selected: 0"),
        ("pull-gfx-too-few-gpus", "pull needs 2 GPUs; selected: 0"),
    ]


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ("peers-C0", "bad pair peers-C0: peers are a GPU's, as in peers-G0 or G0-peers"),
        ("peers-peers", "bad pair peers-peers: peers are a GPU's"),
        ("G0-peers,G1", "bad pair 'G1': use gpu, host, all, peers, config, local, or SOURCE-DESTINATION"),
    ],
)
def test_peers_of_what_is_no_gpu(pairs: str, says: str) -> None:
    assert says in refusal(plan, 2, None, mark(pairs=pairs))


def test_peers_of_a_missing_gpu_are_skipped_with_the_reason() -> None:
    (item,) = plan(2, None, mark(pairs="peers-G7")).items
    assert (item.name, item.skip) == ("pull-gfx-peers-G7-1M", "no GPU 7: this node has GPUs 0-1")


def test_what_is_neither_transfer_nor_notation_is_refused() -> None:
    assert "give Transfers, Tests or their notation" in refusal(plan, 2, None, mark(7))
    assert "bad Transfer" in refusal(plan, 2, None, mark("G0"))


def test_the_largest_size_of_every_pair_comes_first() -> None:
    got = names(plan(sizes="1M,16M,4M", ops="pull", executors="gfx"))
    assert got == [f"pull-gfx-{pair}-{size}" for pair in ("G0-G1", "G1-G0") for size in ("16M", "4M", "1M")]


def test_subexecutors_are_for_kernels() -> None:
    assert names(plan(ops="push", subexecutors="8"))[::2] == ["push-gfx8-G0-G1-1M", "push-dma-G0-G1-1M"]


def test_subexecutors_of_a_notation_are_its_own() -> None:
    given = ("G0->G0->G1", "(G0->G0->G1 4 0)", "G0->D0->G1", "C0->C0->C0")
    assert names(plan(2, None, mark(*given), subexecutors="8")) == [
        "push-gfx8-G0-G1-1M",
        "push-gfx4-G0-G1-1M",
        "push-dma-G0-G1-1M",
        "local-cpu-C0-C0-1M",
    ]


def test_every_count_is_a_case_of_what_shares_work() -> None:
    got = names(
        plan(2, None, mark(pairs="G0-G1", ops="push"), executors="gfx,dma,batch", subexecutors="1,4", sizes="1M,2M")
    )
    assert got == [
        *(f"push-gfx{count}-G0-G1-{size}" for count in (1, 4) for size in ("2M", "1M")),
        "push-dma-G0-G1-2M",
        "push-dma-G0-G1-1M",
        *(f"push-batch{count}-G0-G1-{size}" for count in (1, 4) for size in ("2M", "1M")),
    ]
    assert names(plan(2, None, mark("G1->G0->G0", "(G1->G0->G0 2 0)"), subexecutors="1,4")) == [
        "pull-gfx1-G1-G0-1M",
        "pull-gfx4-G1-G0-1M",
        "pull-gfx2-G1-G0-1M",
    ]
    assert names(plan(2, None, mark(pairs="G0-peers"), subexecutors="1,4")) == [
        "push-gfx1-G0-peers-1M",
        "push-gfx4-G0-peers-1M",
    ]


def test_what_is_one_case_takes_one_count_and_one_shape() -> None:
    assert refusal(config_of, "1 0 (G0->G0->G1)", subexecutors="1,2").endswith(
        "(G0->G0->G1 0 16M) leaves its SubExecutors open, which are 1,2: give one number"
    )
    assert names(config_of("1 4 (G0->G0->G1)", subexecutors="1,2")) == ["push-gfx4-G0-G1-16M"]
    request = Request(resolve({"unroll": "1,2"}, {}, {}))
    assert refusal(case_of, Transfer.push(0, 1, 4096), request, node()) == (
        "(G0->G0->G1 0 4K) is one case, and block_threads or unroll ask for several: give one of each"
    )
    assert case_of(Transfer.push(0, 1, 4096, "dma"), request, node()).name == "push-dma-G0-G1-4K"


def test_every_shape_of_a_kernel_is_a_case_and_in_its_name() -> None:
    got = plan(2, None, mark(pairs="G0-G1", ops="push"), executors="gfx,dma", block_threads="0,512", unroll="1,8")
    assert names(got) == [
        "push-gfx-G0-G1-1M-u1",
        "push-gfx-G0-G1-1M-u8",
        "push-gfx-G0-G1-1M-b512-u1",
        "push-gfx-G0-G1-1M-b512-u8",
        "push-dma-G0-G1-1M",
    ]
    cases = [item.case for item in got.items if isinstance(item.case, Case)]
    assert [(case.block_threads, case.unroll) for case in cases] == [(0, 1), (0, 8), (512, 1), (512, 8), (0, 0)]


def test_the_best_count_is_searched_for_where_a_kernel_leaves_it_open() -> None:
    asked = mark("G0->G0->G1", "(G0->G0->G1 4 0)", "G0->D0->G1", "(G0->G0->G1) (G1->G1->G0)", variant="x")
    got = plan(2, None, asked, subexecutors="best")
    assert names(got) == [
        "push-gfx-G0-G1-1M-best-x",
        "push-gfx4-G0-G1-1M-x",
        "push-dma-G0-G1-1M-x",
        "push-gfx-G0+G1-G1+G0-1M-best-x",
    ]


def test_pairs_in_words() -> None:
    asked = mark(pairs="each-N,N-each,first-others,each-itself,local", executors="gfx,dma", ops="push,local")
    assert names(plan(3, (0, 2), asked, gpus="0,2")) == [
        "push-gfx-G0-G2-1M",
        "push-dma-G0-G2-1M",
        *(f"local-gfx-{ends}-1M" for ends in ("G0-N", "G2-N", "N-G0", "N-G2", "G0-G0", "G2-G2")),
        "local-dma-G0-G0-1M",
        "local-dma-G2-G2-1M",
    ]


def test_local_copies_are_made_where_they_are_asked_for() -> None:
    asked = mark(pairs="first-others,local", executors="dma", ops="push,local")
    assert names(plan(8, None, asked)) == ["push-dma-G0-G1-1M"]
    assert names(plan(8, None, asked, local_copies="yes")) == ["push-dma-G0-G1-1M", "local-dma-G0-G0-1M"]
    assert names(plan(3, None, asked, gpus="all")) == ["push-dma-G0-G1-1M", "push-dma-G0-G2-1M"]
    assert skips(plan(1, None, asked)) == {"push-dma-too-few-gpus": "push needs 2 GPUs; selected: 0"}


def test_several_memories_of_an_end_are_for_those_who_take_them() -> None:
    asked = mark(pairs="first-first+second,first+second-first", ops="push,pull,local,relay")
    assert names(plan(3, None, asked, executors="gfx,dma,batch,cpu")) == [
        "push-gfx-G0-G0G1-1M",
        "push-dma-G0-G0G1-1M",
        "push-batch-G0-G0G1-1M",
        "pull-gfx-G0G1-G0-1M",
    ]


def test_a_relay_of_several_ends_is_run_beside_none_of_them() -> None:
    asked = mark(pairs="G0-G1+G2", ops="relay", executors="gfx")
    assert names(plan(4, None, asked)) == ["relay-gfx-G0-G1G2-1M-at-G3"]


def test_defaults_of_an_emulated_node_come_before_the_others() -> None:
    asked = mark(defaults={"sizes": "1K", "samples": 9}, emulated_defaults={"sizes": "2K"}).mark
    real, emulated = (request_from_marks(Settings(), [asked], emulated=emulated) for emulated in (False, True))
    assert (real.settings.sizes, emulated.settings.sizes) == ((1024,), (2048,))
    assert real.settings.samples == emulated.settings.samples == 9
    given_else = request_from_marks(resolve({"sizes": "4K"}, {}, {}), [asked], emulated=True)
    assert given_else.settings.sizes == (4096,)


def test_a_table_is_one_that_there_is() -> None:
    assert request_from_marks(Settings(), [mark(table="scaling").mark]).table == "scaling"
    assert refusal(plan, 2, None, mark(table="none")) == (
        "@pytest.mark.transferbench(table='none'): use bmasweep, gfxsweep, hbm, healthcheck, scaling, smoketest"
    )


def test_a_case_is_measured_as_asked() -> None:
    asked = {
        "samples": "5",
        "sub_iterations": "2",
        "warmups": "4",
        "rotate": "0",
        "offset": "64",
        "validate": "each",
        "warm_cold": "1.3",
    }
    case = plan(2, None, mark(floor_gbps=360), **asked).items[0].case
    assert case is not None
    assert (case.samples, case.sub_iterations, case.warmups, case.rotate_bytes) == (5, 2, 4, 0)
    assert (case.byte_offset, case.validate, case.warm_cold_limit, case.floor_gbps) == (64, "each", 1.3, 360.0)


def test_without_a_limit_of_the_users_own_the_judge_keeps_its_own() -> None:
    case = plan().items[0].case
    assert case is not None
    assert case.warm_cold_limit is None


@pytest.mark.parametrize("floor", [0, -1, "fast", True, float("nan"), float("inf")])
def test_a_floor_is_a_positive_number(floor: Any) -> None:
    assert "use a positive number of GB/s" in refusal(plan, 2, None, mark(floor_gbps=floor))


def test_the_nearest_mark_wins_keyword_by_keyword() -> None:
    near, far = mark(ops="push"), mark(ops="pull", executors="dma")
    assert names(plan(2, None, near, far)) == ["push-dma-G0-G1-1M", "push-dma-G1-G0-1M"]


def test_items_carry_the_case_and_its_words_for_exact_selection() -> None:
    item = plan(ops="pull", executors="gfx").items[0]
    (carried,) = item.as_param().marks
    assert carried.name == "transfer"
    assert carried.args == (item.case,)
    assert carried.kwargs == {"op": "pull", "exe": "gfx", "src": "G0", "dst": "G1", "size": "1M"}


def test_default_sizes_depend_on_the_node() -> None:
    assert default_sizes(node()) == REAL_SIZES
    assert default_sizes(node(emulated="mi300x-8")) == EMULATED_SIZES
    assert default_sizes(node(0)) == HOST_SIZES


def skips(got: Plan) -> dict[str, str | None]:
    return {item.name: item.skip for item in got.items}


def test_without_a_gpu_every_kind_of_gpu_item_says_why() -> None:
    request = Request(resolve({"sizes": "1M"}, {}, {}), pairs="all")
    got = build_cases(request, node(0, why_no_gpu="no driver"), (), supported)
    assert skips(got) == {
        "local-cpu-C0-C0-1M": None,
        **{f"{op}-{exe}-no-gpu": "no driver" for op in ("push", "pull", "local") for exe in ("gfx", "dma")},
    }


def test_with_one_gpu_pairs_say_why() -> None:
    got = skips(plan(2, (1,), ops="pull,local", executors="gfx"))
    assert got == {"local-gfx-G1-G1-1M": None, "pull-gfx-too-few-gpus": "pull needs 2 GPUs; selected: 1"}


def test_what_no_transfer_can_be_says_so() -> None:
    assert skips(plan(2, None, mark(pairs="C0-G0"), ops="local", executors="gfx,dma")) == {
        "no-such-transfer": "no Transfer is all of this: pairs=C0-G0, ops=local, executors=gfx,dma"
    }


def test_a_gpu_that_was_not_selected_is_not_used() -> None:
    got = skips(plan(3, (0, 2), mark("G0->G0->G1", "G0->G0->G2", "G0->G0->G7")))
    assert got == {
        "push-gfx-G0-G1-1M": "GPU 1 is not selected: --gpus names 0, 2",
        "push-gfx-G0-G2-1M": None,
        "push-gfx-G0-G7-1M": "no GPU 7: this node has GPUs 0-2",
    }


def test_the_engine_is_asked_once_a_route() -> None:
    asked: list[tuple[str, int]] = []

    def unsupported(case: AnyCase, node: Node) -> str | None:
        assert isinstance(case, Case)
        asked.append((case.name, case.sub_iterations))
        return "not by dma" if case.transfer.executor.word == "dma" else None

    request = Request(resolve({"sizes": "1M,2M", "ops": "pull", "sub_iterations": "3"}, {}, {}))
    got = build_cases(request, node(), (0, 1), unsupported)
    assert Counter(item.skip for item in got.items) == {None: 4, "not by dma": 4}
    assert len(asked) == 4
    assert {count for _, count in asked} == {3}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what a case is made of was made or looked up."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        counts = getattr(owner, name)

        def counting(*args: Any, **keywords: Any) -> Any:
            counted[name] += 1
            return counts(*args, **keywords)

        monkeypatch.setattr(owner, name, counting)

    for owner, name in (
        (Transfer, "__init__"),
        (Transfer, "case_name"),
        (cases, "missing"),
        (ends, "memory_kind"),
        (ends, "executor_kind"),
    ):
        count(owner, name)
    return counted


def test_a_case_more_costs_one_transfer_and_one_name(calls: Counter[str]) -> None:
    """What depends on the route alone is not found out again for every size."""

    def made_with(sizes: int) -> tuple[Counter[str], int]:
        calls.clear()
        got = plan(4, None, mark(pairs="all"), sizes=",".join(str(4 * n) for n in range(1, sizes + 1)))
        params = [item.as_param() for item in got.items]
        return calls.copy(), len(params)

    (few, few_cases), (many, many_cases) = made_with(2), made_with(20)
    assert many_cases == 10 * few_cases
    assert many - few == {"__init__": many_cases - few_cases, "case_name": many_cases - few_cases}


def test_a_case_more_takes_little_memory() -> None:
    """Bytes that stay for every case beside pytest's own of about 2.5 KiB an item: 10 000 have to fit in 150 MB."""

    def kept_by(sizes: int) -> tuple[int, int]:
        tracemalloc.start()
        got = plan(4, None, mark(pairs="all"), sizes=",".join(str(4 * n) for n in range(1, sizes + 1)))
        params = [item.as_param() for item in got.items]
        del got
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return kept, len(params)

    kept_by(1)  # what is made once and kept
    (few, few_cases), (many, many_cases) = kept_by(2), kept_by(22)
    assert (many - few) / (many_cases - few_cases) < 1500


def config_of(text: str, gpus: int = 2, selected: tuple[int, ...] | None = None, **asked: str) -> Plan:
    settings = resolve({"config": "moves.cfg", **asked}, {}, {})
    request = request_from_marks(settings, [mark(pairs="config").mark])
    chosen = tuple(range(gpus)) if selected is None else selected
    there = node(gpus, emulated="mi300x-8")
    return build_cases(request, there, chosen, supported, read_config(text, settings, there, chosen))


def test_the_lines_of_a_file_are_cases_in_its_order() -> None:
    got = config_of("1 8 (G0->G0->G1)\n\n# no\n-2 (G0->G0->G1 8 4K) (G1->G1->G0 8 4K)\n2 4 (G1->D1->G0) (N->G0->G0)")
    assert names(got)[:2] == ["push-gfx8-G0-G1-16M", "push-gfx8-G0+G1-G1+G0-4K"]
    assert names(got)[2].startswith("mixed-dma+gfx4-G1+N-G0-16M-x")
    assert got.notes == ()


def test_a_line_without_bytes_takes_the_sizes_that_are_asked_for() -> None:
    got = config_of("1 8 (G0->G0->G1)\n-1 (G0->G0->G1 4 64M)\n-1 (G1->G0->G0 0 0)", sizes="1M,4M", subexecutors="16")
    assert names(got) == [
        "push-gfx8-G0-G1-4M",
        "push-gfx8-G0-G1-1M",
        "push-gfx4-G0-G1-64M",
        "pull-gfx16-G1-G0-4M",
        "pull-gfx16-G1-G0-1M",
    ]


def test_stars_of_a_file_stand_for_the_selected_gpus() -> None:
    assert names(config_of("1 8 (G*->G3->G3)", 4, (1, 3))) == [made_name("(G1->G3->G3 8 16M)(G3->G3->G3 8 16M)")]
    (item,) = config_of("1 8 (G[0..1]->G3->G3)", 4, (1, 3)).items
    assert item.skip == "GPU 0 is not selected: --gpus names 1, 3"


def made_name(text: str) -> str:
    return together(parse_transfers(text)).case_name()


def test_stars_in_a_notation_stand_for_the_selected_gpus() -> None:
    asked = mark("G[0,2]->G*.*->G0")
    assert names(plan(3, (0, 2), asked)) == [made_name("G[0,2]->G[0,2].0->G0 0 1M")]


def test_what_wildcards_stand_for_on_a_node() -> None:
    machine = node(3)
    devices = [
        dataclasses.replace(device, numa_node=numa_node, xccs=xccs, copy_engines=engines)
        for device, numa_node, xccs, engines in zip(
            machine.devices, (1, None, -1), (8, 1, 2), (16, None, 2), strict=True
        )
    ]
    numa_nodes = (NumaNode(0), NumaNode(1))
    got = places_of(dataclasses.replace(machine, devices=tuple(devices), numa_nodes=numa_nodes), (0, 1))
    assert got == Places(gpus=(0, 1), numa_nodes=(0, 1), xccs={0: 8, 1: 1}, copy_engines={0: 16})
    assert places_of(node(0), ()) == Places(gpus=(), numa_nodes=(0,))


def test_no_file_is_one_item_that_says_so() -> None:
    got = plan(2, None, mark(pairs="config"))
    assert [(item.name, item.skip) for item in got.items] == [
        ("no-config-file", "no configuration file: give one, --transfer-config=FILE")
    ]


def test_a_file_of_the_mark_is_what_the_function_runs() -> None:
    request = request_from_marks(Settings(), [mark(config="mine.cfg").mark])
    assert (request.pairs, str(request.settings.config)) == ("config", "mine.cfg")
    assert request_from_marks(Settings(), [mark(config="mine.cfg", pairs="gpu").mark]).pairs == "gpu"


def test_too_many_cases_leave_one_pair_for_each_link_class_of_each_device() -> None:
    sizes = "1K..512M"
    everything = plan(16, None, sizes=sizes, all_pairs="yes")
    thinned = plan(16, None, sizes=sizes)
    assert len(everything.items) == 20 * (2 * 2 * 16 * 15 + 2 * 16) > CASE_LIMIT
    assert everything.notes == ()
    assert len(thinned.items) == 20 * (2 * 2 * 16 + 2 * 16)
    assert thinned.notes == (
        "19840 cases are more than 5000: one pair for each link class of each device is run, 1920 cases; "
        "--transfer-all-pairs runs them all",
    )
    # Spread over the node, and in the order they would have had.
    pushes = [name for name in names(thinned) if name.startswith("push-gfx") and name.endswith("-1K")]
    assert pushes == [f"push-gfx-G{i}-G{(i + 1) % 16}-1K" for i in range(16)]


def test_gpus_are_selected_in_ascending_order() -> None:
    assert selected_gpus(resolve({"gpus": "1,0"}, {}, {}), node()) == (0, 1)
    assert selected_gpus(Settings(), node(3)) == (0, 1, 2)
    assert selected_gpus(Settings(), node(0)) == ()


@pytest.mark.parametrize(
    ("asked", "gpus", "says"),
    [
        ("0,9", 2, "--gpus=0,9: no GPU 9; this node has GPUs 0-1"),
        ("0", 0, "--gpus=0: no GPU 0; this node has no GPU: no driver"),
        ("all", 0, "--gpus=all: this node has no GPU: no driver"),
    ],
)
def test_gpus_that_are_not_there_are_refused(asked: str, gpus: int, says: str) -> None:
    facts = {} if gpus else {"why_no_gpu": "no driver"}
    assert refusal(selected_gpus, resolve({"gpus": asked}, {}, {}), node(gpus, **facts)) == says


def test_every_name_is_given_once() -> None:
    got = names(plan(4, None, mark(pairs="all"), sizes="1K..1M", ops="push,pull,local,relay"))
    assert len(set(got)) == len(got)


def test_first_and_second_are_the_selected_gpus() -> None:
    asked = mark(pairs="first-second,first-first,peers-first", ops="pull,local", executors="gfx")
    assert names(plan(4, (1, 3), asked)) == ["pull-gfx-G1-G3-1M", "local-gfx-G1-G1-1M", "pull-gfx-peers-G1-1M"]


def test_with_one_gpu_there_is_no_second_and_the_reason_is_said() -> None:
    got = plan(1, None, mark(pairs="first-second,first-first", ops="pull,local", executors="gfx"))
    assert names(got) == ["local-gfx-G0-G0-1M", "pull-gfx-too-few-gpus"]
    assert got.items[1].skip == "pull needs 2 GPUs; selected: 0"


def test_a_control_and_a_variant_are_part_of_the_case() -> None:
    item = plan(2, None, mark(pairs="first-second", ops="pull", executors="gfx", control=True, variant="x")).items[0]
    assert (item.name, item.case and item.case.control) == ("pull-gfx-G0-G1-1M-x", True)
    assert refusal(lambda: plan(2, None, mark(control="yes"))) == (
        "@pytest.mark.transferbench(control='yes'): use True or False"
    )


def test_an_emulated_node_takes_fewer_samples_unless_told() -> None:
    emulated = FakeMachine(gpus=2, emulated="mi300x-8").node()
    few, told = cases.for_node(Settings(), emulated), cases.for_node(resolve({"samples": "9"}, {}, {}), emulated)
    assert (few.samples, few.warmups) == (cases.EMULATED_SAMPLES, cases.EMULATED_WARMUPS)
    assert (told.samples, told.warmups) == (9, cases.EMULATED_WARMUPS)
    assert cases.for_node(Settings(), node()) == Settings()

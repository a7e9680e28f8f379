"""One table of options, read from four places in one order."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.options import (
    EQUIVALENTS,
    OPTIONS,
    Option,
    Settings,
    environment_lines,
    mark_text,
    resolve,
    with_defaults,
    with_mark,
)
from tests.refusals import refusal, refuses

MIB = 2**20
DOCS = Path(__file__).parents[1] / "docs" / "options.md"


def settings(**command_line: str) -> Settings:
    return resolve(command_line, {}, {})


def test_nothing_given_is_the_defaults() -> None:
    assert resolve({}, {}, {}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("gpus", "0,1", {"gpus": (0, 1)}),
        ("gpus", " 3 , 0 ", {"gpus": (3, 0)}),
        ("gpus", "ALL", {"all_gpus": True}),
        ("sizes", "4M,64M", {"sizes": (4 * MIB, 64 * MIB)}),
        ("sizes", "8M..32M", {"sizes": (8 * MIB, 16 * MIB, 32 * MIB)}),
        ("executors", "G,dma", {"executors": ("gfx", "dma")}),
        ("ops", "pull,relay", {"ops": ("pull", "relay")}),
        ("runtime", "cuda", {"runtime": "cuda"}),
        ("emulate", "mi300x-8", {"emulate": "mi300x-8", "runtime": "emulator"}),
        ("rotate", "auto", {"rotate_bytes": None}),
        ("rotate", "0", {"rotate_bytes": 0}),
        ("rotate", "8G", {"rotate_bytes": 8 * 2**30}),
        ("samples", "10", {"samples": 10}),
        ("sub_iterations", "64", {"sub_iterations": 64}),
        ("warmups", "0", {"warmups": 0}),
        ("subexecutors", "8", {"subexecutors": (8,)}),
        ("subexecutors", "1, 2,4", {"subexecutors": (1, 2, 4)}),
        ("subexecutors", "1..4,8..64:2", {"subexecutors": (1, 2, 3, 4, 8, 16, 32, 64)}),
        ("subexecutors", "Best", {"subexecutors": (0,), "best_subexecutors": True}),
        ("block_threads", "64,1024", {"block_threads": (64, 1024)}),
        ("unroll", "1..3,32", {"unroll": (1, 2, 3, 32)}),
        ("local_copies", "yes", {"local_copies": True}),
        ("offset", "4K", {"byte_offset": 4096}),
        ("validate", "each", {"validate": "each"}),
        ("warm_cold", "1.2", {"warm_cold": 1.2}),
        ("all_pairs", "yes", {"all_pairs": True}),
        ("config", "a/b.cfg", {"config": Path("a/b.cfg")}),
        ("journal", "a/b.jsonl", {"journal": Path("a/b.jsonl")}),
    ],
)
def test_every_option_is_read(name: str, text: str, fields: dict[str, object]) -> None:
    got = settings(**{name: text})
    assert dataclasses.replace(got, sources={}) == dataclasses.replace(Settings(), **fields)
    assert got.given(name)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("gpus", "x", "--gpus=x: bad GPU index 'x'"),
        ("gpus", "", "bad GPU index ''"),
        ("gpus", "-1", "bad GPU index '-1'"),
        ("gpus", "0,0", "GPU 0 is named twice"),
        ("gpus", "0,00", "GPU 0 is named twice"),
        ("gpus", "99999", "bad GPU index"),
        ("sizes", "4Q", "--sizes=4Q: bad size '4Q'"),
        ("sizes", "512M..8M", "its end is below its start"),
        (
            "executors",
            "warp",
            "--executors=warp: unknown executor 'warp': use C or cpu, G or gfx, D or dma,",
        ),
        ("executors", "gfx,G", "executor 'gfx' comes up twice"),
        ("ops", "shove", "unknown op 'shove': use push, pull, local, relay"),
        ("runtime", "metal", "--transfer-runtime=metal: unknown value 'metal': use auto, rocm, cuda, emulator"),
        ("emulate", " ", "no node model given"),
        ("rotate", "-1", "--transfer-rotate=-1: bad size '-1'"),
        ("rotate", "1e9", "bad size '1e9'"),
        ("rotate", "12Q", "bad size '12Q'"),
        ("rotate", "99999999999G", "is too large"),
        ("samples", "0", "bad count '0': use a whole number from 1"),
        ("samples", "-5", "bad count '-5'"),
        ("samples", "2.5", "bad count"),
        ("warmups", "x", "bad count 'x': use a whole number from 0"),
        ("subexecutors", "1,x", "bad count 'x': use whole numbers, such as 1,2,4 or 1..32 or 1..32:2"),
        ("subexecutors", "1,1..2", "count 1 comes up twice"),
        ("subexecutors", "4..2", "bad range '4..2': write the smaller count first, and a factor of 2 or more"),
        ("subexecutors", "1..8:1", "a factor of 2 or more"),
        ("subexecutors", "0..8:2", "a factor of 2 or more"),
        ("subexecutors", "1..9999", "more than 1024 counts: give fewer"),
        ("subexecutors", "1,best", "bad count 'best'"),
        ("block_threads", "100", "bad block_threads 100: use a multiple of 64 up to 1024, or 0 (chosen)"),
        ("block_threads", "1088", "bad block_threads 1088"),
        ("unroll", "33", "bad unroll 33: use 1 to 32, or 0 (chosen)"),
        ("local_copies", "maybe", "use yes, no"),
        ("offset", "2", "use a multiple of 4"),
        ("validate", "never", "use end, each, off"),
        ("warm_cold", "1", "use a number above 1"),
        ("warm_cold", "nan", "use a number above 1"),
        ("all_pairs", "perhaps", "use yes, no"),
        ("config", " ", "no path given: name the file to read"),
        ("config", "a\0b", "a path holds no NUL character"),
        ("journal", "", "no path given"),
    ],
)
def test_refusals_name_what_was_given_and_what_is_allowed(name: str, text: str, says: str) -> None:
    assert says in refusal(resolve, {name: text}, {}, {})


@given(st.sampled_from([row.name for row in OPTIONS]), st.text(max_size=30))
def test_no_text_does_anything_but_parse_or_refuse(name: str, text: str) -> None:
    refuses(resolve, {name: text}, {}, {})


def test_the_nearest_source_wins() -> None:
    ini, environment, line = {"rotate": "1M"}, {"SRC_ROTATE_BYTES": "2M"}, {"rotate": "3M"}
    got = [resolve({}, {}, ini), resolve({}, environment, ini), resolve(line, environment, ini)]
    got.append(with_mark(got[-1], {"rotate": "4M"}))
    assert [s.rotate_bytes for s in got] == [MIB, 2 * MIB, 3 * MIB, 4 * MIB]
    assert [s.sources["rotate"] for s in got] == [
        "transfer_rotate",
        "SRC_ROTATE_BYTES",
        "--transfer-rotate",
        "the mark",
    ]


def test_a_refusal_names_the_place_the_text_came_from() -> None:
    assert refusal(resolve, {}, {"NUM_WARMUPS": "many"}, {}).startswith("NUM_WARMUPS=many: ")
    assert refusal(resolve, {}, {}, {"warmups": "many"}).startswith("transfer_warmups=many: ")


def test_blocks_that_no_transfer_may_have_are_refused_as_an_option() -> None:
    assert resolve({"subexecutors": "999999"}, {}, {}).subexecutors == (999_999,)
    assert refusal(resolve, {"subexecutors": "1000000"}, {}, {}).endswith("use whole numbers from 0 to 999999, or best")


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.name)
@pytest.mark.parametrize("text", ["x" * 5000, "9" * 5000, "0," * 2500, "4K," * 2500, "-" * 5000, "\x1b" * 5000])
def test_a_long_text_is_refused_in_a_short_line(row: Option, text: str) -> None:
    if row.name in ("emulate", "config", "journal"):  # a name and paths: whoever opens them says what is wrong
        assert resolve({row.name: text}, {}, {}).given(row.name)
        return
    assert refusal(resolve, {row.name: text}, {}, {}).isprintable()  # and not longer than every refusal may be
    if row.mark:
        assert refusal(with_mark, Settings(), {row.mark: text}).isprintable()


@pytest.mark.parametrize("value", ["x" * 5000, ["4K"] * 2500, {"a": "x" * 5000}])
def test_a_long_value_of_a_mark_is_refused_in_a_short_line(value: object) -> None:
    for keyword in ("sizes", "ops", "executors", "samples", "rotate"):
        assert refusal(with_mark, Settings(), {keyword: value}).startswith(f"@pytest.mark.transferbench({keyword}=")
    assert refusal(with_mark, Settings(), {"x" * 5000: 1}).startswith("@pytest.mark.transferbench has no keyword 'xxx")


@pytest.mark.parametrize("keyword", ["sizes", "rotate", "samples", "variant", "pairs", "validate"])
def test_none_is_no_value_of_a_mark(keyword: str) -> None:
    said = refusal(mark_text, keyword, None)
    assert said == f"@pytest.mark.transferbench({keyword}=None): give a value, or leave {keyword} out"


def test_a_worse_text_further_away_does_not_matter() -> None:
    assert resolve({"samples": "5"}, {"NUM_ITERATIONS": "garbage"}, {"samples": "garbage"}).samples == 5


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("SRC_ROTATE_BYTES", "0", {"rotate_bytes": 0}),
        ("SRC_ROTATE_BYTES", "4G", {"rotate_bytes": 4 * 2**30}),
        ("NUM_ITERATIONS", "7", {"samples": 7}),
        ("NUM_SUBITERATIONS", "8", {"sub_iterations": 8}),
        ("NUM_WARMUPS", "5", {"warmups": 5}),
        ("NUM_GPU_SE", "16", {"subexecutors": (16,)}),
        ("GFX_BLOCK_SIZE", "512", {"block_threads": (512,)}),
        ("GFX_UNROLL", "8", {"unroll": (8,)}),
        ("LOCAL_COPY", "1", {"local_copies": True}),
        ("LOCAL_COPY", "0", {"local_copies": False}),
        ("BYTE_OFFSET", "128", {"byte_offset": 128}),
        ("ALWAYS_VALIDATE", "-1", {"validate": "off"}),
        ("ALWAYS_VALIDATE", "0", {"validate": "end"}),
        ("ALWAYS_VALIDATE", "1", {"validate": "each"}),
    ],
)
def test_transferbench_names_are_honoured_and_said(name: str, text: str, fields: dict[str, object]) -> None:
    got = resolve({}, {name: text}, {})
    assert dataclasses.replace(got, sources={}) == dataclasses.replace(Settings(), **fields)
    assert environment_lines(got, {name: text}) == [f"from the environment: {name}={text}"]


def test_an_environment_name_that_was_overruled_is_not_said_to_be_used() -> None:
    got = resolve({"warmups": "4"}, {"NUM_WARMUPS": "5"}, {})
    assert environment_lines(got, {"NUM_WARMUPS": "5"}) == []


def test_an_empty_environment_name_is_not_given() -> None:
    assert resolve({}, {"NUM_WARMUPS": ""}, {}) == Settings()


def test_a_truth_value_of_transferbench_is_a_number() -> None:
    assert refusal(resolve, {}, {"LOCAL_COPY": "yes"}, {}) == "LOCAL_COPY=yes: use 0 (no) or 1 (yes)"


@pytest.mark.parametrize("text", ["-5", "0", "x"])
def test_transferbench_iterations_without_our_meaning_are_refused(text: str) -> None:
    # There they mean seconds and for ever.
    assert refusal(resolve, {}, {"NUM_ITERATIONS": text}, {}).startswith(f"NUM_ITERATIONS={text}: bad count")


def test_a_name_that_does_nothing_gets_a_line_with_what_does() -> None:
    assert environment_lines(Settings(), {"USE_REMOTE_READ": "1", "HOME": "/"}) == [
        "USE_REMOTE_READ is not honoured; today's equivalent: --ops=pull for 1, --ops=push for 0"
    ]


def test_no_name_is_both_honoured_and_not() -> None:
    assert not {row.environment for row in OPTIONS} & set(EQUIVALENTS)


def test_equivalents_name_only_options_that_exist() -> None:
    known = {name for row in OPTIONS for name in (row.option, row.short)} | {"--junitxml", "--pdb"}
    words = " ".join(EQUIVALENTS.values()).replace(",", " ").replace(":", " ").replace("=", " ").split()
    assert {word for word in words if word.startswith("--")} <= known


def test_emulating_and_a_real_runtime_contradict_each_other() -> None:
    says = refusal(resolve, {"emulate": "mi300x-8", "runtime": "rocm"}, {}, {})
    assert says == (
        "--transfer-emulate=mi300x-8 needs the emulator, but --transfer-runtime=rocm was asked for too: "
        "give one of the two"
    )


def test_a_mark_takes_lists_and_numbers_as_well() -> None:
    got = with_mark(Settings(), {"sizes": ["4M", 4096], "ops": ("pull",), "samples": 9, "rotate": 0})
    assert (got.sizes, got.ops, got.samples, got.rotate_bytes) == ((4 * MIB, 4096), ("pull",), 9, 0)


def test_an_unknown_mark_keyword_is_named() -> None:
    assert refusal(with_mark, Settings(), {"size": "4M"}) == (
        "@pytest.mark.transferbench has no keyword 'size': use block_threads, config, control, defaults, "
        "emulated_defaults, executors, floor_gbps, iterations, ll_blocks, loopback, messages, offset, ops, pairs, "
        "protocols, ring_memory, rotate, samples, sizes, sub_iterations, subexecutors, table, timeout, unroll, "
        "validate, variant, warm_cold, warmups"
    )


def test_defaults_of_a_mark_give_way_to_whatever_else_is_given() -> None:
    defaults = {"sizes": "1K", "subexecutors": [1, 2], "samples": 7}
    given_else = resolve({"sizes": "4M"}, {"NUM_ITERATIONS": "3"}, {"subexecutors": "8"})
    assert with_defaults(given_else, defaults, "defaults") == given_else
    got = with_defaults(Settings(), defaults, "defaults")
    assert (got.sizes, got.subexecutors, got.samples) == ((1024,), (1, 2), 7)
    assert got.sources["sizes"] == "the mark's defaults"
    assert with_defaults(got, {"sizes": "2K"}, "defaults") == got, "the first to say so counts"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("4M", "@pytest.mark.transferbench(defaults='4M'): give a dict, such as dict(sizes='4M')"),
        (
            {"pairs": "gpu"},
            "@pytest.mark.transferbench(defaults=...) has no keyword 'pairs': use block_threads, config",
        ),
        ({"sizes": "4Q"}, "@pytest.mark.transferbench(sizes='4Q'): bad size"),
    ],
)
def test_defaults_that_are_none_are_refused(value: object, says: str) -> None:
    assert refusal(with_defaults, Settings(), value, "defaults").startswith(says)


def test_a_mark_value_is_refused_like_an_option() -> None:
    assert refusal(with_mark, Settings(), {"sizes": "4Q"}).startswith("@pytest.mark.transferbench(sizes='4Q'): bad")


def test_the_reference_page_is_current() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "pytest_transferbench.options"], capture_output=True, text=True, check=True
    )
    assert DOCS.read_text() == made.stdout, "run: python -m pytest_transferbench.options > docs/options.md"


def test_the_help_of_samples_knows_how_many_the_engine_takes_of_single_copies() -> None:
    from pytest_transferbench.engine.run import SINGLE_COPY_SAMPLES

    row = next(row for row in OPTIONS if row.name == "samples")
    assert row.help.endswith(f"at most {SINGLE_COPY_SAMPLES}")

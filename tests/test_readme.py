"""The README's example, run as a reader would run it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_transferbench.emulator import node_models
from pytest_transferbench.judge import DEFAULT_LIMITS
from pytest_transferbench.transfer import Places, format_size, parse_transfers, together

pytest_plugins = ["pytester"]

RunPytest = Callable[..., pytest.RunResult]
README = Path(__file__).parent.parent / "README.md"
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")
TWO_GPUS = ("--gpus=0,1", "--transfer-samples=3")
EMULATED = ("--transfer-emulate=mi300x-8", *TWO_GPUS)


@pytest.fixture
def example() -> str:
    found = re.search(r"<!-- example -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@NEEDS_COMPILER
@pytest.mark.parametrize("model", node_models())
def test_the_example_passes_on_every_shipped_node_from_another_folder(
    pytester: pytest.Pytester, run_elsewhere: RunPytest, example: str, model: str
) -> None:
    pytester.makepyfile(test_mine=example)
    result = run_elsewhere(f"--transfer-emulate={model}", *TWO_GPUS)
    result.assert_outcomes(passed=4)


@NEEDS_COMPILER
def test_a_raised_floor_fails_in_words(pytester: pytest.Pytester, run_elsewhere: RunPytest, example: str) -> None:
    pytester.makepyfile(test_mine=example.replace("m.gbps > 20.0", "m.gbps > 500.0"))
    result = run_elsewhere(*EMULATED)
    result.assert_outcomes(failed=4)
    result.stdout.re_match_lines([r"E +assert \d+\.\d GB/s > 500\.0 GB/s"])
    assert not re.search(r"GBps\(", result.stdout.str())


def test_the_example_is_ten_lines(example: str) -> None:
    code = [line for line in example.splitlines() if line.strip()]
    assert len(code) <= 10


def test_the_row_of_contaminated_names_every_limit_there_is() -> None:
    (row,) = [line for line in README.read_text().splitlines() if line.startswith("| CONTAMINATED |")]
    limits = DEFAULT_LIMITS
    for limit in (
        f"a pull of {format_size(limits.contaminated_min_nbytes)} or more",
        f"{limits.contaminated_min_seconds * 1e6:g} us",
        f"{limits.warm_cold} x",
        f"{limits.warm_cold_unrotated} x without rotation",
    ):
        assert limit in row


@NEEDS_COMPILER
def test_the_example_of_messages_passes(pytester: pytest.Pytester, run_elsewhere: RunPytest) -> None:
    found = re.search(r"```python\n(.*?)```", (README.parent / "docs" / "ll.md").read_text(), re.DOTALL)
    assert found is not None
    pytester.makepyfile(test_mine=found[1])
    run_elsewhere(*EMULATED).assert_outcomes(passed=3)


NOTATION = README.parent / "docs" / "notation.md"


@NEEDS_COMPILER
def test_the_configuration_file_of_the_notation_page_runs(pytester: pytest.Pytester, run_elsewhere: RunPytest) -> None:
    found = re.search(r"<!-- example -->\n```\n(.*?)```", NOTATION.read_text(), re.DOTALL)
    assert found is not None
    (pytester.path / "moves.cfg").write_text(found[1])
    suite = ("--pyargs", "pytest_transferbench.suites.test_config", "--transfer-config=moves.cfg", "--sizes=64K")
    run_elsewhere(*suite, "--transfer-emulate=mi300x-8", "--gpus=0,1,2").assert_outcomes(passed=5)


def test_the_code_of_the_notation_page_holds() -> None:
    found = re.search(r"<!-- example -->\n```python\n(.*?)```", NOTATION.read_text(), re.DOTALL)
    assert found is not None
    exec(found[1], {})


def test_the_tables_of_the_notation_page_hold() -> None:
    rows = re.findall(r"^\| `([^`]+)`[^|`]*\| (.*) \|$", NOTATION.read_text(), re.MULTILINE)
    expanded = {text: re.findall(r"`([^`]+)`", cell) for text, cell in rows if "[" in text or "*" in text}
    assert len(expanded) == 3
    for text, routes in expanded.items():
        found = parse_transfers(text, 4096, 0, Places(gpus=(0, 1, 2)))
        assert [transfer.notation()[1:].partition(" ")[0] for transfer in found] == routes
    named = {text: cell.strip("`") for text, cell in rows if re.fullmatch(r"`\w+-[^`]*`", cell)}
    assert len(named) == 5
    assert {text: together(parse_transfers(text)).case_name() for text in named} == named

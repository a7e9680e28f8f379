"""The README's example, run as a reader would run it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
EMULATED = ("--transfer-emulate=mi300x-8", "--gpus=0,1", "--transfer-samples=3")


@pytest.fixture
def example() -> str:
    found = re.search(r"<!-- example -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")
def test_the_example_passes_from_another_folder(pytester: pytest.Pytester, example: str) -> None:
    pytester.makepyfile(test_mine=example)
    result = pytester.runpytest_subprocess(*EMULATED)
    result.assert_outcomes(passed=4)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")
def test_a_raised_floor_fails_in_words(pytester: pytest.Pytester, example: str) -> None:
    pytester.makepyfile(test_mine=example.replace("m.gbps > 30.0", "m.gbps > 500.0"))
    result = pytester.runpytest_subprocess(*EMULATED)
    result.assert_outcomes(failed=4)
    result.stdout.re_match_lines([r"E +assert \d+\.\d GB/s > 500\.0 GB/s"])
    assert not re.search(r"GBps\(", result.stdout.str())


def test_the_example_is_ten_lines(example: str) -> None:
    code = [line for line in example.splitlines() if line.strip()]
    assert len(code) <= 10

"""The examples of the documentation, run as a reader would run them: the file, the command, and what it prints."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")

EMULATED_NODES = Path(__file__).parent.parent / "docs" / "emulated-nodes.md"
EXAMPLE = re.compile(
    r"```toml\n# (?P<name>\w+)\.toml\n(?P<model>.*?)```\n\n```sh\npytest (?P<arguments>.*?)\n```\n\n"
    r"```text\n(?P<printed>.*?)```",
    re.DOTALL,
)
EXAMPLES = {found["name"]: found for found in EXAMPLE.finditer(EMULATED_NODES.read_text())}


def test_every_model_in_the_documentation_is_run() -> None:
    assert list(EXAMPLES) == ["slow", "once", "lost"]
    assert EMULATED_NODES.read_text().count("```toml") == len(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_node_of_ones_own_does_what_the_documentation_shows(
    pytester: pytest.Pytester, run_elsewhere: Callable[..., pytest.RunResult], name: str
) -> None:
    pytester.makefile(".toml", **{name: EXAMPLES[name]["model"]})
    result = run_elsewhere(*shlex.split(EXAMPLES[name]["arguments"]))
    lines = iter(result.outlines)
    for printed in EXAMPLES[name]["printed"].splitlines():
        assert printed in lines, printed  # goes on behind the line found before

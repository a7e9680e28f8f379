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

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLE = re.compile(
    r"(?:```toml\n# (?P<name>\w+)\.toml\n(?P<model>[^`]*)```\n\n)?```sh\npytest (?P<arguments>[^`]*?)\n```\n\n"
    r"```text\n(?P<printed>[^`]*)```"
)
SUITE = re.compile(r"suites\.(test_[a-z0-9]+)")
EXAMPLES = {
    f"{page}-{found['name'] or SUITE.findall(found['arguments'])[0]}": found
    for page in ("emulated-nodes", "suites")
    for found in EXAMPLE.finditer((DOCS / f"{page}.md").read_text())
}


def test_every_example_in_the_documentation_is_run() -> None:
    of_nodes, of_suites = (
        [name.partition(page)[2] for name in EXAMPLES if name.startswith(page)]
        for page in ("emulated-nodes-", "suites-")
    )
    assert of_nodes == ["slow", "once", "lost"]
    assert of_suites == [
        "test_bmasweep",
        "test_scaling",
        "test_p2p",
        "test_gfxsweep",
        "test_hbm",
        "test_smoketest",
        "slow",
    ]
    for page, examples in (("emulated-nodes", of_nodes), ("suites", of_suites)):
        assert (DOCS / f"{page}.md").read_text().count("```text") == len(examples)


QUICK = ("emulated-nodes-slow", "emulated-nodes-once", "emulated-nodes-lost", "suites-test_bmasweep", "suites-slow")
"""A process takes three seconds to begin: the others are left to the slow tests."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in EXAMPLES])
def test_an_example_does_what_the_documentation_shows(
    pytester: pytest.Pytester, run_elsewhere: Callable[..., pytest.RunResult], name: str
) -> None:
    example = EXAMPLES[name]
    if example["name"]:
        pytester.makefile(".toml", **{example["name"]: example["model"]})
    result = run_elsewhere(*shlex.split(example["arguments"]))
    lines = iter(result.outlines)
    for printed in example["printed"].splitlines():
        assert printed in lines, printed  # goes on behind the line found before

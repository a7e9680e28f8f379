"""One emulated node for the tests of messages: a process can hold only one model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.runtime import probe_node

MODEL = "mi300x-8"


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    bench = Bench.open(probe_node("emulator", MODEL), MODEL)
    yield bench
    bench.close()

"""The same proofs on real hardware; skipped where there are not two GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.runtime import probe_node


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    node = probe_node("auto")
    if len(node.devices) < 2:
        pytest.skip(node.why_no_gpu or f"two GPUs are needed; this node has {node.describe_indices()}")
    bench = Bench.open(node)
    yield bench
    bench.close()

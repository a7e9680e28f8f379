"""The same proofs on real hardware: some need one GPU, some a pair, and are skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.runtime import probe_node


@pytest.fixture(scope="session")
def any_bench() -> Iterator[Bench]:
    """A node with at least one GPU."""
    node = probe_node("auto")
    if not node.devices:
        pytest.skip(node.why_no_gpu or "a GPU is needed; this node has none")
    bench = Bench.open(node)
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def bench(any_bench: Bench) -> Bench:
    """A node with at least two GPUs."""
    node = any_bench.node
    if len(node.devices) < 2:
        pytest.skip(f"two GPUs are needed; this node has {node.describe_indices()}")
    return any_bench

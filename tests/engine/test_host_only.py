"""The engine on a machine without a GPU: host threads are measured for real and proved like everything else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.node import HOST, Link, LinkClass, Node
from pytest_transferbench.transfer import Transfer, parse_transfer
from tests.engine import mutants
from tests.engine.proof import corrupt_check, measured


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench.open(Node("host", links=(Link(HOST, HOST, LinkClass.HOST),), why_no_gpu="none here"))
    yield bench
    bench.close()


@pytest.fixture
def transfer() -> Transfer:
    return parse_transfer("C0->C0->C0", nbytes=1 << 16)


def test_host_threads_are_measured_and_proved(bench: Bench, transfer: Transfer) -> None:
    measurement = measured(bench, transfer)
    assert measurement.faults == ()
    assert measurement.wrong_words == 0
    assert measurement.gbps > 0


def test_host_threads_that_copy_nothing_are_corrupt_and_no_gpu_is_asked(bench: Bench, transfer: Transfer) -> None:
    measurement = measured(bench, transfer, mutants.CopiesNothing)
    assert measurement.faults == ()
    nothing = corrupt_check(measurement)
    assert (nothing.wrong_words, nothing.found) == (1 << 14, f"poison (nothing was written) in {1 << 14} words")
    assert nothing.reread_agrees

"""B: many copies in one call, cut on even places; and what is said where there is no such call."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.engine import Bench
from pytest_transferbench.engine.executors import geometry_of, unsupported
from pytest_transferbench.engine.executors.batch import CUT_BYTES, cuts
from pytest_transferbench.node import Node
from pytest_transferbench.transfer import Executor, Memory, Transfer, parse_transfer
from tests.engine.proof import KIB, MIB, measured


def batch(nbytes: int, pieces: int, *destinations: str) -> Transfer:
    ends = tuple(Memory(text[0], int(text[1])) for text in destinations or ("G1",))
    return Transfer((Memory("G", 0),), Executor("B", 0), ends, nbytes, pieces)


@given(words=st.integers(1, 1 << 24), pieces=st.integers(1, 64))
def test_cuts_leave_nothing_out(words: int, pieces: int) -> None:
    made = cuts(4 * words, pieces)
    assert len(made) <= pieces
    assert [start for start, _ in made] == [sum(length for _, length in made[:number]) for number in range(len(made))]
    assert sum(length for _, length in made) == 4 * words
    assert all(start % CUT_BYTES == 0 and length > 0 for start, length in made)
    assert max(length for _, length in made) - made[0][1] == 0


@pytest.mark.parametrize("pieces", [0, 1, 3, 8])
def test_batches_are_measured_and_proved(bench: Bench, pieces: int) -> None:
    transfer = batch(64 * KIB + 20, pieces, "G1", "C0", "G2")
    measurement = measured(bench, transfer, rotate_bytes=300 * KIB, byte_offset=4, sub_iterations=3)
    assert (measurement.faults, measurement.wrong_words) == ((), 0)
    assert measurement.method["subexecutors"] == max(1, pieces)
    assert geometry_of(transfer, bench.node).subexecutors == max(1, pieces)


@pytest.mark.parametrize("text", ["(G0->B0->G1 16 4K)", "(G0->D0->G1G2G3F1F2F3U1 1 4K)"])
def test_what_wakes_the_links_is_no_part_of_the_hosts_clock(bench: Bench, text: str) -> None:
    """It takes more than the clocks may differ by, where it is many copies."""
    measurement = measured(bench, parse_transfer(text), rotate_bytes=0)
    assert measurement.faults == ()
    for arm in measurement.arms:
        assert arm.rejected == ()
        assert arm.host_seconds == pytest.approx(arm.event_seconds, abs=20e-6, rel=0.01)


def test_small_pieces_are_said_to_be_blit_perhaps(bench: Bench) -> None:
    """ROCm copies small things between GPUs with a shader, and a batch takes no kind that forbids it."""
    assert "may be blit" in measured(bench, batch(4 * MIB, 4)).context["remark"]
    assert "remark" not in measured(bench, batch(4 * MIB, 1)).context
    assert "remark" not in measured(bench, batch(64 * KIB, 1, "C0")).context


def test_a_batch_that_fails_names_its_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_transferbench.engine.executors.batch.cuts", lambda nbytes, pieces: [(0, 1 << 40)])
    (fault,) = measured(bench, batch(64 * KIB, 2)).faults
    assert fault.verdict == "DEVICE_ERROR"
    assert "hipMemcpyBatchAsync on GPU 0 failed: hipErrorInvalidValue" in fault.detail
    assert "(copy 0 of 1)" in fault.detail


@pytest.mark.parametrize(
    ("runtime", "needed"),
    [
        ("rocm", "hipMemcpyBatchAsync of ROCm 7.1"),
        ("cuda", "cudaMemcpyBatchAsync of CUDA 12.8 and cuda-bindings"),
    ],
)
def test_without_the_call_it_says_what_is_there_and_what_is_needed(bench: Bench, runtime: str, needed: str) -> None:
    older: Node = dataclasses.replace(bench.node, runtime=runtime, batch_copy=False, runtime_version="6.4")
    assert unsupported(batch(MIB, 2), older) == f"batch needs {needed}; found {runtime} 6.4"
    assert unsupported(batch(MIB, 2), bench.node) is None


def test_every_pass_is_a_batch(bench: Bench) -> None:
    said = "batch queues every sub-iteration by itself: use at most 62 sub-iterations"
    assert unsupported(batch(MIB, 8, "G1", "G2"), bench.node, 63) == said
    assert unsupported(batch(MIB, 8, "G1", "G2"), bench.node, 62) is None


def test_a_pull_between_gpus_is_the_sources_on_rocm(bench: Bench) -> None:
    pull = Transfer.pull("G1", "G0", MIB, "batch")
    assert "use push-dma" in str(unsupported(pull, bench.node))

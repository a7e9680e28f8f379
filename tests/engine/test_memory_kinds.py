"""Every memory kind is copied from and to, and proved, by whoever reaches it."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.engine.executors import unsupported
from pytest_transferbench.runtime import numa
from pytest_transferbench.runtime.host import HostRuntime
from pytest_transferbench.transfer import MEMORIES, parse_transfer
from tests.engine import mutants
from tests.engine.proof import corrupt_check, measured

NBYTES = 64 * 1024 + 20
WORDS = NBYTES // 4

FROM = ["C1->{}->G0", "P4->{}->G0", "B1->{}->G0", "D0->{}->G0", "K1->{}->G0", "F0->{}->G1", "U0->{}->G1", "M0->{}->G1"]
INTO = ["G0->{}->C1", "G0->{}->P4", "G0->{}->B1", "G0->{}->D0", "G0->{}->K1", "G0->{}->F1", "G0->{}->U1", "G0->{}->M1"]
BY_THE_HOST = ["C1->C0->H0", "H1->C0->P4", "B0->C0->D1", "K0->C1->B1", "D1->C0->K0"]
TRANSFERS = [
    *(text.format(executor) for text in (*FROM, *INTO) for executor in ("G0", "D0")),
    "H1->D0->G0",
    "G0->D0->H1",
    "H1->B0->G0",
    "M0->B0->K1",
    "G1->G0->M0",
    "M0->G0->N",
    *BY_THE_HOST,
]


def test_every_kind_is_tried_at_both_ends() -> None:
    ends = [text.split("->") for text in TRANSFERS]
    for place in (0, 2):
        assert {end[place][0] for end in ends} >= {row.letter for row in MEMORIES} - {"N"}


@pytest.mark.parametrize("text", TRANSFERS)
def test_a_kind_is_copied_and_proved(bench: Bench, text: str) -> None:
    transfer = parse_transfer(text, nbytes=NBYTES, subexecutors=2)
    assert unsupported(transfer, bench.node) is None
    measurement = measured(bench, transfer, rotate_bytes=0)
    assert measurement.faults == ()
    assert measurement.warnings == ()
    assert measurement.wrong_words == 0
    assert {check.words for check in measurement.checks} == {WORDS}
    assert measurement.gbps > 0
    letters = (*transfer.sources, *transfer.destinations)
    assert [measurement.method["source_kind"], measurement.method["destination_kind"]] == [end.kind for end in letters]
    # Unpinned memory is staged while the call waits: behind a closed gate it would wait for ever.
    ungated = "none" if any(end.kind == "H" for end in letters) else "kernel"
    assert measurement.method["gate"] == ("host" if transfer.executor.kind == "C" else ungated)


@pytest.mark.parametrize("text", ["H1->D0->G0", "G0->D0->H1", "M1->G0->G0", "G0->G0->K1"])
def test_a_copy_that_leaves_a_word_is_found_in_any_kind(bench: Bench, text: str) -> None:
    transfer = parse_transfer(text, nbytes=NBYTES, subexecutors=2)
    found = corrupt_check(measured(bench, transfer, mutants.StopsOneWordShort, rotate_bytes=0))
    assert (found.wrong_words, found.first) == (1, WORDS - 1)
    assert found.reread_agrees


def test_managed_sources_are_rotated(bench: Bench) -> None:
    measurement = measured(bench, parse_transfer("M1->G0->G0", nbytes=NBYTES), rotate_bytes=4 * NBYTES)
    assert measurement.faults == ()
    assert measurement.wrong_words == 0
    assert measurement.context["slices"] == 4


def test_a_kind_that_is_refused_on_this_node_says_why(bench: Bench) -> None:
    reasons = [unsupported(parse_transfer(text, nbytes=NBYTES), bench.node) for text in ("H0->G0->G0", "C2->G0->G0")]
    assert reasons == [
        "gfx of G0 does not reach H0, which is not pinned, without HSA_XNACK=1, where the GPU can: use dma or C",
        "C2: host memory that this process may use is on NUMA nodes 0, 1; use C0",
    ]


def test_what_could_not_be_seen_is_a_warning_and_no_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = numa.why_denied(OSError(1, "Operation not permitted"))
    allocate = bench.runtime.allocate

    def unseen(memory: object, nbytes: int) -> object:
        return dataclasses.replace(allocate(memory, nbytes), unchecked=denied)  # type: ignore[arg-type]  # as it is

    bench.arena.clear()
    monkeypatch.setattr(bench.runtime, "allocate", unseen)
    measurement = measured(bench, parse_transfer("C0->G0->C1", nbytes=NBYTES), rotate_bytes=0)
    bench.arena.clear()
    assert measurement.faults == ()
    assert measurement.warnings == (denied,)


def test_a_machine_without_a_gpu_has_pinned_and_unpinned_memory(bench: Bench) -> None:
    node = dataclasses.replace(bench.node, runtime="host", devices=(), emulated=None)
    alone = Bench(node, HostRuntime())
    transfer = parse_transfer("H0->C0->C0", nbytes=NBYTES)
    assert unsupported(transfer, node) is None
    assert measured(alone, transfer).wrong_words == 0
    alone.close()

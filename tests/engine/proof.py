"""What each mutant must be called, on whatever node it runs."""

from __future__ import annotations

import dataclasses

from pytest_transferbench.engine import Bench
from pytest_transferbench.measurement import Check, Measurement
from pytest_transferbench.transfer import Case, Transfer
from tests.engine import mutants

QUICK = 3


def measured(
    bench: Bench, transfer: Transfer, mutant: type[mutants.Mutant] | None = None, **settings: object
) -> Measurement:
    """Measure ``transfer`` with few samples, with its executor replaced where ``mutant`` says so."""
    case = dataclasses.replace(Case(transfer, samples=QUICK), **settings)  # type: ignore[arg-type]  # field by name
    with bench.lease(case) as lease:
        if mutant is not None:
            mutant(lease)
        return bench.measure(lease, key=f"test/{case.name}")


def corrupt_check(measurement: Measurement) -> Check:
    """Return the one check that failed; a corrupt arm ends the case, so it is the last."""
    *passed, failed = measurement.checks
    assert all(check.passed for check in passed)
    assert not failed.passed
    return failed


def assert_named(bench: Bench, transfer: Transfer) -> None:
    """Run the first three mutations on ``transfer`` and look at count, first index, mask and name of each."""
    words = transfer.nbytes // 4
    whole = measured(bench, transfer)
    assert whole.wrong_words == 0
    assert whole.faults == ()

    nothing = corrupt_check(measured(bench, transfer, mutants.CopiesNothing))
    assert (nothing.wrong_words, nothing.first, nothing.last, nothing.xor_mask) == (words, 0, words - 1, 0xFFFFFFFF)
    assert nothing.found == f"poison (nothing was written) in {words} words"
    assert nothing.reread_agrees

    shifted = corrupt_check(measured(bench, transfer, mutants.ReadsTheNextSlice))
    assert (shifted.wrong_words, shifted.first, shifted.last) == (words, 0, words - 1)
    assert shifted.found.startswith("slice ")
    assert " instead of slice " in shifted.found
    found, expected = (
        int(part.split()[0]) for part in shifted.found.removeprefix("slice ").split(" instead of slice ")
    )
    assert found == (expected + 1) % whole.method["slices"]
    assert shifted.reread_agrees

    flipped = corrupt_check(measured(bench, transfer, mutants.FlipsOneBit, validate="each"))
    assert (flipped.wrong_words, flipped.first, flipped.last) == (1, mutants.FlipsOneBit.word, mutants.FlipsOneBit.word)
    assert flipped.xor_mask == 1 << mutants.FlipsOneBit.bit
    assert flipped.found.startswith("neither poison nor any slice")
    assert flipped.reread_agrees

"""The bmasweep suite on an emulated MI355X gives the table that was published of one, within bounded memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_transferbench.transfer import format_size
from tests.emulator.published import BATCHES
from tests.emulator.test_published import BMASWEEP, DIGIT
from tests.study import ROOT, Figures, figures, study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node"),
]

SUITE = "pytest_transferbench.suites.test_bmasweep"
COLUMNS = ("dma", *(f"batch{count}" for count in BATCHES))
LARGEST = 32 << 20
"""What a CPU copies quickly; tests/emulator/test_published.py has the larger sizes, without the plugin."""
PUBLISHED = {int(words[0]): list(map(float, words[1:])) for words in map(str.split, BMASWEEP.strip().splitlines())}


def gbps(found: Figures, column: str, nbytes: int) -> float:
    return figures(found, f"push-{column}-G0-G1-{format_size(nbytes)}")["gbps"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Figures]:
    """Nothing of it depends on rotation."""
    arguments = "--gpus=0,1", "--sizes=4K..32M", "--transfer-rotate=0"
    return study(tmp_path_factory.mktemp("sweep"), "mi355x-8", *arguments, suite=SUITE)


def test_every_cell_is_the_published_one(sweep: tuple[str, Figures]) -> None:
    """Within 5 % or the last digit printed."""
    cells = [
        (nbytes, column, published, gbps(sweep[1], column, nbytes))
        for nbytes, row in PUBLISHED.items()
        if nbytes <= LARGEST
        for column, published in zip(COLUMNS, row, strict=True)
    ]
    assert len(cells) == 14 * 5
    assert [cell for cell in cells if abs(cell[3] - cell[2]) > max(0.05 * cell[2], DIGIT)] == []


def test_a_batch_is_no_faster_than_its_pieces(sweep: tuple[str, Figures]) -> None:
    for nbytes in PUBLISHED:
        for count in BATCHES:
            if nbytes // count in PUBLISHED and nbytes <= LARGEST:
                alone, batched = gbps(sweep[1], "dma", nbytes // count), gbps(sweep[1], f"batch{count}", nbytes)
                assert batched == pytest.approx(alone, rel=0.10 if nbytes >= 1 << 20 else 0.20), (nbytes, count)


def test_the_summary_is_the_published_tables_shape(sweep: tuple[str, Figures]) -> None:
    lines = sweep[0].splitlines()
    rows = [line.split(" | ") for line in lines[lines.index(next(x for x in lines if x.startswith("push G0 -> G1"))) :]]
    shown = {int(row[0]): [float(cell) for cell in f"{row[1]} {row[2]}".split()] for row in rows[2:16]}
    assert list(shown) == list(PUBLISHED)[:14]
    for nbytes, cells in shown.items():
        assert cells == pytest.approx([gbps(sweep[1], column, nbytes) for column in COLUMNS], abs=0.0051)
    assert sum(line.startswith("push G0 -> G1") for line in lines) == 1


RUN = """
import resource, sys
import pytest
code = pytest.main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


def test_a_row_of_1_gib_fits_4_gib(tmp_path: Path) -> None:
    """With rotation and eviction, and the process that it is measured in."""
    loaded = ("-p", "pytest_transferbench.plugin")
    arguments = ("--transfer-emulate=mi355x-8", "--gpus=0,1", "--sizes=1G", "-k", "dma or batch8")
    journal = f"--transfer-journal={tmp_path / 'journal.jsonl'}"
    done = subprocess.run(
        [sys.executable, "-c", RUN, *loaded, "--pyargs", SUITE, "-p", "no:cacheprovider", journal, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("1073741824 | "))
    dma, batch8 = (float(cell) for cell in row.replace("|", " ").split()[1:3])
    assert (dma, batch8) == pytest.approx((PUBLISHED[1 << 30][0], PUBLISHED[1 << 30][4]), rel=0.05)
    in_gib = int(done.stdout.splitlines()[-1]) / 2**20  # in KiB, says Linux
    assert 2 < in_gib <= 4

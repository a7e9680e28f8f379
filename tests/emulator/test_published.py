"""Node models against the tables they are fitted to: a machine's parameters in, published figures out, by HIP calls."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.emulator.conftest import REPOSITORY
from tests.emulator.published import BATCHES

# TransferBench's bmasweep on an MI355X, GB/s for each of 7 Transfers: bytes, DMA, BMA (1), (2), (4), (8).
BMASWEEP = """
      4096   0.68   0.67   0.35   0.18   0.09
      8192   1.33   1.34   0.70   0.36   0.18
     16384   2.61   2.68   1.41   0.72   0.35
     32768   5.42   5.36   2.98   1.49   0.76
     65536  10.52  10.54   5.53   3.01   1.52
    131072  20.18  19.84  11.18   5.63   3.04
    262144  33.90  32.19  21.52  11.21   5.67
    524288  44.86  43.72  34.54  21.98  11.40
   1048576  50.01  49.64  45.43  35.59  21.95
   2097152  47.99  48.07  50.96  46.41  35.78
   4194304  53.64  53.66  48.59  51.27  46.71
   8388608  57.09  57.07  53.65  48.10  51.54
  16777216  59.11  59.11  57.22  53.66  48.16
  33554432  60.10  59.97  59.11  57.10  53.74
  67108864  57.39  60.65  60.11  59.10  57.18
 134217728  60.95  60.82  60.67  60.13  59.13
 268435456  61.10  61.10  60.83  60.64  60.07
 536870912  61.19  59.33  61.10  60.95  60.54
1073741824  61.22  61.22  61.18  60.41  60.73
"""
DIGIT = 0.01
"""The last digit printed."""
OUTLIER = (64 << 20, 0)
"""A size at which DMA alone was slower than at half and at twice the size: no curve has that."""


# TransferBench 1.50's p2p on two MI210, 2 GiB a direction: rows are sources, columns CPU 00, GPU 00 and GPU 01.
P2P = """
CPU 00 uni  43.48  22.59  22.49
GPU 00 uni  26.74 625.92  26.72
GPU 01 uni  26.74  26.72 628.14
CPU 00 ->     N/A  22.41  22.39
CPU 00 <-     N/A  26.49  26.49
CPU 00 <->    N/A  48.90  48.88
GPU 00 ->   26.49    N/A  26.48
GPU 00 <-   22.32    N/A  26.48
GPU 00 <->  48.81    N/A  52.96
GPU 01 ->   26.49  26.48    N/A
GPU 01 <-   22.42  26.48    N/A
GPU 01 <->  48.91  52.96    N/A
"""
AVERAGES = {"uni": (22.54, 26.74, 26.72), "bi": (24.44, 24.43, 26.48)}
"""CPU to GPU, GPU to CPU, GPU to GPU."""

Table = dict[str, list[float]]


def averages(table: Table, kind: str) -> tuple[float, ...]:
    """Form TransferBench's averages: each class by its row's and its column's end, without what stays at one end."""
    ways = {"uni": ("uni",), "bi": ("->", "<-")}[kind]
    found = []
    for source, target in (("CPU", "GPU"), ("GPU", "CPU"), ("GPU", "GPU")):
        cells = [
            rate
            for row in COLUMNS
            if row.startswith(source)
            for way in ways
            for column, rate in zip(COLUMNS, table[f"{row} {way}"], strict=True)
            if column.startswith(target) and column != row
        ]
        found.append(sum(cells) / len(cells))
    return tuple(found)


COLUMNS = ("CPU 00", "GPU 00", "GPU 01")


def measured(name: str) -> Any:
    command = [sys.executable, "-m", "tests.emulator.published", name]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def bmasweep() -> dict[int, list[float]]:
    return {int(nbytes): row for nbytes, row in measured("bmasweep").items()}


def test_bmasweep_comes_out_on_mi355x(bmasweep: dict[int, list[float]]) -> None:
    table = {int(words[0]): [float(word) for word in words[1:]] for words in map(str.split, BMASWEEP.split("\n")[1:-1])}
    assert list(bmasweep) == list(table)
    cells = [
        (nbytes, column, published, bmasweep[nbytes][column])
        for nbytes, row in table.items()
        for column, published in enumerate(row)
        if (nbytes, column) != OUTLIER
    ]
    wrong = [cell for cell in cells if abs(cell[3] - cell[2]) > max(0.05 * cell[2], DIGIT)]
    assert len(cells) == 19 * 5 - 1
    assert wrong == []


def test_p2p_comes_out_on_mi210() -> None:
    published: Table = {
        line[:10].strip(): [float(cell.replace("N/A", "nan")) for cell in line[10:].split()]
        for line in P2P.strip().splitlines()
    }
    found: Table = measured("p2p")
    assert found.keys() == published.keys()
    for row, cells in published.items():
        assert found[row] == pytest.approx(cells, rel=0.02, nan_ok=True), row
    for kind, printed in AVERAGES.items():
        assert averages(published, kind) == pytest.approx(printed, abs=DIGIT), "formed as they were"
        assert averages(found, kind) == pytest.approx(printed, rel=0.02), kind


def test_a_batch_is_no_faster_than_its_pieces(bmasweep: dict[int, list[float]]) -> None:
    for nbytes, row in bmasweep.items():
        for batches, batched in zip(BATCHES, row[1:], strict=True):
            if nbytes // batches not in bmasweep:
                continue
            alone = bmasweep[nbytes // batches][0]
            assert batched == pytest.approx(alone, rel=0.10 if nbytes >= 1 << 20 else 0.20), (nbytes, batches)

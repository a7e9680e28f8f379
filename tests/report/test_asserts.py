from __future__ import annotations

import pytest

from pytest_transferbench.measurement import GBps
from pytest_transferbench.report.asserts import explain


@pytest.mark.parametrize(
    ("op", "left", "right", "says"),
    [
        (">", GBps(371.2), 500.0, "371.2 GB/s > 500.0 GB/s"),
        (">=", GBps(371.2), 500, "371.2 GB/s >= 500.0 GB/s"),
        ("<", 400, GBps(371.2), "400.0 GB/s < 371.2 GB/s"),
        ("==", GBps(1), GBps(2), "1.0 GB/s == 2.0 GB/s"),
        (">", GBps(371.21), 371.25, "371.21 GB/s > 371.25 GB/s"),
        ("!=", GBps(1), GBps(1), "1.0 GB/s != 1.0 GB/s"),
    ],
)
def test_bandwidths_are_written_with_their_unit(op: str, left: object, right: object, says: str) -> None:
    assert explain(op, left, right) == [says]


@pytest.mark.parametrize(("left", "right"), [(1.0, 2.0), (GBps(1), "x"), (GBps(1), None), ([GBps(1)], [2.0])])
def test_other_comparisons_are_left_to_pytest(left: object, right: object) -> None:
    assert explain("==", left, right) is None

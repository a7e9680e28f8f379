from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.report.matrix import matrix_lines

ENDS = st.sampled_from(["C0", "G0", "G1", "G2", "G10", "F0"])


def test_rows_are_sources_and_gaps_are_dashes() -> None:
    assert matrix_lines({("G0", "G2"): "371.2", ("G10", "G0"): "CORRUPT", ("C0", "G10"): "50.1"}) == [
        "SRC\\DST      G0      G2     G10",
        "     C0       -       -    50.1",
        "     G0       -   371.2       -",
        "    G10 CORRUPT       -       -",
    ]


@given(st.dictionaries(st.tuples(ENDS, ENDS), st.text("0123456789.", min_size=1, max_size=9), min_size=1))
def test_every_cell_stands_in_its_row_and_column(cells: dict[tuple[str, str], str]) -> None:
    header, *rows = [line.split() for line in matrix_lines(cells)]
    shown = {
        (row[0], column): cell for row in rows for column, cell in zip(header[1:], row[1:], strict=True) if cell != "-"
    }
    assert shown == cells
    assert len({len(line) for line in matrix_lines(cells)}) == 1

"""How long a case takes on an emulated node, as the header says beforehand, against seconds that were taken.

Two cores of an AMD EPYC in a virtual machine, the best of six runs while others used it as well.
"""

from __future__ import annotations

import pytest

from pytest_transferbench.engine import estimate_seconds
from pytest_transferbench.node import HOST, Device, Link, LinkClass, Node
from pytest_transferbench.transfer import Case, parse_transfers, together

MIB = 1 << 20
TAKEN = [
    ("(G0->G1->G1 0 8M)", {}, 0.38),
    ("(G0->G1->G1 0 32M)", {}, 0.81),
    ("(G0->G1->G1 0 128M)", {}, 3.14),
    ("(G0->G1->G1 0 256M)", {}, 4.19),
    ("(G0->G1->G1 0 512M)", {}, 6.27),
    ("(G0->G1->G1 0 16M)", {"rotate_bytes": 0, "sub_iterations": 64}, 4.22),
    ("(G1->G0->G0 8 64M) (G2->G0->G0 8 64M) (G3->G0->G0 8 64M)", {}, 2.86),
    ("(G0->D0->G1 0 1M)", {}, 0.32),
    ("(C0->G0->G0 0 4M)", {}, 0.09),
]


def node(cache: int = 96 * MIB, memory: int = 4 << 30) -> Node:
    devices = tuple(
        Device(index, "Emulated", "gfx1250", f"0000:{index:02x}:00.0", 96, memory, last_level_cache_bytes=cache)
        for index in range(4)
    )
    ends = (HOST, 0, 1, 2, 3)
    links = tuple(Link(a, b, LinkClass.LOCAL if a == b else LinkClass.UALOE) for a in ends for b in ends)
    return Node("rocm", devices, links, emulated="gfx1250-dpx")


def case(text: str, **fields: int) -> Case:
    return Case(together(parse_transfers(text)), samples=1, warmups=1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "fields", "seconds"), TAKEN)
def test_the_estimate_is_near_what_a_case_took(text: str, fields: dict[str, int], seconds: float) -> None:
    estimate = estimate_seconds(case(text, **fields), node())
    assert seconds / 1.5 < estimate < 1.5 * seconds


def test_slices_to_be_filled_count_and_never_more_than_memory_holds() -> None:
    few, many = (estimate_seconds(case("(G0->G1->G1 0 1M)", rotate_bytes=budget), node()) for budget in (0, 1 << 30))
    assert few + 0.5 < many
    assert estimate_seconds(case("(G0->G1->G1 0 1M)", rotate_bytes=1 << 60), node()) < 5
    larger_cache = estimate_seconds(case("(G0->G1->G1 0 1M)"), node(cache=512 * MIB))
    assert larger_cache > estimate_seconds(case("(G0->G1->G1 0 1M)"), node()) + 0.3

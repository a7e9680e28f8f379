"""Where no partition shares a cache with the other end, or only half of one, rotation changes what it must."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.study import SWEPT, UNPROVED, figures, mutated, study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node"),
]


@pytest.mark.parametrize(("model", "gpus"), [("gfx1250-spx", "0,1"), ("gfx1250-dpx", "0,2")])
def test_between_physical_gpus_rotation_changes_nothing(tmp_path: Path, model: str, gpus: str) -> None:
    _, found = study(tmp_path, model, f"--gpus={gpus}", UNPROVED, "-k", "gfx-G0 and not 64x")
    ends = gpus.replace(",", "-G")
    for transfer in (f"{op}-gfx-G{ends}-{mib}M" for op in ("pull", "push") for mib in SWEPT):
        off, on = (figures(found, transfer + end) for end in ("-unrotated", ""))
        for name in ("cold_gbps", "warm_gbps", "gbps"):
            assert on[name] == pytest.approx(off[name], rel=0.005), (transfer, name)


def test_half_the_cache_moves_the_knee(tmp_path: Path) -> None:
    model = mutated(tmp_path, '[device]\nlast_level_cache = "48M"')
    _, found = study(tmp_path, model, "--gpus=0,1", UNPROVED, "-k", "control and pull and (32M or 64M)")
    assert figures(found, "pull-gfx-G0-G1-32M-unrotated")["warm_cold"] >= 2.5
    assert figures(found, "pull-gfx-G0-G1-64M-unrotated")["warm_cold"] <= 1.10

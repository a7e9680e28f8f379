"""The rotation suite on emulated gfx1250 nodes gives the figures TransferBench's users published, from physics alone.

The published cells are those of the change that brought source rotation to TransferBench: gfx1250 in DPX mode, 96 CUs a
partition, cold and warm single copies of one pair, and the figures of one GPU's executor with all its peers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.study import ROOT, SWEPT, UNPROVED, Figures, figures, mutated, study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node"),
]

PUBLISHED = {  # MiB: (off cold, off warm, on cold, on warm), GB/s
    8: (256, 637, 294, 331),
    16: (547, 1159, 550, 622),
    32: (664, 1824, 686, 712),
    64: (925, 3226, 964, 1013),
    128: (1043, 1101, 1053, 1075),
    256: (1164, 1159, 1152, 1176),
    512: (1200, 1199, 1189, 1201),
}
PUBLISHED_PEERS = {  # (op, MiB): (off, on), GB/s
    ("push", 64): (2560, 2615),
    ("push", 256): (2618, 2556),
    ("pull", 64): (815, 816),
    ("pull", 256): (827, 827),
}
STEADY_GBPS = 1270


def verdicts(found: Figures, name: str) -> set[str]:
    return {finding["verdict"] for finding in found[name]["verdicts"]}


@pytest.fixture(scope="module")
def dpx(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Figures]:
    """Two partitions of one GPU, and G0 with all its peers."""
    return study(tmp_path_factory.mktemp("dpx"), "gfx1250-dpx", "--gpus=all")


@pytest.mark.parametrize("mib", PUBLISHED)
def test_single_copies_are_the_published_ones(dpx: tuple[str, Figures], mib: int) -> None:
    off, on = (figures(dpx[1], f"pull-gfx-G0-G1-{mib}M{end}") for end in ("-unrotated", ""))
    got = (off["cold_gbps"], off["warm_gbps"], on["cold_gbps"], on["warm_gbps"])
    assert got == pytest.approx(PUBLISHED[mib], rel=0.08 if mib >= 32 else 0.20)


def test_without_rotation_the_shared_cache_inflates_what_fits_it(dpx: tuple[str, Figures]) -> None:
    ratios = {mib: figures(dpx[1], f"pull-gfx-G0-G1-{mib}M-unrotated")["warm_cold"] for mib in SWEPT}
    for mib, least in ((2, 1.7), (4, 1.8), (8, 1.9), (16, 2.2), (32, 2.5), (64, 2.5)):
        assert ratios[mib] >= least
    for mib in (128, 256, 512):
        assert ratios[mib] <= 1.10
    steady_on = figures(dpx[1], "pull-gfx-G0-G1-512M")["gbps"]
    assert steady_on == pytest.approx(STEADY_GBPS, rel=0.02)
    above = {
        (mib, name)
        for mib in SWEPT
        for name in ("cold_gbps", "warm_gbps", "gbps")
        if figures(dpx[1], f"pull-gfx-G0-G1-{mib}M-unrotated")[name] > STEADY_GBPS
    }
    assert above == {(32, "warm_gbps"), (64, "warm_gbps"), (32, "gbps"), (64, "gbps")}
    impossible = {mib for mib in SWEPT if "IMPOSSIBLE" in verdicts(dpx[1], f"pull-gfx-G0-G1-{mib}M-unrotated")}
    assert impossible == {32, 64}


def test_back_to_back_copies_reach_the_published_peak(dpx: tuple[str, Figures]) -> None:
    off, on = (figures(dpx[1], f"pull-gfx-G0-G1-64M{end}")["gbps"] for end in ("-unrotated", ""))
    assert off == pytest.approx(4763, rel=0.05)
    assert off / on == pytest.approx(4.4, rel=0.05)


def test_with_rotation_nothing_is_inflated(dpx: tuple[str, Figures]) -> None:
    for op in ("pull", "push"):
        for mib in SWEPT:
            name = f"{op}-gfx-G0-G1-{mib}M"
            assert figures(dpx[1], name)["warm_cold"] <= 1.15
            assert verdicts(dpx[1], name) <= {"OK", "NEW"}


def test_a_push_is_never_above_the_steady_figure(dpx: tuple[str, Figures]) -> None:
    for mib, ratio in ((16, 1.23), (64, 1.16), (256, 1.00)):
        off, on = (figures(dpx[1], f"push-gfx-G0-G1-{mib}M{end}") for end in ("-unrotated", ""))
        assert off["warm_cold"] == pytest.approx(ratio, rel=0.10)
        assert 0.97 <= on["warm_cold"] <= 1.03
    for name, measurement in dpx[1].items():
        if name.startswith("push-gfx-G0-G1") and "64x" not in name:
            assert max(measurement["figures"][arm] for arm in ("cold_gbps", "warm_gbps", "gbps")) <= STEADY_GBPS


@pytest.mark.parametrize("mib", [64, 256])
def test_all_peers_together_are_the_published_executor_figures(dpx: tuple[str, Figures], mib: int) -> None:
    got = {
        (op, end): figures(dpx[1], f"{op}-gfx8-{ends}-{mib}M{end}")["gbps"]
        for op, ends in (("pull", "peers-G0"), ("push", "G0-peers"))
        for end in ("-unrotated", "")
    }
    for op in ("pull", "push"):
        assert (got[op, "-unrotated"], got[op, ""]) == pytest.approx(PUBLISHED_PEERS[op, mib], rel=0.05)
        assert got[op, ""] == pytest.approx(got[op, "-unrotated"], rel=0.005)
    for end in ("-unrotated", ""):
        assert 0.31 <= got["pull", end] / got["push", end] <= 0.33


def test_the_summary_sets_both_side_by_side(dpx: tuple[str, Figures]) -> None:
    assert "pull-gfx-G0-G1 (on-die), GB/s (w/c: warm over cold)" in dpx[0]
    assert "64 passes in one launch" in dpx[0]
    assert "off IMPOSSIBLE" in dpx[0]
    assert "they are to be inflated where a cache (96M here) answers what is read again" in dpx[0]
    assert "not judged: " not in dpx[0]


def test_a_slower_link_moves_the_steady_figures(dpx: tuple[str, Figures], tmp_path: Path) -> None:
    model = mutated(tmp_path, "[link.on_die]\nusable_gbps = 1170")
    selected = "pull and (128M or 256M or 512M) and not unrotated"
    _, found = study(tmp_path, model, "--gpus=0,1", UNPROVED, "-k", selected)
    for mib in (128, 256, 512):
        name = f"pull-gfx-G0-G1-{mib}M"
        assert 0.09 <= 1 - figures(found, name)["gbps"] / figures(dpx[1], name)["gbps"] <= 0.10


def cells_in(text: str) -> set[float]:
    """The published cells that ``text`` holds to three digits or more: in GB/s, TB/s or as microseconds of a copy."""
    cells = [(gbps, mib << 20) for mib, row in PUBLISHED.items() for gbps in row]
    cells += [(gbps, 7 * mib << 20) for (_, mib), row in PUBLISHED_PEERS.items() for gbps in row]
    plain = re.sub(r"(?<=\d)[_'](?=\d)", "", text)
    found = set()
    for number in set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", plain)):
        decimals = len(number.partition(".")[2])
        if len(number.replace(".", "").lstrip("0")) < 3:
            continue
        for gbps, nbytes in cells:
            if float(number) in (round(written, decimals) for written in (gbps, gbps / 1e3, nbytes / gbps / 1e3)):
                found.add(gbps)
    return found - {256}  # a power of two is no sign of a table


def test_the_table_is_no_part_of_the_code() -> None:
    """The figures come out of the model's parameters: no file of the package holds three of the published cells."""
    for path in (ROOT / "pytest_transferbench").rglob("*"):
        if path.suffix in (".py", ".toml", ".cpp", ".hpp", ".h"):
            found = cells_in(path.read_text(encoding="utf-8"))
            assert len(found) < 3, (path, found)


@pytest.mark.parametrize(
    "table",
    [
        "[637, 1_159, 1'824]",
        "a = 637\nb = 1159\nc = 1824.0",
        "0.637 1.159 1.82",
        "8M: 13.17 us, 16M: 14.48 us, 32M: 18.4 us",
        "2618 0.827 179.6",
    ],
)
def test_a_table_would_be_found_in_whatever_unit(table: str) -> None:
    assert len(cells_in(table)) >= 3


LEASE = """
from pytest_transferbench.emulator.loader import activate
from pytest_transferbench.engine import Bench
from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import probe_node
from pytest_transferbench.transfer import Case, Transfer

bench = Bench.open(probe_node("emulator", "gfx1250-dpx"), "gfx1250-dpx")
for mib in (4, 256):
    with bench.lease(Case(Transfer.pull(0, 1, mib << 20))) as lease:
        node = activate("gfx1250-dpx")
        before = node.moved_bytes(HOST, 0)
        lease.fill(1)
        bench.device(0).synchronize()
        print(mib, lease.plan.slices, lease.plan.span_bytes, node.moved_bytes(HOST, 0) - before)
bench.close()
"""


def test_slices_are_made_on_the_gpu_and_span_the_budget() -> None:
    """MiB of the Transfer, slices, bytes they span, bytes sent by the host to fill them."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LEASE], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["4 64 268435456 0", "256 1 268435456 0"], done.stderr

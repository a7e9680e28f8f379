"""Every mutation as a user sees it: one failed item, one line with the verdict first, the counts in every report."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from pytest_transferbench.journal import read_journal

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")

RunPytest = Callable[..., pytest.RunResult]

BROKEN_TESTS = """
    import pytest
    from tests.engine import mutants, proof

    CLOCKS = [broken[0] for broken in proof.BROKEN_CLOCKS if broken[1] == "gfx"]

    @pytest.mark.transferbench("(G1->G0->G0 0 256K)")
    @pytest.mark.parametrize("mutant", mutants.ALL)
    def test_data(transfer, transfer_buffers, transferbench, mutant):
        mutant(transfer_buffers)
        transferbench(transfer)

    @pytest.mark.transferbench("(G1->G0->G0 0 256K)")
    @pytest.mark.parametrize("break_clock", CLOCKS)
    def test_clock(transfer, transfer_buffers, transferbench, monkeypatch, break_clock):
        break_clock(transfer_buffers.bench, monkeypatch)
        transferbench(transfer)

    @pytest.mark.transferbench("(G0->G0->G1 0 64M)", "(G1->G0->G0 0 64M)")
    def test_remote_writes(transfer, transfer_buffers, transferbench):
        mutants.RemoteWritesCorrupt(transfer_buffers)
        transferbench(transfer)
"""


EXPECTED = {
    "CopiesNothing": "65536 of 65536 words wrong (262144 bytes), first 0, last 65535, mask 0xffffffff, found: poison ",
    "ReadsTheSliceBefore": "65536 of 65536 words wrong .*, found: slice 1 instead of slice 2 in 65536 words, in cold",
    "LosesTheLastCopy": "65536 of 65536 words wrong .*, found: slice 4 instead of slice 2 in 65536 words, in steady",
    "ReadsTheNextSlice": "65536 of 65536 words wrong .*, found: slice 3 instead of slice 2 in 65536 words, in cold",
    "StaysOnOneSlice": "65536 of 65536 words wrong .*, found: slice 0 instead of slice 2 in 65536 words, in cold",
    "FlipsOneBit": "1 of 65536 words wrong (1 byte), first 1237, last 1237, mask 0x00080000, found: neither poison ",
    "StopsOneWordShort": "1 of 65536 words wrong (4 bytes), first 65535, last 65535, mask 0xffffffff, found: poison ",
    "WritesAByteBehind": "1 word of the guard zones overwritten (1 byte), behind the data: first 65536, last 65536, ",
    "WritesAByteBefore": "1 word of the guard zones overwritten (1 byte), before the data: first -1, last -1, mask ",
    "WritesAByteFarBehind": "1 word of the guard zones overwritten .*, behind the data: first 66036, last 66036, ",
    "WritesAByteFarBefore": "1 word of the guard zones overwritten (1 byte), before the data: first -501, last -501, ",
    "SwapsTwoBlocks": "2048 of 65536 words wrong .*, first 0, last 2047, .* in the wrong place: word 1024 at 0, ",
    "event_clock_stuck": "event clock shows 4470.0 us, kernel clock .* us",
    "stamp_clock_stuck": "event clock shows .* us, kernel clock 0.0 us",
    "stamp_rate_zero": "event clock shows .* us, kernel clock nothing: its rate is 0 Hz",
    "all_rates_zero": "event clock shows .* us, kernel clock nothing: its rate is 0 Hz",
    "push-gfx-G0-G1-64M": "1541905 of 16777216 words wrong (2055873 bytes), first 3086, last 1544990, mask 0x80808080",
}
"""By the end of the item's name, the line it must fail with."""
PUSH = "push-gfx-G0-G1-64M"


def test_every_mutation_fails_its_item_with_one_line(
    pytester: pytest.Pytester, run_elsewhere: RunPytest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    pytester.makepyfile(BROKEN_TESTS)
    few = ("--transfer-samples=1", "--transfer-sub-iterations=3", "--transfer-rotate=1100K")
    result = run_elsewhere("--transfer-emulate=mi300x-8", *few, "--junitxml=out.xml", "--transfer-journal=out.jsonl")
    # The pull that mirrors the corrupt push is the one that passes.
    result.assert_outcomes(failed=len(EXPECTED), passed=1)
    failed = [line for line in result.outlines if line.startswith("FAILED ")]
    assert len(failed) == len(EXPECTED)
    for (name, detail), line in zip(EXPECTED.items(), failed, strict=True):
        verdict = "INVALID" if "clock shows" in detail else "CORRUPT"
        pattern = ".*".join(re.escape(part) for part in detail.split(".*"))
        assert re.search(rf"{name}\] - {verdict}: .*{pattern}", line), line
    found = {item["key"]: item["measurement"] for item in read_journal(pytester.path / "out.jsonl").items}
    (push,) = (measurement for key, measurement in found.items() if key.endswith(PUSH))
    assert [(check["wrong_words"], check["wrong_bytes"]) for check in push["checks"]] == [(1541905, 2055873)]
    (case,) = (case for case in ET.parse(pytester.path / "out.xml").iter("testcase") if PUSH in case.attrib["name"])
    properties = {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
    assert (properties["transfer_wrong_words"], properties["transfer_wrong_bytes"]) == ("1541905", "2055873")

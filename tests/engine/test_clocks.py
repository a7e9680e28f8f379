"""When a sample's clocks are believed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.engine.clocks import Clocks, span_of_stamps


@pytest.mark.parametrize(
    ("event", "kernel", "host"),
    [
        (1e-3, 0.98e-3, 1.02e-3),
        (1e-3, math.nan, math.nan),
        (300e-6, 309e-6, 350e-6),
        (150e-6, 199e-6, 4.47e-3),  # below 200 us the clocks are not compared
    ],
)
def test_clocks_that_agree_are_believed(event: float, kernel: float, host: float) -> None:
    assert Clocks(event, kernel, host).objection() is None


@pytest.mark.parametrize(
    ("event", "kernel", "host", "words"),
    [
        (1e-3, 4.47e-3, 1e-3, "event clock shows 1000.0 us, kernel clock 4470.0 us"),
        (1e-3, 1e-3, 1.5e-3, "event clock shows 1000.0 us, host clock 1500.0 us"),
        (300e-6, 311e-6, 300e-6, "event clock shows 300.0 us, kernel clock 311.0 us"),
        (300e-6, 300e-6, 360e-6, "event clock shows 300.0 us, host clock 360.0 us"),
        (150e-6, 4.47e-3, 4.47e-3, "event clock shows 150.0 us, kernel clock 4470.0 us"),
        (150e-6, 0.0, 160e-6, "event clock shows 150.0 us, kernel clock 0.0 us"),
        (0.0, 1e-3, 1e-3, "event clock shows 0.0 s, host clock 1000.0 us"),
        (-1e-6, 1e-3, 1e-3, "event clock shows -1e-06 s, host clock 1000.0 us"),
        (math.inf, 1e-3, 1e-3, "event clock shows inf s, host clock 1000.0 us"),
    ],
)
def test_clocks_that_differ_are_named(event: float, kernel: float, host: float, words: str) -> None:
    assert Clocks(event, kernel, host).objection() == words


def test_host_work_is_judged_by_the_host_clock() -> None:
    assert Clocks(host=2.5e-3, host_only=True).seconds == 2.5e-3
    assert Clocks(host=2.5e-3, host_only=True).objection() is None
    assert Clocks(host=0.0, host_only=True).objection() is not None


def test_a_device_sample_without_an_event_is_not_judged_by_the_host_clock() -> None:
    assert Clocks(math.nan, 1e-3, 1e-3).objection() == "event clock shows nan s, host clock 1000.0 us"


@given(
    launches=st.integers(1, 5),
    blocks=st.integers(1, 8),
    data=st.data(),
)
def test_span_goes_from_the_first_start_to_the_last_stop(launches: int, blocks: int, data: st.DataObject) -> None:
    ticks = data.draw(st.lists(st.integers(1000, 2000), min_size=launches * blocks, max_size=launches * blocks))
    stamps = np.zeros((launches, blocks, 2), dtype=np.uint64)
    starts = np.array(ticks, dtype=np.uint64).reshape(launches, blocks)
    stamps[:, :, 0] = starts + np.arange(launches, dtype=np.uint64)[:, None] * np.uint64(10_000)
    stamps[:, :, 1] = stamps[:, :, 0] + np.uint64(5000)
    seconds, last, objection = span_of_stamps(stamps, 1e8, 999)
    assert objection is None
    assert last == int(stamps[-1, :, 1].max())
    assert seconds == pytest.approx((last - int(stamps[0, :, 0].min())) / 1e8)


def test_a_block_without_a_fresh_stamp_is_noticed() -> None:
    stamps = np.full((2, 3, 2), 5000, dtype=np.uint64)
    for stale in (0, 4000):
        stamps[1, 2, 0] = stale
        assert span_of_stamps(stamps, 1e8, 4500)[2] == "a block left no stamp, it did not run"


@pytest.mark.parametrize("hz", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_that_is_none_is_refused_not_replaced(hz: float) -> None:
    stamps = np.full((1, 1, 2), 5000, dtype=np.uint64)
    span, _, flaw = span_of_stamps(stamps, hz, 0)
    assert flaw == f"its rate is {hz:g} Hz"
    assert Clocks(178.3e-6, span, 190e-6, kernel_flaw=flaw).objection() == (
        f"event clock shows 178.3 us, kernel clock nothing: its rate is {hz:g} Hz"
    )

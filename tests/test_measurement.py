from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.journal import to_plain
from pytest_transferbench.measurement import Arm, Check, GBps, Measurement
from pytest_transferbench.node import LinkClass
from pytest_transferbench.transfer import Test, parse_transfer, parse_transfers, together

from .judge.measurements import MIB, at_gbps, measured


def test_a_bandwidth_prints_with_its_unit() -> None:
    assert str(GBps(371.24)) == repr(GBps(371.24)) == f"{GBps(371.24)}" == "371.2 GB/s"
    assert f"{GBps(371.24):.2f}" == "371.24"
    assert GBps(371.24) > 360
    assert str(GBps(math.nan)) == "nan GB/s"


def test_the_figures_are_medians_of_their_arms() -> None:
    seconds = (1e-3, 2e-3, 4e-3)
    measurement = measured(arms=(Arm("steady", 4, seconds), Arm("cold", 1, (8e-3,)), Arm("warm", 1, (4e-3,))))
    assert measurement.gbps == pytest.approx(64 * MIB / 2e-3 / 1e9)
    assert measurement.cold_gbps == pytest.approx(64 * MIB / 8e-3 / 1e9)
    assert measurement.warm_gbps == pytest.approx(64 * MIB / 4e-3 / 1e9)
    assert measurement.warm_cold == pytest.approx(2.0)
    assert isinstance(measurement.gbps, GBps)


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=40))
def test_p10_is_the_bandwidth_that_nine_samples_in_ten_reach(seconds: list[float]) -> None:
    measurement = measured(arms=(Arm("steady", 4, tuple(seconds)),))
    assert measurement.p10_gbps == pytest.approx(64 * MIB / np.quantile(seconds, 0.9) / 1e9)
    assert measurement.p10_gbps <= measurement.gbps * (1 + 1e-9)


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=300))
def test_p99_is_the_time_that_one_sample_in_a_hundred_exceeds(seconds: list[float]) -> None:
    measurement = measured(arms=(Arm("steady", 1, tuple(seconds)),))
    assert measurement.p99_seconds == pytest.approx(np.quantile(seconds, 0.99))
    assert measured(arms=(Arm("steady", 1, tuple(seconds[:1])),)).p99_seconds == seconds[0]
    assert measurement.to_json()["figures"]["p99_seconds"] == measurement.p99_seconds


def test_an_arm_that_was_not_measured_has_no_figure() -> None:
    measurement = measured(gbps={})
    assert measurement.arm("cold") is None
    figures = [measurement.gbps, measurement.p10_gbps, measurement.cold_gbps, measurement.warm_cold]
    assert all(map(math.isnan, figures))
    assert math.isnan(measured(arms=(Arm("cold", 1, ()), at_gbps("warm", 3.0))).warm_cold)
    assert math.isnan(measured(arms=(Arm("steady", 1, (0.0,)),)).gbps)


def test_one_sample_is_its_own_p10() -> None:
    measurement = measured(arms=(at_gbps("steady", 300.0, samples=1),))
    assert measurement.p10_gbps == measurement.gbps == pytest.approx(300.0)


def test_wrong_words_and_bytes_count_guards_of_all_checks() -> None:
    checks = (
        Check("destination G0", 100, wrong_words=3, wrong_bytes=7),
        Check("destination G0", 100, guard_words=2, guard_bytes=4),
        Check("checksum", 100),
    )
    assert measured(checks=checks).wrong_words == 5
    assert measured(checks=checks).wrong_bytes == 11
    assert [check.passed for check in checks] == [False, False, True]


def test_the_bandwidth_of_a_test_is_that_of_all_its_transfers() -> None:
    test = Test.pull_from_peers(0, range(4), 64 * MIB, 8)
    arm = Arm("steady", 4, (1e-3, 1e-3))
    measurement = dataclasses.replace(measured(arms=(arm,)), transfer=test)
    assert measurement.nbytes == 64 * MIB
    assert [measurement.gbps, measurement.p10_gbps] == pytest.approx([3 * 64 * MIB / 1e-3 / 1e9] * 2)
    data = json.loads(json.dumps(to_plain(measurement.to_json())))
    assert together(parse_transfers(data["transfer"])) == test
    assert (data["ends"], data["nbytes"], data["total_bytes"]) == (["peers", "G0"], 64 * MIB, 3 * 64 * MIB)
    assert data["figures"]["warm_cold"] is None


def test_a_measurement_crosses_to_another_process_as_plain_data() -> None:
    execnet = pytest.importorskip("execnet", reason="pytest-xdist is not installed")
    measurement: Measurement = measured(link_class=LinkClass.XGMI, context={"launch device": 0})
    data = execnet.loads(execnet.dumps(measurement.to_json()))
    assert parse_transfer(data["transfer"]) == measurement.transfer
    assert data["figures"]["gbps"] == pytest.approx(371.2)
    assert data["figures"]["warm_cold"] == pytest.approx(357 / 354)
    assert data["link_class"] == "xGMI"
    assert data["method"] == measurement.method
    assert len(data["arms"][0]["seconds"]) == 25
    assert json.loads(json.dumps(data))["checks"][0]["what"] == "destination G0"

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import execnet
import numpy as np
import pytest

from pytest_transferbench.measurement import Finding
from pytest_transferbench.node import LinkClass
from pytest_transferbench.report import transport
from tests.judge.measurements import measured

SLOW = Finding("SLOW", "under the floor", fails=True)


def carried(**fields: Any) -> list[Any]:
    return transport.carry([measured(**fields)])


def test_what_is_carried_is_what_xdist_can_carry() -> None:
    made = measured(
        context={"numpy": np.float64(1.5), "count": np.int64(3), "class": LinkClass.XGMI, "array": np.arange(2)},
        link_class=LinkClass.NVLINK,
    )
    data = transport.carry([made])
    assert execnet.loads(execnet.dumps(data)) == data
    assert data[0]["context"] == {"numpy": 1.5, "count": 3, "class": "xGMI", "array": [0, 1]}


def test_figures_that_were_not_measured_are_not_numbers() -> None:
    record = transport.Record(carried(gbps={"steady": 371.2})[0])
    assert math.isnan(record.figure("cold_gbps"))
    assert record.gbps == pytest.approx(371.2)


def test_a_record_knows_its_name_and_verdict() -> None:
    record = transport.Record(carried()[0])
    assert (record.name, record.verdict, record.has_bandwidth) == ("pull-gfx-G1-G0-64M", "NEW", True)
    record = transport.Record(carried(verdicts=(SLOW,))[0])
    assert (record.verdict, record.has_bandwidth) == ("SLOW", True)


@pytest.mark.parametrize("verdict", ["CORRUPT", "DEVICE_ERROR", "TIMEOUT", "INVALID"])
def test_what_failed_to_arrive_or_to_be_measured_has_no_bandwidth(verdict: str) -> None:
    assert not transport.Record(carried(verdicts=(Finding(verdict, "", fails=True),))[0]).has_bandwidth


def test_the_judged_one_of_several_stands_for_the_item() -> None:
    data = carried(judged=False) + carried(judged=False, control=True) + carried(key="suite/the-judged-one")
    found = transport.headline(data)
    assert found is not None
    assert found.name == "the-judged-one"
    assert transport.headline(data[:1]) is None


def test_a_control_stands_for_an_item_that_judges_nothing() -> None:
    found = transport.headline(carried(judged=False) + carried(judged=False, control=True, key="suite/the-control"))
    assert found is not None
    assert found.name == "the-control"


def test_other_peoples_reports_carry_nothing() -> None:
    assert transport.records(SimpleNamespace()) == []
    assert not transport.ends_transfer_item(SimpleNamespace())
    assert transport.ends_transfer_item(SimpleNamespace(transferbench=[]))

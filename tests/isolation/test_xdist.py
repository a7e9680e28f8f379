from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_transferbench.isolation import xdist


def config(**options: Any) -> Any:
    return SimpleNamespace(option=SimpleNamespace(collectonly=False, **options))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 0),
        ({"dist": "no", "tx": []}, 0),
        ({"dist": "no", "tx": ["popen"]}, 0),
        ({"dist": "load", "tx": ["popen"]}, 1),
        ({"dist": "load", "tx": ["popen"] * 3}, 3),
        ({"dist": "load", "tx": ["2*popen", "ssh=host//chdir=a*b"]}, 3),
    ],
)
def test_workers_are_counted_however_they_are_named(options: dict[str, Any], count: int) -> None:
    assert xdist.worker_count(config(**options)) == count
    assert xdist.is_controller(config(**options)) == (count > 0)


def test_collecting_alone_starts_no_workers() -> None:
    asked = config(dist="load", tx=["popen"] * 2)
    asked.option.collectonly = True
    assert xdist.worker_count(asked) == 0


def test_the_users_own_limit_of_restarts_stays() -> None:
    for given, expected in ((None, "100000"), ("0", "0")):
        asked = config(dist="load", tx=["popen"], maxworkerrestart=given)
        xdist.allow_restarts(asked)
        assert asked.option.maxworkerrestart == expected


def test_a_crashed_worker_says_nothing() -> None:
    hooks = xdist.XdistHooks({"node": None})
    hooks.pytest_testnodedown(SimpleNamespace())
    assert (hooks.collected, hooks.error) == (0, None)
    said = {"items": 5, "error": "SRC_ROTATE_BYTES=12Q: bad size '12Q'"}
    hooks.pytest_testnodedown(SimpleNamespace(workeroutput={xdist.INPUT: said}))
    hooks.pytest_testnodedown(SimpleNamespace(workeroutput={}))
    assert (hooks.collected, hooks.error) == (5, said["error"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"numprocesses": 2, "tx": ["popen"] * 2}, "-n2: "),
        ({"numprocesses": None, "tx": ["2*popen", "ssh=host"]}, "--tx=2*popen --tx=ssh=host: "),
    ],
)
def test_a_refusal_names_what_was_given(options: dict[str, Any], says: str) -> None:
    assert str(xdist.refusal(config(dist="load", **options))).startswith(says)

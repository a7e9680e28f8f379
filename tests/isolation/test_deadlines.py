from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pytest_transferbench.isolation.deadlines import (
    BASE_SECONDS,
    FIRST_SECONDS,
    LONGEST_SECONDS,
    Announcements,
    Watchdog,
    deadline_seconds,
)
from pytest_transferbench.transfer import Case, Message, MessageCase, Test, parse_transfer
from tests.plugin.fake_machine import FakeMachine

NODE = FakeMachine().node()


def seconds(size: str, first: bool = False, **settings: int) -> float:
    return deadline_seconds(Case(parse_transfer(f"(G0->G0->G1 0 {size})"), **settings), NODE, first)


def test_more_bytes_have_more_time() -> None:
    small, large = seconds("4K"), seconds("1G")
    assert BASE_SECONDS < small < large
    # 3 arms of 25 samples of 6 copies at a quarter of a GB/s.
    assert large - small == pytest.approx(3 * 25 * 6 * (2**30 - 2**12) / 0.25e9)


def test_more_samples_and_passes_have_more_time() -> None:
    assert seconds("64M") < seconds("64M", samples=50)
    assert seconds("64M") < seconds("64M", sub_iterations=8)


def test_a_search_has_the_time_of_all_it_tries() -> None:
    once, searched = seconds("64M") - BASE_SECONDS, seconds("64M", best=True) - BASE_SECONDS
    assert searched == pytest.approx(24 * once)


def test_all_transfers_of_a_test_have_their_time() -> None:
    one, seven = (
        deadline_seconds(Case(test), None, False)
        for test in (Test.pull_from_peers(0, range(count), 1 << 30) for count in (2, 8))
    )
    assert seven - BASE_SECONDS == pytest.approx(7 * (one - BASE_SECONDS))


def message_seconds(nbytes: str, *, emulated: str | None = None, **settings: float) -> float:
    case = MessageCase(Message.push("ll", 0, 1, nbytes), **settings)  # type: ignore[arg-type]
    return deadline_seconds(case, FakeMachine(emulated=emulated).node(), False) - BASE_SECONDS


def test_a_message_has_the_time_of_every_wait_and_of_every_byte_it_may_send() -> None:
    """Of the trial, and of the timed messages three times."""
    long, short = (message_seconds("8", timeout_seconds=timeout) for timeout in (50.0, 10.0))
    assert long - short == pytest.approx(4 * 40)
    assert short > 4 * 10
    for emulated, rate in ((None, 0.25e9), ("mi300x-8", 2e6)):
        large, small = (message_seconds(nbytes, emulated=emulated, samples=6, warmups=4) for nbytes in ("64M", "1M"))
        assert large - small == pytest.approx(4 * 10 * (63 << 20) / rate)


def test_the_first_item_also_opens_the_runtime() -> None:
    assert seconds("4K", first=True) - seconds("4K") == pytest.approx(FIRST_SECONDS)


@pytest.mark.parametrize(("size", "settings"), [("256M", {"samples": 10**6, "sub_iterations": 10**6}), ("4G", {})])
def test_no_item_has_more_than_a_day(size: str, settings: dict[str, int]) -> None:
    huge = Case(parse_transfer(f"(G0->G0->G1 0 {size})"), **settings)
    largest = Case(parse_transfer("(G0->G0->G1 0 9223372036854775804)"))
    longest = deadline_seconds(largest, NODE, True)
    assert longest == LONGEST_SECONDS == 86_400
    assert deadline_seconds(huge, NODE, False) <= longest
    cached = dataclasses.replace(
        NODE, devices=tuple(dataclasses.replace(device, last_level_cache_bytes=2**63) for device in NODE.devices)
    )
    assert deadline_seconds(Case(parse_transfer("(G0->G0->G1 0 4M)")), cached, False) == longest
    dog = Watchdog()
    dog.arm(longest)
    dog.close()


def test_an_item_nobody_knows_beforehand_has_plenty() -> None:
    assert deadline_seconds(None, None, False) == BASE_SECONDS + FIRST_SECONDS


def test_what_a_worker_announced_is_found_by_its_item(tmp_path: Path) -> None:
    announcements = Announcements(tmp_path / "folder")
    assert announcements.ends_at("t.py::a") is None
    announcements.announce("gw0", "t.py::a", 12.5)
    announcements.announce("gw1", "t.py::b", 13.5)
    (tmp_path / "folder" / "gw2").write_text('["t.py::c", 1')
    assert [announcements.ends_at(f"t.py::{name}") for name in "abc"] == [12.5, 13.5, None]
    announcements.close()
    announcements.close()
    assert not (tmp_path / "folder").exists()


def test_what_cannot_be_written_is_not_announced(tmp_path: Path) -> None:
    Announcements(tmp_path / "not" / "there").announce("gw0", "t.py::a", 12.5)


def test_a_watchdog_needs_no_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fd: int) -> int:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr("os.dup", fails)
    dog = Watchdog()
    dog.arm(3600)
    dog.close()


def test_a_watchdog_can_be_cancelled_without_having_been_armed() -> None:
    dog = Watchdog()
    dog.cancel()
    dog.arm(3600)
    assert dog.armed
    dog.close()
    assert not dog.armed

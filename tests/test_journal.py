from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.journal import Journal, read_journal, to_plain
from pytest_transferbench.measurement import Arm, GBps
from pytest_transferbench.node import Device, Link, LinkClass, Node

from .judge.measurements import measured

NODE = Node("rocm", (Device(0, "GPU", "gfx942", "0000:01:00.0", 304, 2**37),), (Link(0, 0, LinkClass.LOCAL),))
VERSIONS = {"pytest-transferbench": "0.1.0"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "transferbench" / "run.jsonl"


def strictly(line: str) -> Any:
    """Read JSON as a reader in any language does: NaN and Infinity are errors."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(line, parse_constant=refuse)


def write(path: Path, *nodeids: str) -> None:
    with Journal(path, versions=VERSIONS, node=NODE) as journal:
        for nodeid in nodeids:
            journal.record(nodeid=nodeid, outcome="passed", key=f"test_p2p/{nodeid}", measurement=measured().to_json())


def test_a_session_is_a_header_and_a_line_an_item(path: Path) -> None:
    write(path, "a", "b")
    header, *items = map(strictly, path.read_text().splitlines())
    assert (header["type"], header["schema"], header["versions"]) == ("header", 1, VERSIONS)
    assert Node.from_json(header["node"]) == NODE
    assert [(item["type"], item["nodeid"], item["outcome"], item["key"]) for item in items] == [
        ("item", "a", "passed", "test_p2p/a"),
        ("item", "b", "passed", "test_p2p/b"),
    ]
    assert items[0]["measurement"]["figures"]["gbps"] == pytest.approx(371.2)
    assert items[0]["measurement"]["transfer"] == "(G1->G0->G0 0 64M)"
    assert all(isinstance(line["time"], float) for line in (header, *items))


def test_every_line_is_on_disk_before_the_next_item(path: Path) -> None:
    journal = Journal(path, versions=VERSIONS, node=None)
    for count in range(3):
        assert len(read_journal(path).items) == count
        assert path.read_bytes().endswith(b"\n")
        journal.record(nodeid=f"item {count}", outcome="failed")
    journal.close()
    journal.close()


def test_every_line_is_forced_to_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr("os.fsync", lambda _descriptor: sizes.append(path.stat().st_size))
    write(path, "a")
    assert len(sizes) == 2
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == path.stat().st_size


def test_an_item_without_a_measurement_is_kept(path: Path) -> None:
    with Journal(path, versions={}, node=None) as journal:
        journal.record(nodeid="a", outcome="skipped")
    (session,) = read_journal(path).sessions
    assert session.header["node"] is None
    assert [(item["outcome"], item["key"], item["measurement"]) for item in session.items] == [("skipped", None, None)]


def test_nan_and_infinity_become_null(path: Path) -> None:
    arms = (Arm("steady", 1, (math.nan, math.inf, -math.inf, 1.0)),)
    with Journal(path, versions=VERSIONS, node=NODE) as journal:
        journal.record(nodeid="a", outcome="failed", measurement=measured(arms=arms).to_json())
    lines = [strictly(line) for line in path.read_text().splitlines()]
    assert lines[1]["measurement"]["arms"][0]["seconds"] == [None, None, None, 1.0]
    assert lines[1]["measurement"]["figures"]["cold_gbps"] is None
    assert lines[1]["measurement"]["wall_seconds"] is None


def test_sessions_in_one_file_stay_apart(path: Path) -> None:
    write(path, "a")
    write(path, "b", "c")
    contents = read_journal(path)
    assert [[item["nodeid"] for item in session.items] for session in contents.sessions] == [["a"], ["b", "c"]]
    assert [item["nodeid"] for item in contents.items] == ["a", "b", "c"]
    assert contents.problems == ()


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_a_last_line_cut_off_is_left_out_and_named(path: Path, cut: int) -> None:
    write(path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole[: -1 - cut])
    contents = read_journal(path)
    assert [item["nodeid"] for item in contents.items] == ["a"]
    assert contents.problems == ("run.jsonl line 3 (the last line, cut off): not JSON; left out",)


def test_a_last_line_that_only_lacks_its_end_is_kept(path: Path) -> None:
    write(path, "a")
    path.write_bytes(path.read_bytes()[:-1])
    assert [item["nodeid"] for item in read_journal(path).items] == ["a"]
    assert read_journal(path).problems == ()


def test_a_new_session_does_not_join_a_line_that_was_cut_off(path: Path) -> None:
    write(path, "a", "b")
    path.write_bytes(path.read_bytes()[:-50])
    write(path, "c")
    contents = read_journal(path)
    assert [[item["nodeid"] for item in session.items] for session in contents.sessions] == [["a"], ["c"]]
    assert contents.problems == ("run.jsonl line 3: not JSON; left out",)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[1]", "no journal line"),
        (b'{"type": "other"}', "no journal line"),
        (b'{"type": "item", "schema": 2}', "schema 2, this version reads 1"),
        (b"\xff\xfe", "not JSON"),
        (b"\x00", "not JSON"),
    ],
)
def test_a_strange_line_is_left_out_and_named(path: Path, line: bytes, why: str) -> None:
    write(path, "a")
    path.write_bytes(path.read_bytes() + line + b"\n")
    contents = read_journal(path)
    assert len(contents.items) == 1
    assert contents.problems == (f"run.jsonl line 3: {why}; left out",)


def test_an_item_before_any_header_is_left_out_and_named(path: Path) -> None:
    write(path, "a")
    header, item = path.read_text().splitlines(keepends=True)
    path.write_text(item + header)
    contents = read_journal(path)
    assert contents.items == ()
    assert contents.problems == ("run.jsonl line 1: an item before any header; left out",)


def test_an_empty_file_holds_nothing(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert read_journal(path).sessions == ()
    write(path, "a")
    assert path.read_bytes().startswith(b"{")
    assert len(read_journal(path).items) == 1


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Is a directory"):
        Journal(tmp_path, versions={}, node=None)


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (GBps(371.25), 371.25),
        (GBps(math.nan), None),
        (LinkClass.XGMI, "xGMI"),
        (Colour.RED, 1),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.uint32(7), 7),
        (np.bool_(True), True),
        (np.array([1.5, math.inf]), [1.5, None]),
        (True, True),
        (Path("/a/b"), "/a/b"),
        ({1: (2, {"x": math.inf})}, {"1": [2, {"x": None}]}),
        (frozenset({3}), [3]),
        (b"x", "b'x'"),
    ],
)
def test_what_becomes_of_values(value: object, plain: object) -> None:
    result = to_plain(value)
    assert result == plain
    assert type(result) is type(plain)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
        max_leaves=8,
    )
)
def test_everything_plain_is_strict_json(value: object) -> None:
    plain = to_plain(value)
    assert strictly(json.dumps(plain, allow_nan=False)) == plain
    assert "\n" not in json.dumps(plain)

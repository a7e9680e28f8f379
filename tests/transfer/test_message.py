"""Protocols and Messages: geometry by properties, names, and one-line refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.transfer import (
    LL,
    PROTOCOLS,
    Memory,
    Message,
    MessageCase,
    MessageMethod,
    Protocol,
    protocols,
)
from tests.refusals import refusal

PROTOCOL, BYTES = st.sampled_from(PROTOCOLS), st.integers(1, 2**40)


def test_there_are_ten() -> None:
    names = [protocol.name for protocol in PROTOCOLS]
    assert names[:4] == ["ll", "ll64-sc", "ll64-sc+wb", "ll64-tf"]
    assert len(set(names)) == 10


@pytest.mark.parametrize(
    ("name", "data_bytes", "efficiency"),
    [("ll", 8, 0.5), ("ll64-sc", 56, 0.875), ("ll128-tf", 120, 0.9375), ("ll256-sc+wb", 248, 0.96875)],
)
def test_the_seeds_efficiencies(name: str, data_bytes: int, efficiency: float) -> None:
    (protocol,) = protocols(name)
    assert (protocol.data_bytes, protocol.wire_efficiency) == (data_bytes, efficiency)


def test_the_seeds_row() -> None:
    (protocol,) = protocols("ll128-sc")
    assert protocol.title == "LL128-sc"
    assert (protocol.lines(16 << 20), protocol.blocks(16 << 20, 64)) == (139811, 64)


@pytest.mark.parametrize(
    ("name", "nbytes", "blocks"),
    [
        *[("ll", 256 * 8 + 1, 1), ("ll", 512 * 8 - 8, 1), ("ll", 512 * 8, 2), ("ll", 64 << 10, 32)],
        *[("ll64-tf", 64 << 10, 36), ("ll128-sc", 31 * 120, 1), ("ll128-sc", 32 * 120, 2), ("ll128-sc", 64 << 10, 34)],
        ("ll256-sc+wb", 64 << 10, 33),
    ],
)
def test_a_block_has_whole_turns_as_in_the_seeds_tool(name: str, nbytes: int, blocks: int) -> None:
    """Rounded down: a turn that is not full is another turn of a block there is."""
    assert protocols(name)[0].blocks(nbytes, 64) == blocks


@given(PROTOCOL, BYTES)
def test_lines_hold_the_message_and_no_line_is_empty(protocol: Protocol, nbytes: int) -> None:
    lines = protocol.lines(nbytes)
    assert (lines - 1) * protocol.data_bytes < nbytes <= lines * protocol.data_bytes


@given(PROTOCOL, BYTES, st.integers(1, 1000))
def test_blocks_grow_with_the_message_up_to_the_cap(protocol: Protocol, nbytes: int, most: int) -> None:
    blocks = protocol.blocks(nbytes, most)
    assert 1 <= blocks <= most
    assert protocol.blocks(nbytes + 1, most) >= blocks
    assert blocks == 1 or blocks <= protocol.lines(nbytes)


@pytest.mark.parametrize(("text", "count"), [("all", 10), ("ll", 1), ("LL128", 3), ("ll64-tf, ll256-sc+wb", 2)])
def test_lists_of_protocols(text: str, count: int) -> None:
    assert len(protocols(text)) == count


@pytest.mark.parametrize("text", ["", "ll512-sc", "ll128-xx", "sc", "ll,ll", "ll64,ll64-sc", "ll128-", "-sc"])
def test_names_of_none_and_repeated_ones_are_refused(text: str) -> None:
    said = refusal(protocols, text)
    assert "use all, ll, or" in said or "give every one once" in said


def test_names_and_notation() -> None:
    message = Message.push("ll128-sc+wb", 0, "G1", "16M")
    assert message.case_name() == "push-ll128-sc+wb-G0-G1-16M"
    assert message.case_name("mine") == "push-ll128-sc+wb-G0-G1-16M-mine"
    assert message.notation() == "(G0->G1 ll128-sc+wb 16M)"
    assert repr(message) == "<Message (G0->G1 ll128-sc+wb 16M)>"
    lap = Message.ping_pong(1, 0)
    assert (lap.case_name(), lap.notation(), lap.op) == ("pingpong-ll-G1-G0-8", "(G1<->G0 ll 8)", "pingpong")
    assert Message.push(LL, 2, 2, 8).loopback


@given(PROTOCOL, st.integers(0, 7), st.integers(0, 7), st.integers(1, 2**31))
def test_messages_that_differ_have_names_that_differ(protocol: Protocol, one: int, other: int, nbytes: int) -> None:
    message = Message.push(protocol, one, other, nbytes)
    others = [
        Message.push(protocol, other, one, nbytes) if one != other else None,
        Message.push(protocol, one, other, nbytes + 1),
        *(Message.push(each, one, other, nbytes) for each in PROTOCOLS if each != protocol),
    ]
    assert message.case_name() not in [each.case_name() for each in others if each]


REFUSED: list[tuple[Any, str]] = [
    (lambda: Message.push("ll", "C0", 1, 8), "bad end C0 of message C0->G1"),
    (lambda: Message.push("ll", 0, "F1", 8), "bad end F1 of message G0->F1"),
    (lambda: Message.push("ll", 0, 1, 0), "bad size 0 of message G0->G1: use 1 to "),
    (lambda: Message.push("ll", 0, 1, 2**70), f"bad size {2**70} of message G0->G1: use 1 to "),
    (lambda: Message("ll", Memory("G", 0), Memory("G", 1), 8), "bad protocol 'll' of message G0->G1: use Message.push"),  # type: ignore[arg-type]
    (
        lambda: Message(Protocol("ll512-sc", 512, "drained"), Memory("G", 0), Memory("G", 1), 8),
        "bad protocol Protocol(name='ll512-sc'",
    ),
    (lambda: MessageCase(Message.ping_pong(0, 1), timeout_seconds="30"), "bad timeout_seconds '30'"),  # type: ignore[arg-type]
    (lambda: MessageCase(Message.ping_pong(0, 1), timeout_seconds=None), "bad timeout_seconds None"),  # type: ignore[arg-type]
    (lambda: MessageCase(Message.ping_pong(0, 1), timeout_seconds=1e300), "bad timeout_seconds 1e+300"),
    (lambda: Message.push("ll", 0, 1, -8), "bad size -8 of message"),
    (lambda: Message.push("ll", 0, 1, "1e3"), "bad size '1e3'"),
    (lambda: Message.push("ll128", 0, 1, 8), "'ll128' stands for 3 protocols"),
    (lambda: Message(LL, Memory("G", 0), Memory("G", 1), 9, round_trip=True), "bad round trip of 9 bytes by ll"),
    (lambda: Message(PROTOCOLS[1], Memory("G", 0), Memory("G", 1), 8, round_trip=True), "bad round trip of 8 bytes by"),
    (lambda: MessageCase(Message.ping_pong(0, 1), samples=0), "bad samples 0"),
    (lambda: MessageCase(Message.ping_pong(0, 1), warmups=-1), "bad warmups -1"),
    (lambda: MessageCase(Message.ping_pong(0, 1), most_blocks=0), "bad most_blocks 0"),
    (lambda: MessageCase(Message.ping_pong(0, 1), timeout_seconds=0), "bad timeout_seconds 0"),
    (lambda: MessageCase(Message.ping_pong(0, 1), timeout_seconds=float("nan")), "bad timeout_seconds nan"),
    (lambda: MessageCase(Message.ping_pong(0, 1), ring_kind="H"), "bad ring_kind 'H'"),
    (lambda: MessageCase(Message.ping_pong(0, 1), validate="now"), "bad validate 'now'"),
    (lambda: MessageCase(Message.ping_pong(0, 1), floor_gbps=-1), "bad floor_gbps -1"),
    (lambda: MessageCase(Message.ping_pong(0, 1), variant="a b"), "bad variant 'a b'"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_cannot_be_sent_is_refused_in_one_line(make: Any, says: str) -> None:
    assert refusal(make).startswith(says)


def test_a_method_is_rebuilt_and_tells_what_differs() -> None:
    method = MessageMethod(
        protocol="ll",
        samples=100,
        warmups=10,
        lines=1,
        blocks=1,
        block_threads=256,
        ring_kind="U",
        hashed=False,
        link_class="xGMI",
    )
    again = MessageMethod.from_json(method.to_json())
    assert (again, again.digest()) == (method, method.digest())
    other = MessageMethod.from_json({**method.to_json(), "hashed": True})
    assert other.digest() != method.digest()
    assert method.differences(other) == ("hashed False -> True",)

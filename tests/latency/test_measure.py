"""Messages on the emulated node: what is whole passes, what is broken is caught, counted and named."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.latency.ring import Launch, Ring
from pytest_transferbench.measurement import Finding
from pytest_transferbench.transfer import LL, PROTOCOLS, Message, Protocol, protocols
from tests.latency import proof

MIB = 2**20
ONE_OF_EACH_KIND = protocols("ll,ll64-sc,ll128-sc+wb,ll256-tf")
EVERY_SIZE = [(protocol, nbytes) for protocol in PROTOCOLS for nbytes in proof.sizes_around_a_line(protocol)]


def size_id(value: Protocol | int) -> str:
    return value.name if isinstance(value, Protocol) else str(value)


@pytest.mark.parametrize(("protocol", "nbytes"), EVERY_SIZE, ids=size_id)
def test_every_size_around_a_line_is_whole(bench: Bench, protocol: Protocol, nbytes: int) -> None:
    proof.assert_whole(bench, proof.message_case(bench, protocol, nbytes, samples=1, warmups=0))


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=size_id)
def test_many_blocks_are_whole_and_every_run_gives_the_same_figure(bench: Bench, protocol: Protocol) -> None:
    case = proof.message_case(bench, protocol, MIB, samples=1, warmups=1)
    first, second = proof.assert_whole(bench, case), proof.assert_whole(bench, case)
    # Stamps are whole ticks of 10 ns, counted from when the node was opened.
    assert first.seconds == pytest.approx(second.seconds, abs=11e-9)
    assert first.method["blocks"] == 64


def test_the_seeds_row(bench: Bench) -> None:
    """RCCL's llx_latency_bench on MI300X: LL128-sc, 16 MiB, 139811 lines by 64 blocks, 44.426 GB/s."""
    measurement = proof.assert_whole(bench, proof.message_case(bench, "ll128-sc", 16 * MIB, samples=1, warmups=0))
    assert (measurement.method["lines"], measurement.method["blocks"]) == (139811, 64)
    assert measurement.gbps == pytest.approx(44.4, rel=0.02)


def test_what_goes_over_the_wire_is_whole_lines(bench: Bench) -> None:
    measurement = proof.assert_whole(bench, proof.message_case(bench, "ll128-sc", 121))
    assert measurement.context["wire_efficiency"] == 121 / 256
    assert measurement.context["wire_gbps"] == pytest.approx(256 / measurement.seconds / 1e9)
    assert not {"wire_efficiency", "wire_gbps"} & proof.assert_whole(bench, proof.ping_pong_case(bench)).context.keys()


def test_time_grows_with_what_an_order_waits_for(bench: Bench) -> None:
    seconds = {
        protocol.name: proof.assert_whole(bench, proof.message_case(bench, protocol, 8)).seconds
        for protocol in PROTOCOLS
    }
    assert seconds["ll"] < seconds["ll128-sc"] < seconds["ll128-sc+wb"]
    assert seconds["ll"] < seconds["ll128-tf"]


def test_a_ping_pong_is_half_a_lap(bench: Bench) -> None:
    measurement = proof.assert_whole(bench, proof.ping_pong_case(bench))
    one_way = proof.assert_whole(bench, proof.message_case(bench, LL, 8))
    assert measurement.op == "pingpong"
    # A message of one line and its ACK go the same way to and fro.
    assert 2 * measurement.seconds == pytest.approx(one_way.seconds, rel=0.01)


def test_a_loopback_within_one_gpu(bench: Bench) -> None:
    case = dataclasses.replace(proof.message_case(bench, LL, 8), transfer=Message.push("ll256-tf", 1, 1, 4096))
    assert proof.assert_whole(bench, case).link_class == "local"


@pytest.mark.parametrize("ring_kind", ["U", "F", "G"])
def test_every_memory_a_ring_may_lie_in(bench: Bench, ring_kind: str) -> None:
    measurement = proof.assert_whole(bench, proof.message_case(bench, "ll64-sc", 1024, ring_kind=ring_kind))
    assert measurement.method["ring_kind"] == ring_kind


def test_5000_iterations_are_no_limit(bench: Bench) -> None:
    proof.assert_whole(bench, proof.message_case(bench, LL, 8, samples=5000))


@pytest.mark.parametrize(("validate", "checks"), [("end", 2), ("each", 1), ("off", 0)])
def test_what_is_compared_is_what_was_asked_for(bench: Bench, validate: str, checks: int) -> None:
    measurement = proof.assert_whole(bench, proof.message_case(bench, "ll128-tf", 4096, validate=validate))
    assert len(measurement.checks) == checks
    assert measurement.method["hashed"] is (validate == "each")


@pytest.mark.parametrize(("broken", "said"), proof.LOST, ids=[str(broken) for broken, _ in proof.LOST])
def test_what_is_lost_is_a_timeout_that_names_it(bench: Bench, broken: proof.Broken, said: str) -> None:
    proof.assert_timeout(bench, broken, said)


@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=size_id)
def test_a_flipped_word_is_corrupt_with_its_count(bench: Bench, protocol: Protocol) -> None:
    proof.assert_flipped_word_is_counted(bench, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=size_id)
def test_a_word_flipped_while_time_counts_is_corrupt_with_its_count(bench: Bench, protocol: Protocol) -> None:
    proof.assert_flipped_timed_word_is_counted(bench, protocol)


@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=size_id)
def test_words_swapped_while_time_counts_are_corrupt(bench: Bench, protocol: Protocol) -> None:
    proof.assert_swapped_timed_words_are_counted(bench, protocol)


@pytest.mark.parametrize("protocol", ONE_OF_EACH_KIND, ids=size_id)
def test_a_word_that_nobody_took_is_noticed(bench: Bench, protocol: Protocol) -> None:
    proof.assert_word_left_out_is_noticed(bench, protocol)


def test_what_comes_back_wrong_is_counted(bench: Bench) -> None:
    proof.assert_wrong_lap_is_counted(bench)


def test_what_comes_back_is_what_was_sent(bench: Bench) -> None:
    proof.assert_answer_made_up_is_wrong(bench)


def test_a_lap_that_nobody_compared_is_noticed(bench: Bench) -> None:
    proof.assert_lap_left_out_is_noticed(bench)


def test_words_are_counted_where_every_iteration_is_compared(bench: Bench) -> None:
    broken = dataclasses.replace(proof.WORD_FLIPPED, name="word_flipped_each")
    measurement = proof.measure(bench, proof.message_case(bench, LL, 4096, validate="each"), broken.ring)
    (check,) = measurement.checks
    assert check.wrong_words == 2 * 6  # two halves in each of two warm-ups and four timed messages


@pytest.mark.parametrize("iterations", [1, 3, 100])
@pytest.mark.parametrize("objections", [0, 1, 2, 3])
def test_clocks_that_disagree_are_tried_again_however_few_the_iterations(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, iterations: int, objections: int
) -> None:
    launches = []

    def objection(run: object, launch: Launch) -> str | None:
        launches.append(launch)
        return f"reason {len(launches)}" if len(launches) <= objections else None

    monkeypatch.setattr("pytest_transferbench.latency.run._Run._objection", objection)
    measurement = proof.measure(bench, proof.message_case(bench, LL, 8, samples=iterations))
    assert len(launches) == min(objections + 1, 3)
    assert measurement.warnings == tuple(
        f"the timed messages were sent again: reason {number + 1}" for number in range(min(objections, 2))
    )
    if objections < 3:
        assert proof.verdict(measurement).verdict == "NEW"
        assert len(measurement.arms[0].seconds) == iterations
    else:
        assert proof.verdict(measurement) == Finding("INVALID", "reason 3, in the last of 3 tries", fails=True)


@pytest.mark.parametrize("hz", [0.0, float("nan")])
def test_a_clock_without_a_rate_is_invalid_and_both_are_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, hz: float
) -> None:
    case = proof.message_case(bench, LL, 8)
    proof.assert_whole(bench, case)  # what the engine asks of the clocks once is known by now
    monkeypatch.setattr(bench.runtime, "stamp_hz", lambda device: hz)
    finding = proof.verdict(proof.measure(bench, case))
    assert finding.verdict == "INVALID"
    assert "event clock shows" in finding.detail
    assert f"kernel clock nothing: its rate is {hz:g} Hz" in finding.detail


@pytest.mark.parametrize("at", [2**32, 2**33])
@pytest.mark.parametrize("before", [0, 1, 5, 6, 7])
def test_no_flag_looks_like_a_ring_of_zeros_and_none_wraps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: int, before: int
) -> None:
    """The first of six timed flags would be so much before the one whose low half is 0, or that one."""
    with bench.borrow(proof.message_case(bench, LL, 1024), Ring) as ring:
        monkeypatch.setattr(bench, "_nonce", at - before - 1)  # the next one is one more
        launch = ring.send(6, hashed=True)
    assert (launch.receiver.given_up, launch.receiver.wrong_words) == (None, 0)
    low = launch.first_flag % 2**32
    assert 0 < low <= 2**32 - 6
    assert (launch.first_flag == at - before) is (before in (6, 7))


def test_no_flag_is_used_twice(bench: Bench) -> None:
    with bench.borrow(proof.message_case(bench, LL, 8), Ring) as ring:
        first, second = ring.send(6, hashed=True), ring.send(6, hashed=False)
    assert second.first_flag >= first.first_flag + 6


def test_a_ring_is_empty_when_it_is_used_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where flags would come again: the lines of the launch before must not be taken for new ones."""
    with bench.borrow(proof.message_case(bench, LL, 1024), Ring) as ring:
        monkeypatch.setattr(ring, "_next_flags", lambda count: 77)
        ring.send(1, hashed=True)
        launch = ring.send(1, hashed=False)  # another payload
    assert launch.receiver.wrong_words == 0


def test_nothing_is_held_afterwards(bench: Bench) -> None:
    free = [bench.runtime.free_bytes(index) for index in proof.ends(bench)]
    proof.assert_whole(bench, proof.message_case(bench, "ll256-sc", MIB, samples=1))
    bench.arena.clear()
    after = [bench.runtime.free_bytes(index) for index in proof.ends(bench)]
    assert all(now >= before for now, before in zip(after, free, strict=True))

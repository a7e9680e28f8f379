"""What a launch tells becomes samples, or the reason why it cannot be believed: with launches told here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from pytest_transferbench.engine import Bench
from pytest_transferbench.engine.bench import ClockFacts
from pytest_transferbench.latency.ring import Launch, Ring
from pytest_transferbench.measurement import Finding
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.transfer import LL, Memory, MessageCase
from tests.latency import proof

US = 1e-6
WARMUPS = 2


def told(change: Callable[[Launch], Launch]) -> type[Ring]:
    """A ring whose launches are told otherwise."""

    class Told(Ring):
        def _run(self, *arguments: Any) -> Launch:
            return change(super()._run(*arguments))

    return Told


def lasting(bench: Bench, seconds: list[float], event_seconds: float = 0.0) -> type[Ring]:
    """A ring whose timed iterations, warm-ups first, last so long, and as long by events where nothing else is said."""
    hz = bench.runtime.stamp_hz(bench.node.devices[0].index)
    ticks = [round(each * hz) for each in accumulate(seconds, initial=US)]

    def change(launch: Launch) -> Launch:
        if len(launch.ticks) != len(ticks):  # the trial
            return launch
        return dataclasses.replace(
            launch, ticks=np.array(ticks, dtype=np.uint64), event_seconds=event_seconds or sum(seconds)
        )

    return told(change)


def case_of(bench: Bench, op: str, samples: int) -> MessageCase:
    if op == "pingpong":
        return proof.ping_pong_case(bench, samples=samples, warmups=WARMUPS)
    return proof.message_case(bench, LL, 8, samples=samples, warmups=WARMUPS)


@pytest.mark.parametrize(("op", "share"), [("push", 1), ("pingpong", 2)])
def test_samples_are_the_iterations_behind_the_warm_ups_in_order(bench: Bench, op: str, share: int) -> None:
    timed = [4 * US, 6 * US, 2 * US]
    ring = lasting(bench, [9 * US, 8 * US, *timed])
    measurement = proof.measure(bench, case_of(bench, op, len(timed)), ring)
    assert measurement.arms[0].seconds == pytest.approx([each / share for each in timed])
    assert measurement.seconds == pytest.approx(4 * US / share)


@pytest.mark.parametrize(
    "seconds",
    [[US, US, 0.0, US, US], [US, US, US, US, 0.0], [0.0, US, US, US, US], [US, 2 * US, -US, US, US]],
    ids=["twice", "twice at the end", "twice at the start", "back"],
)
def test_an_iteration_without_a_stamp_of_its_own_is_invalid(bench: Bench, seconds: list[float]) -> None:
    finding = proof.verdict(proof.measure(bench, case_of(bench, "push", 3), lasting(bench, seconds, 5 * US)))
    assert finding.verdict == "INVALID"
    assert "kernel clock nothing: an iteration left no stamp of its own" in finding.detail


@pytest.mark.parametrize("missing", [0, 3, 5])
def test_a_stamp_that_is_missing_is_invalid(bench: Bench, missing: int) -> None:
    def change(launch: Launch) -> Launch:
        ticks = launch.ticks.copy()
        if len(ticks) == 6:
            ticks[missing] = 0
        return dataclasses.replace(launch, ticks=ticks)

    finding = proof.verdict(proof.measure(bench, case_of(bench, "push", 3), told(change)))
    assert finding.verdict == "INVALID"
    assert "an iteration left no stamp of its own" in finding.detail


@pytest.mark.parametrize(("launch_us", "verdict"), [(0, "INVALID"), (30, "NEW")])
def test_events_may_see_what_a_launch_takes_besides(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, launch_us: int, verdict: str
) -> None:
    monkeypatch.setattr(bench, "clock_facts", lambda index: ClockFacts(0.0, launch_us * US, 0.0))
    ring = lasting(bench, [60 * US] * 5, event_seconds=330 * US)
    assert proof.verdict(proof.measure(bench, case_of(bench, "push", 3), ring)).verdict == verdict


def test_a_gate_that_ran_into_its_deadline_is_invalid(bench: Bench) -> None:
    ring = told(lambda launch: dataclasses.replace(launch, gate_timed_out=True))
    finding = proof.verdict(proof.measure(bench, case_of(bench, "push", 3), ring))
    assert finding.verdict == "INVALID"
    assert finding.detail.startswith("the start gate ran into its deadline before everything was queued")


@pytest.mark.parametrize("hz", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("end", [0, 1])
def test_a_deadline_clock_without_a_rate_is_invalid(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, hz: float, end: int
) -> None:
    """No wait would end, or every one at once: nothing is launched."""
    gpu = proof.ends(bench)[end]
    monkeypatch.setattr(bench.runtime, "deadline_hz", lambda index: hz if index == gpu else 1e8)
    monkeypatch.setattr(bench.runtime, "launch", lambda *_: pytest.fail("launched"))
    found = proof.verdict(proof.measure(bench, case_of(bench, "push", 3)))
    said = f"the clock that ends waits on GPU {gpu} has a rate of {hz:g} Hz: nothing was sent"
    assert found == Finding("INVALID", said, fails=True)


@pytest.mark.parametrize("ends_with", [KeyboardInterrupt, RuntimeFault("hipModuleLaunchKernel", 0, "broken")])
def test_a_receiver_is_waited_for_when_the_sender_never_comes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ends_with: Any
) -> None:
    """Its memory must not go while it polls; by itself it gives up."""
    case = proof.message_case(bench, LL, 8, timeout_seconds=0.1)
    with bench.borrow(case, Ring) as ring:
        ring.send(1, hashed=False)
        launch, synchronized = bench.runtime.launch, []

        def fail(kernel: Any, blocks: int, threads: int, args: Any, stream: Any) -> None:
            if kernel.name == "tb_ll_send" and args[-1]:
                synchronized.clear()
                raise ends_with
            launch(kernel, blocks, threads, args, stream)

        monkeypatch.setattr(bench.runtime, "launch", fail)
        synchronize = bench.runtime.synchronize
        monkeypatch.setattr(
            bench.runtime, "synchronize", lambda stream: (synchronized.append(stream), synchronize(stream))
        )
        with pytest.raises(KeyboardInterrupt if ends_with is KeyboardInterrupt else RuntimeFault):
            ring.send(1, hashed=False)
        assert ring.receiver.stream in synchronized
        monkeypatch.undo()


def test_each_side_gives_up_by_its_own_clock(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    source, destination = proof.ends(bench)
    rates = {source: 3e8, destination: 5e8}
    ticks = {}
    launch = bench.runtime.launch

    def see(kernel: Any, blocks: int, threads: int, args: Any, stream: Any) -> None:
        if kernel.name.startswith("tb_ll") and args[-1]:
            ticks[kernel.device] = int(args[-1])
        launch(kernel, blocks, threads, args, stream)

    monkeypatch.setattr(bench.runtime, "deadline_hz", rates.__getitem__)
    monkeypatch.setattr(bench.runtime, "launch", see)
    proof.assert_whole(bench, proof.message_case(bench, LL, 8, timeout_seconds=7.0))
    assert ticks == {device: 7 * hz for device, hz in rates.items()}


@pytest.mark.parametrize(("asked", "kind"), [("", "U"), ("F", "F"), ("G", "G")])
def test_ring_and_ack_lie_in_the_memory_of_who_polls_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, asked: str, kind: str
) -> None:
    source, destination = proof.ends(bench)
    taken = {}
    take = bench.arena.take

    def see(name: str, memory: Memory, nbytes: int) -> Any:
        taken[name] = memory
        return take(name, memory, nbytes)

    monkeypatch.setattr(bench.arena, "take", see)
    proof.assert_whole(bench, proof.message_case(bench, LL, 8, ring_kind=asked))
    assert taken == {
        "ring": Memory(kind, destination),
        "ack": Memory(kind, source),
        "sender": Memory("G", source),
        "receiver": Memory("G", destination),
    }


def test_a_gpu_that_was_slowed_down_is_invalid(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.telemetry, "snapshot", lambda owners: {"1": {"slowdowns": ("thermal",)}})
    found = proof.verdict(proof.measure(bench, case_of(bench, "push", 3)))
    assert found == Finding("INVALID", "GPU 1 was throttled: thermal", fails=True)


def test_what_links_counted_stands_beside_all_lines_that_were_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(proof.ends(bench)[0])
    readings = iter([{"link_sent_kib": 10, "link_received_kib": 20}, {"link_sent_kib": 14, "link_received_kib": 21}])
    monkeypatch.setattr(bench.telemetry, "snapshot", lambda owners: {source: next(readings)})
    measurement = proof.assert_whole(bench, proof.message_case(bench, "ll128-sc", 121))
    # Two lines a message: two of the trial, two warm-ups and four samples.
    assert measurement.context["link_bytes"] == {"sent": 4096, "received": 1024, "claimed": 8 * 256}

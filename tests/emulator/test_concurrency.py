"""What is under way at the same time: links, memories and engines are shared, and hardware queues, exactly.

Every figure is the fluid answer worked out by hand from the model's parameters.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.emulator.conftest import REPOSITORY
from tests.emulator.gate import GATE, Gate
from tests.emulator.hip import HOST, NO_CU, NOT_READY, SUCCESS, Hip
from tests.emulator.lanes import Copy, Lane, Lanes, to_line

EXACT = 1e-6
MIB = 1 << 20

Play = Callable[..., list[list[float]]]


@pytest.fixture
def play(hip: Hip, gate: Gate) -> Play:
    return Lanes(hip, gate).play


def dma(source: int, target: int, nbytes: int, after: tuple[int, int] | None = None) -> Copy:
    return Copy(source, target, nbytes, by_dma=True, after=after)


@pytest.fixture
def issue(hip: Hip) -> float:
    """What an engine takes before the data of a copy flow."""
    return hip.model.dma.issue_us * 1e-6


def rate(hip: Hip, link_class: str) -> float:
    """What an engine gets of a link alone, in bytes a second."""
    return min(hip.model.dma.rate_gbps, hip.model.links[link_class].usable_gbps) * 1e9


def set_up(hip: Hip, link_class: str) -> float:
    """What a shader takes before its first data come over a link."""
    return (hip.model.gfx.launch_us + hip.model.links[link_class].first_us) * 1e-6


# ---- links ----


def test_links_of_their_own_do_not_disturb_each_other(play: Play) -> None:
    lanes = [
        Lane(1, (Copy(0, 1, 4 * MIB),)),
        Lane(0, (Copy(0, 2, 3 * MIB), Copy(0, 2, 3 * MIB))),
        Lane(2, (dma(2, 1, 5 * MIB),)),
        Lane(5, (Copy(4, 5, 4 * MIB),)),
        Lane(0, (dma(HOST, 0, 5 * MIB),)),
        Lane(1, (dma(HOST, 1, 5 * MIB),)),
    ]
    together = play(*lanes)
    alone = [play(lane)[0] for lane in lanes]
    assert [end for lane in together for end in lane] == pytest.approx(
        [end for lane in alone for end in lane], rel=EXACT
    )


@pytest.mark.parametrize("by_dma", [False, True])
def test_both_ways_of_a_link_get_its_duplex(hip: Hip, play: Play, issue: float, by_dma: bool) -> None:
    nbytes, link = 8 * MIB, hip.model.links["xgmi"]
    assert link.duplex < 1
    ends = play(Lane(1, (Copy(0, 1, nbytes, by_dma),)), Lane(0, (Copy(1, 0, nbytes, by_dma),)))
    before = issue if by_dma else set_up(hip, "xgmi")
    assert ends == [pytest.approx([before + nbytes / (rate(hip, "xgmi") * link.duplex)], rel=EXACT)] * 2


def test_the_way_that_is_left_alone_gets_all_of_its_rate(hip: Hip, play: Play, issue: float) -> None:
    short, long, duplex = 2 * MIB, 8 * MIB, hip.model.links["xgmi"].duplex
    ends = play(Lane(0, (dma(0, 1, short),)), Lane(1, (dma(1, 0, long),)))
    both = short / (rate(hip, "xgmi") * duplex)
    alone = (long - short) / rate(hip, "xgmi")
    assert ends == [pytest.approx([issue + both], rel=EXACT), pytest.approx([issue + both + alone], rel=EXACT)]


@pytest.mark.parametrize("readers", [2, 3, 4])
def test_readers_of_one_link_get_equal_parts(hip: Hip, play: Play, readers: int) -> None:
    nbytes = 2 * MIB
    ends = play(*[Lane(1, (Copy(0, 1, nbytes),))] * readers)
    expected = set_up(hip, "xgmi") + readers * nbytes / rate(hip, "xgmi")
    assert ends == [pytest.approx([expected], rel=EXACT)] * readers


def test_a_copy_that_begins_later_shares_what_is_left(hip: Hip, play: Play, issue: float) -> None:
    first, other, second = 8 * MIB, 2 * MIB, 3 * MIB
    r = rate(hip, "xgmi")
    ends = play(Lane(0, (dma(0, 1, first),)), Lane(0, (dma(0, 2, other), dma(0, 1, second))))
    joins = issue + other / r + issue
    left = first - (joins - issue) * r
    assert 0 < left < first
    one, overtaken = second / (r / 2), left > second
    assert overtaken, "the copy that came later is over first"
    assert ends[1] == pytest.approx([issue + other / r, joins + one], rel=EXACT)
    assert ends[0] == pytest.approx([joins + one + (left - second) / r], rel=EXACT)


def test_three_that_begin_one_after_another(hip: Hip, play: Play, issue: float) -> None:
    """Data of the first flow from a, of the second from b, of the third from c on, all over one link."""
    r = rate(hip, "xgmi")
    ends = play(
        Lane(0, (dma(0, 1, 8 * MIB),)),
        Lane(0, (dma(0, 2, MIB), dma(0, 1, 8 * MIB))),
        Lane(0, (dma(0, 3, 3 * MIB), dma(0, 1, 8 * MIB))),
    )
    a, b, c = issue, 2 * issue + MIB / r, 2 * issue + 3 * MIB / r
    left = [8 * MIB] * 3
    left[0] -= (b - a) * r + (c - b) * r / 2
    left[1] -= (c - b) * r / 2
    over_0 = c + left[0] / (r / 3)
    over_1 = over_0 + (left[1] - left[0]) / (r / 2)
    over_2 = over_1 + (left[2] - left[1]) / r
    found = [lane[-1] for lane in ends]
    assert found == pytest.approx([over_0, over_1, over_2], rel=EXACT)


def test_shaders_behind_one_another_share_as_single_ones_do(hip: Hip, play: Play) -> None:
    """Three copies of one lane against one of another: while both flow each has half, set-up is hidden as before."""
    nbytes, hidden = 2 * MIB, hip.model.gfx.overlap_us * 1e-6
    r, before = rate(hip, "xgmi"), set_up(hip, "xgmi")
    ends = play(Lane(1, (Copy(0, 1, nbytes),) * 3), Lane(1, (Copy(0, 1, 2 * nbytes),)))
    half, pause = nbytes / (r / 2), before - hidden
    first = before + half
    # The other lane has the link to itself until the data of the second copy flow.
    left = 2 * nbytes - nbytes - pause * r
    over = first + pause + left / (r / 2)
    second = over + (nbytes - left) / r
    assert ends[1] == pytest.approx([over], rel=EXACT)
    assert ends[0] == pytest.approx([first, second, second + pause + nbytes / r], rel=EXACT)


def test_all_of_a_gpus_memory_goes_at_its_rate(hip: Hip, play: Play) -> None:
    nbytes, local = 4 * MIB, hip.model.links["local"].usable_gbps * 1e9
    ends = play(*[Lane(0, (Copy(0, 0, nbytes),))] * 2)
    assert ends == [pytest.approx([set_up(hip, "local") + 2 * nbytes / local], rel=EXACT)] * 2


# ---- engines and queues ----


def test_copies_beyond_the_engines_wait(hip: Hip, play: Play, issue: float) -> None:
    """Inside a GPU an engine is slower than memory: two copies are as fast as one."""
    nbytes, engines = 4 * MIB, hip.model.device.copy_engines
    one = issue + nbytes / (hip.model.dma.rate_gbps * 1e9)
    lane = Lane(0, (dma(0, 0, nbytes),))
    assert engines == 2
    assert play(lane, lane) == [pytest.approx([one], rel=EXACT)] * 2
    ends = play(lane, lane, lane, lane)
    assert ends == [pytest.approx([turns * one], rel=EXACT) for turns in (1, 1, 2, 2)]


def test_an_engine_goes_to_who_comes_next(hip: Hip, play: Play, issue: float) -> None:
    """One engine is free early, another late: the third copy begins at the first of these moments."""
    r = hip.model.dma.rate_gbps * 1e9
    ends = play(
        Lane(0, (dma(0, 0, MIB),)), Lane(0, (dma(0, 0, 4 * MIB),)), Lane(0, (dma(0, 0, 2 * MIB), dma(0, 0, MIB)))
    )
    first, long = issue + MIB / r, issue + 4 * MIB / r
    third = first + issue + 2 * MIB / r
    assert ends == [
        pytest.approx([first], rel=EXACT),
        pytest.approx([long], rel=EXACT),
        pytest.approx([third, third + issue + MIB / r], rel=EXACT),
    ]


class Node:
    """A node in a process of its own."""

    def __init__(self, model: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.emulator.lanes", model],
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def play(self, *lanes: Lane) -> list[list[float]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(to_line(lanes), file=self._process.stdin, flush=True)
        found: list[list[float]] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.communicate(timeout=60)


@contextmanager
def node(model: str, **environment: str) -> Iterator[Node]:
    made = Node(model, **environment)
    try:
        yield made
    finally:
        made.close()


def test_copies_over_xgmi_have_engines_of_their_own(tmp_path: Path, hip: Hip, issue: float) -> None:
    path = tmp_path / "few.toml"
    path.write_text("extends = 'mi300x-8'\n[device]\nxgmi_copy_engines = 1\n", encoding="utf-8")
    nbytes = 4 * MIB
    over = issue + nbytes / rate(hip, "xgmi")
    here = issue + nbytes / (hip.model.dma.rate_gbps * 1e9)
    with node(str(path)) as few:
        ends = few.play(*[Lane(0, (dma(0, target, nbytes),)) for target in (1, 2, 0, 0)])
    assert ends == [pytest.approx([end], rel=EXACT) for end in (over, 2 * over, here, here)]


@pytest.mark.parametrize(
    ("environment", "queues"), [({}, 4), ({"GPU_MAX_HW_QUEUES": "2"}, 2), ({"GPU_MAX_HW_QUEUES": "6"}, 6)]
)
def test_streams_beyond_the_hardware_queues_share_them(hip: Hip, environment: dict[str, str], queues: int) -> None:
    """Round robin, and what is in one queue runs one after another: gates, events and copies.

    Behind the first gate of a queue the launch of the second takes its time, and then the copies follow as in a stream.
    """
    nbytes, launch, hidden = MIB, hip.model.gfx.launch_us * 1e-6, hip.model.gfx.overlap_us * 1e-6
    alone = set_up(hip, "xgmi") + nbytes / rate(hip, "xgmi")
    with node("mi300x-8", **environment) as own:
        ends = own.play(*[Lane(0, (Copy(peer, 0, nbytes),)) for peer in range(1, 7)])
    in_queue = [[lane for lane in range(6) if lane % queues == queue] for queue in range(queues)]
    expected = [0.0] * 6
    for lanes in in_queue:
        for place, lane in enumerate(lanes):
            gates_behind = len(lanes) - 1 - place
            expected[lane] = gates_behind * launch + alone + place * (alone - hidden)
    assert [lane[-1] for lane in ends] == pytest.approx(expected, rel=EXACT)


def test_the_null_stream_and_priorities_take_queues_too(hip: Hip, issue: float) -> None:
    """With one queue all streams of a GPU are one, also to who asks: behind a shut gate nothing is over."""
    program = """
import ctypes
from pytest_transferbench.emulator import activate
from tests.emulator.gate import GATE
from tests.emulator.hip import NO_CU, Hip
hip = Hip(activate("mi300x-8"))
flag = ctypes.c_uint64.from_address(hip.host_malloc(64))
source, target = hip.malloc(64), hip.malloc(64)
hip.set_device(0)
create = "hipStreamCreateWithPriority"
low, high = (hip.value(ctypes.c_void_p, create, ctypes.c_uint(1), ctypes.c_int(level)) for level in (1, -1))
for waiting, working in ((low, high), (high, None), (None, low)):
    flag.value = 0
    assert hip.launch(hip.kernel(GATE, "gate"), 1, 1, ctypes.addressof(flag), 1, stream=waiting or 0) == 0
    hip.ok("hipMemcpyAsync", target, source, 64, ctypes.c_int(NO_CU), working)
    shut = hip.code("hipStreamQuery", working)
    flag.value = 1
    hip.ok("hipDeviceSynchronize")
    print(shut, hip.code("hipStreamQuery", working))
"""
    for queues, shut in (("1", NOT_READY), ("4", SUCCESS)):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=REPOSITORY,
            env={**os.environ, "GPU_MAX_HW_QUEUES": queues},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.stdout.splitlines() == [f"{shut} {SUCCESS}"] * 3, done.stderr


# ---- what waits for what ----


def test_an_event_carries_its_time_to_another_stream(hip: Hip, play: Play, issue: float) -> None:
    """The second lane waits for the first copy of the first lane, and shares the link with its second."""
    r = rate(hip, "xgmi")
    ends = play(
        Lane(0, (dma(0, 1, 2 * MIB), dma(0, 2, 4 * MIB))),
        Lane(2, (dma(0, 2, 4 * MIB, after=(0, 0)), dma(2, 0, MIB))),
    )
    first = issue + 2 * MIB / r
    shared = first + issue + 8 * MIB / r
    assert ends[0] == pytest.approx([first, shared], rel=EXACT)
    assert ends[1] == pytest.approx([shared, shared + issue + MIB / r], rel=EXACT)


def test_what_is_enqueued_later_disturbs_nothing_that_was_over(hip: Hip, gate: Gate, issue: float) -> None:
    """The host waits for a copy; another over the same link begins after that, while a third is still under way."""
    r, short, long = rate(hip, "xgmi"), 2 * MIB, 16 * MIB
    buffers = {owner: [hip.malloc(long, owner) for _ in range(3)] for owner in (0, 1)}
    starts, stops = ([hip.event(0) for _ in range(3)] for _ in range(2))

    def copy(number: int, nbytes: int, stream: int) -> None:
        hip.ok("hipEventRecord", starts[number], stream)
        hip.ok("hipMemcpyAsync", buffers[1][number], buffers[0][number], nbytes, ctypes.c_int(NO_CU), stream)
        hip.ok("hipEventRecord", stops[number], stream)

    with hip.stream() as one, hip.stream() as other:
        gate.epoch += 1
        for stream in (one, other):
            assert hip.launch(hip.kernel(GATE, "gate"), 1, 1, gate.flag, gate.epoch, stream=stream) == SUCCESS
        copy(0, short, one)
        copy(1, long, other)
        gate.word.value = gate.epoch
        hip.ok("hipStreamSynchronize", one)
        copy(2, short, one)
        hip.ok("hipStreamSynchronize", one)
        hip.ok("hipStreamSynchronize", other)
    seconds = [hip.elapsed_seconds(start, stop) for start, stop in zip(starts, stops, strict=True)]
    first = issue + 2 * short / r
    third = hip.model.enqueue_us * 1e-6 + issue + 2 * short / r
    between = hip.model.synchronize_us * 1e-6 + hip.model.enqueue_us * 1e-6
    left = long - short - short - (between + hip.model.enqueue_us * 1e-6 + issue) * r
    assert left > 0
    assert seconds == pytest.approx([first, first + between + third + left / r, third], rel=EXACT)
    for pointer in (*buffers[0], *buffers[1]):
        hip.ok("hipFree", pointer)


def test_stamps_and_what_is_copied_from_them_are_the_shared_times(hip: Hip, gate: Gate) -> None:
    """A copy behind a kernel finds the stamps that are known only when all that was beside it is."""
    source = r"""
    extern "C" __global__ void stamped(uint4* to, const uint4* from, size_t n, unsigned long long* stamps) {
      if (threadIdx.x == 0) transferbench_emulator_stamp(stamps, 0);
      for (size_t i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
      __syncthreads();
      if (threadIdx.x == 0) transferbench_emulator_stamp(stamps + 1, 1);
    }
    """
    nbytes, readers = 4 * MIB, 2
    hip.enable_peer(0, 1)
    kernel = hip.kernel(source, "stamped")
    here, there = [hip.malloc(nbytes) for _ in range(readers)], [hip.malloc(nbytes, 1) for _ in range(readers)]
    stamps, seen = [hip.malloc(16) for _ in range(readers)], [hip.host_malloc(16) for _ in range(readers)]
    gate.epoch += 1
    with hip.stream() as one, hip.stream() as other:
        streams = (one, other)
        for stream in streams:
            assert hip.launch(hip.kernel(GATE, "gate"), 1, 1, gate.flag, gate.epoch, stream=stream) == SUCCESS
        for number, stream in enumerate(streams):
            arguments = (here[number], there[number], nbytes // 16, stamps[number])
            assert hip.launch(kernel, 1, 256, *arguments, stream=stream) == SUCCESS
            hip.ok("hipMemcpyAsync", seen[number], stamps[number], 16, ctypes.c_int(2), stream)
        gate.word.value = gate.epoch
        for stream in streams:
            hip.ok("hipStreamSynchronize", stream)
    expected = hip.model.links["xgmi"].first_us * 1e-6 + readers * nbytes / rate(hip, "xgmi")
    for pointer, copied in zip(stamps, seen, strict=True):
        assert hip.read(pointer, 16) == ctypes.string_at(copied, 16)
        begin, end = memoryview(hip.read(pointer, 16)).cast("Q")
        assert (end - begin) * 1e-8 == pytest.approx(expected, abs=1.1e-8)
    for pointer in (*here, *there, *stamps):
        hip.ok("hipFree", pointer)
    for pointer in seen:
        hip.ok("hipHostFree", pointer)


def test_a_gate_opens_for_all_streams_at_the_moment_the_host_did(hip: Hip, gate: Gate) -> None:
    """Whatever the host does next, and also for the stream that is waited for last, when its clock is further on."""
    nothing = hip.kernel('extern "C" __global__ void nothing() {}', "nothing")
    events = [[hip.event() for _ in range(2)] for _ in range(3)]
    gate.epoch += 1
    begun = hip.activation.host_clock()
    with hip.stream() as one, hip.stream() as two, hip.stream() as three:
        for stream, (held, free) in zip((one, two, three), events, strict=True):
            hip.ok("hipEventRecord", held, stream)
            assert hip.launch(hip.kernel(GATE, "gate"), 1, 1, gate.flag, gate.epoch, stream=stream) == SUCCESS
            hip.ok("hipEventRecord", free, stream)
        for _ in range(10):
            assert hip.launch(nothing, 1, 1, stream=three) == SUCCESS
        opened = hip.activation.host_clock()
        gate.word.value = gate.epoch
        for _ in range(190):
            assert hip.launch(nothing, 1, 1, stream=three) == SUCCESS
        for stream in (three, two, one):
            hip.ok("hipStreamSynchronize", stream)
        far = hip.activation.host_clock()
    waited = [hip.elapsed_seconds(*pair) for pair in events]
    between = 3 * hip.model.enqueue_us * 1e-6
    assert [waited[0] - later for later in waited] == pytest.approx([0, between, 2 * between], abs=1e-9)
    assert waited[0] == pytest.approx(opened - begun - hip.model.enqueue_us * 1e-6, rel=EXACT)
    assert far - opened > 200 * hip.model.gfx.launch_us * 1e-6


def test_the_host_waits_where_a_queue_is_full(hip: Hip, gate: Gate) -> None:
    """A queue holds 1024 operations: the host goes on when the first of them is over, but not behind a shut gate."""
    nothing, room, more = hip.kernel('extern "C" __global__ void nothing() {}', "nothing"), 1024, 600
    launch, call = hip.model.gfx.launch_us * 1e-6, hip.model.enqueue_us * 1e-6
    with hip.stream() as stream:
        begin = hip.activation.host_clock()
        for _ in range(room + more):
            assert hip.launch(nothing, 1, 1, stream=stream) == SUCCESS
        spent = hip.activation.host_clock() - begin
        assert spent == pytest.approx(2 * call + more * launch, rel=EXACT), "that of the last call and of the first"
        hip.ok("hipStreamSynchronize", stream)
        with gate.hold(stream):
            begin = hip.activation.host_clock()
            for _ in range(room + more):
                assert hip.launch(nothing, 1, 1, stream=stream) == SUCCESS
            assert hip.activation.host_clock() - begin == pytest.approx((room + more) * call, rel=EXACT)


def test_a_kernel_that_never_rests_while_it_waits_for_the_host_lets_it_go_on(hip: Hip, flag: ctypes.c_uint64) -> None:
    """Whoever counts while it waits cannot be told from who works: the host goes on without it after a second."""
    source = r"""
    extern "C" __global__ void count(const unsigned long long* flag, unsigned long long* steps) {
      while (!__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM))
        __hip_atomic_store(steps, __hip_atomic_load(steps, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) + 1,
                           __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    }
    """
    steps_made = hip.malloc(64)
    hip.ok("hipMemset", steps_made, ctypes.c_int(0), 64)
    count = hip.kernel(source, "count")
    with hip.stream() as stream, hip.stream() as other:
        begin = time.monotonic()
        assert hip.launch(count, 1, 1, ctypes.addressof(flag), steps_made, stream=stream) == SUCCESS
        for _ in range(20):
            hip.ok("hipMemsetAsync", steps_made + 8, ctypes.c_int(0), 8, other)
        assert hip.code("hipStreamQuery", stream) == NOT_READY
        assert time.monotonic() - begin < 10
        flag.value = 1
        hip.ok("hipStreamSynchronize", stream)
    hip.ok("hipFree", steps_made)


# ---- the host ----


def test_a_copy_of_the_host_shares_its_link_with_an_engine(hip: Hip, play: Play, issue: float) -> None:
    cpu, link = hip.model.cpu, hip.model.links["host"].usable_gbps * 1e9
    alone, r = cpu.threads * cpu.to_device_gbps * 1e9, rate(hip, "host")
    assert link / 2 < alone < link
    assert r == link
    nbytes = 4 * MIB
    ends = play(Lane(0, (dma(HOST, 0, nbytes),)), Lane(HOST, (Copy(HOST, 0, nbytes),), threads=cpu.threads))
    # Alone until the engine's data flow, then half of the link each; the engine is over last.
    left = nbytes - issue * alone
    over = issue + left / (link / 2)
    assert ends[1] == pytest.approx([over], rel=EXACT)
    assert ends[0] == pytest.approx([over + (nbytes - left) / link], rel=EXACT)


def test_a_copy_of_the_host_leaves_what_it_cannot_use(hip: Hip, play: Play, issue: float) -> None:
    cpu, link = hip.model.cpu, hip.model.links["host"].usable_gbps * 1e9
    alone = cpu.to_device_gbps * 1e9
    assert alone < link / 2
    nbytes = 4 * MIB
    ends = play(Lane(0, (dma(HOST, 0, nbytes),)), Lane(HOST, (Copy(HOST, 0, nbytes),), threads=1))
    assert ends[0] == pytest.approx([issue + nbytes / (link - alone)], rel=EXACT)
    assert ends[1] == pytest.approx([nbytes / alone], rel=EXACT)


def test_copies_of_the_host_share_its_threads(hip: Hip, play: Play) -> None:
    cpu, nbytes = hip.model.cpu, 2 * MIB
    lane = Lane(HOST, (Copy(HOST, HOST, nbytes),), threads=cpu.threads)
    one = nbytes / (cpu.threads * cpu.local_gbps * 1e9)
    assert play(lane) == [pytest.approx([one], rel=EXACT)]
    assert play(lane, lane, lane) == [pytest.approx([3 * one], rel=EXACT)] * 3


def test_all_readers_of_the_hosts_memory_share_it(tmp_path: Path, hip: Hip, issue: float) -> None:
    path = tmp_path / "narrow.toml"
    path.write_text("extends = 'mi300x-8'\n[cpu]\nmemory_gbps = 90\n", encoding="utf-8")
    nbytes = 4 * MIB
    with node(str(path)) as narrow:
        ends = narrow.play(*[Lane(device, (dma(HOST, device, nbytes),)) for device in range(3)])
        writes = narrow.play(*[Lane(device, (dma(device, HOST, nbytes),)) for device in range(2)])
        alone = narrow.play(Lane(0, (dma(HOST, 0, nbytes),)))
    assert ends == [pytest.approx([issue + nbytes / 30e9], rel=EXACT)] * 3
    assert writes == [pytest.approx([issue + nbytes / 45e9], rel=EXACT)] * 2
    assert alone == [pytest.approx([issue + nbytes / rate(hip, "host")], rel=EXACT)]


def test_peers_on_pcie_use_the_host_links_of_both() -> None:
    nbytes = 16 * MIB
    with node("mi210-pcie-2") as own:
        (peer,), (to_host,) = own.play(Lane(0, (dma(0, 1, nbytes),)), Lane(1, (dma(0, HOST, nbytes),)))
        (up,), (down,) = own.play(Lane(0, (dma(0, HOST, nbytes),)), Lane(1, (dma(HOST, 1, nbytes),)))
    issue, half = 6.08e-6, 26.74e9 / 2
    assert [peer, to_host] == pytest.approx([issue + nbytes / half] * 2, rel=1e-3)
    assert [up, down] == pytest.approx([issue + nbytes / 26.74e9] * 2, rel=EXACT)


# ---- the same in every run ----

MIXED = (
    Lane(0, (Copy(1, 0, 2 * MIB), Copy(0, 2, MIB), dma(0, 1, 3 * MIB))),
    Lane(0, (dma(0, 1, MIB), Copy(1, 0, 3 * MIB), dma(HOST, 0, MIB))),
    Lane(1, (Copy(0, 1, 2 * MIB, after=(0, 0)), dma(1, HOST, 2 * MIB))),
    Lane(0, (dma(0, 0, MIB), dma(0, 0, MIB), Copy(0, 0, 2 * MIB))),
    Lane(0, (Copy(HOST, 0, MIB), Copy(0, 0, MIB, after=(2, 0)))),
    Lane(HOST, (Copy(HOST, 0, 2 * MIB),)),
    Lane(HOST, (Copy(HOST, HOST, MIB),), threads=2),
)
LOAD = """
import multiprocessing
for _ in range(6):
    multiprocessing.Process(target=exec, args=("while True: pass",), daemon=True).start()
input()
"""


def test_the_same_program_gives_the_same_figures_whatever_the_threads_do() -> None:
    """To the last bit, twenty times in a row, on an idle machine and on a busy one."""
    runs = []
    for busy in (False, True):
        load = subprocess.Popen([sys.executable, "-c", LOAD], stdin=subprocess.PIPE) if busy else None
        try:
            with node("mi300x-8") as own:
                runs.append([own.play(*MIXED) for _ in range(20)])
        finally:
            if load:
                load.communicate(b"\n", timeout=60)
    assert runs[0] == runs[1]
    for once in runs[0][1:]:
        for ends, first in zip(once, runs[0][0], strict=True):
            assert ends == pytest.approx(first, rel=1e-4), "but for the resolution of an event"

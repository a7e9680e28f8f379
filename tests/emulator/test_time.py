"""The virtual clock: every figure is the model's arithmetic, whatever the machine beneath is doing."""

from __future__ import annotations

import ctypes

import pytest

from tests.emulator.gate import GATE, Gate, event_times
from tests.emulator.hip import D2D, D2H, DEFAULT, H2D, HOST, NO_CU, SUCCESS, Hip

COPY = r"""
struct alignas(16) quad { unsigned x, y, z, w; };
extern "C" __global__ void copy(quad* to, const quad* from, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = from[i];
}
extern "C" __global__ void stamped(quad* to, const quad* from, size_t n, unsigned long long* stamps) {
  if (threadIdx.x == 0) transferbench_emulator_stamp(stamps + 2 * blockIdx.x, 0);
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = from[i];
  __syncthreads();
  if (threadIdx.x == 0) transferbench_emulator_stamp(stamps + 2 * blockIdx.x + 1, 1);
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void wait_ticks(long long ticks, long long* out) {
  const long long start = wall_clock64();
  while (wall_clock64() - start < ticks) {}
  *out = wall_clock64() - start;
}
"""

EXACT = 1e-6


def copy_seconds(
    hip: Hip, link_class: str, nbytes: int, *, reads_over: str | None = None, behind_another: bool = False
) -> float:
    """What a copy over ``link_class`` takes that waits for its first data to come over ``reads_over``."""
    model = hip.model
    link = model.links[link_class]
    set_up = (model.gfx.launch_us + model.links[reads_over or link_class].first_us) * 1e-6
    hidden = model.gfx.overlap_us * 1e-6 if behind_another else 0.0
    return max(set_up, set_up - hidden + nbytes / (link.usable_gbps * 1e9))


@pytest.mark.parametrize(("link_class", "owner"), [("local", 0), ("xgmi", 1), ("xgmi", 7), ("host", HOST)])
@pytest.mark.parametrize("nbytes", [16, 64 << 10, 1 << 20, 4 << 20])
@pytest.mark.parametrize("direction", ["pull", "push"])
def test_gated_copies_follow_the_model(
    hip: Hip, gate: Gate, link_class: str, owner: int, nbytes: int, direction: str
) -> None:
    here = hip.malloc(nbytes)
    there = hip.host_malloc(nbytes) if owner == HOST else hip.malloc(nbytes, device=owner)
    if owner > 0:
        hip.enable_peer(0, owner)
    copy = hip.kernel(COPY, "copy")
    ends = (here, there) if direction == "pull" else (there, here)
    with hip.stream() as stream:
        launch = lambda: hip.launch(copy, 24, 128, *ends, nbytes // 16, stream=stream)  # noqa: E731  # a value here
        first, *others = event_times(hip, gate, stream, [launch] * 4)
    reads_over = link_class if direction == "pull" else "local"
    assert first == pytest.approx(copy_seconds(hip, link_class, nbytes, reads_over=reads_over), rel=EXACT)
    behind = copy_seconds(hip, link_class, nbytes, reads_over=reads_over, behind_another=True)
    assert others == pytest.approx([behind] * 3, rel=EXACT)
    hip.ok("hipFree", here)
    hip.ok("hipHostFree" if owner == HOST else "hipFree", there)


@pytest.mark.parametrize(
    ("kind", "nbytes", "by"),
    [
        (NO_CU, 4096, "dma"),
        (NO_CU, 8 << 20, "dma"),
        (DEFAULT, 1 << 20, "shader"),
        (D2D, 1 << 20, "shader"),
        (DEFAULT, (1 << 20) + 1, "dma"),
        (D2D, 8 << 20, "dma"),
    ],
)
def test_copies_between_gpus_by_engine_or_shader(hip: Hip, gate: Gate, kind: int, nbytes: int, by: str) -> None:
    """The source's engine, whatever the stream; but a shader of the stream's device for what is small."""
    source, target = hip.malloc(nbytes, device=2), hip.malloc(nbytes, device=3)
    before = hip.activation.copies(2), hip.activation.copies(3)
    with hip.stream(3) as stream:
        copy = lambda: hip.code("hipMemcpyAsync", target, source, nbytes, ctypes.c_int(kind), stream)  # noqa: E731  # a value here
        seconds = event_times(hip, gate, stream, [copy] * 2, device=3)
    after = hip.activation.copies(2), hip.activation.copies(3)
    made = [tuple(b - a for a, b in zip(old, new, strict=True)) for old, new in zip(before, after, strict=True)]
    assert made == ([(2, 0), (0, 0)] if by == "dma" else [(0, 0), (0, 2)])
    if by == "dma":
        dma, link = hip.model.dma, hip.model.links["xgmi"]
        one = dma.issue_us * 1e-6 + nbytes / (min(dma.rate_gbps, link.usable_gbps) * 1e9)
        assert seconds == pytest.approx([one, one], rel=EXACT)
    else:
        expected = [copy_seconds(hip, "xgmi", nbytes, behind_another=behind) for behind in (False, True)]
        assert seconds == pytest.approx(expected, rel=EXACT)
    hip.ok("hipFree", source)
    hip.ok("hipFree", target)


@pytest.mark.parametrize("kind", [H2D, D2H, DEFAULT])
def test_pinned_copies_take_the_engine(hip: Hip, gate: Gate, kind: int) -> None:
    nbytes = 5 << 20
    pinned, device = hip.host_malloc(nbytes), hip.malloc(nbytes)
    ends = (pinned, device) if kind == D2H else (device, pinned)
    with hip.stream() as stream:
        copy = lambda: hip.code("hipMemcpyAsync", *ends, nbytes, ctypes.c_int(kind), stream)  # noqa: E731  # a value here
        seconds = event_times(hip, gate, stream, [copy])
    rate = min(hip.model.dma.rate_gbps, hip.model.links["host"].usable_gbps) * 1e9
    assert seconds == pytest.approx([hip.model.dma.issue_us * 1e-6 + nbytes / rate], rel=EXACT)
    hip.ok("hipHostFree", pinned)
    hip.ok("hipFree", device)


def test_stamps_lie_at_launch_and_end_of_each_kernel(hip: Hip, gate: Gate) -> None:
    nbytes, blocks, launches = 1 << 20, 5, 3
    here, there = hip.malloc(nbytes), hip.malloc(nbytes, device=1)
    stamps = hip.malloc(16 * blocks * launches)
    hip.enable_peer(0, 1)
    kernel = hip.kernel(COPY, "stamped")
    start, stop = hip.event(), hip.event()
    with hip.stream() as stream, gate.hold(stream):
        hip.ok("hipEventRecord", start, stream)
        for launch in range(launches):
            where = stamps + 16 * blocks * launch
            assert hip.launch(kernel, blocks, 64, here, there, nbytes // 16, where, stream=stream) == SUCCESS
        hip.ok("hipEventRecord", stop, stream)
    words = memoryview(hip.read(stamps, 16 * blocks * launches)).cast("Q")
    starts, stops = set(words[0::2]), set(words[1::2])
    assert (len(starts), len(stops)) == (launches, launches), "every block of a launch has the same stamps"
    tick = 1e-8
    alone, behind = (copy_seconds(hip, "xgmi", nbytes, behind_another=b) for b in (False, True))
    launch = hip.model.gfx.launch_us * 1e-6
    spans = [(end - begin) * tick for begin, end in zip(sorted(starts), sorted(stops), strict=True)]
    assert spans == pytest.approx([alone - launch, behind - launch, behind - launch], abs=1.1 * tick)
    kernel_span = (max(stops) - min(starts)) * tick
    assert hip.elapsed_seconds(start, stop) - kernel_span == pytest.approx(launch, abs=1.1 * tick)
    for pointer in (here, there, stamps):
        hip.ok("hipFree", pointer)


def test_an_idle_gap_ends_the_overlap(hip: Hip) -> None:
    nbytes = 1 << 20
    here, there = hip.malloc(nbytes), hip.malloc(nbytes)
    copy = hip.kernel(COPY, "copy")
    calls = (hip.model.enqueue_us + hip.model.synchronize_us) * 1e-6
    with hip.stream() as stream:
        for _ in range(2):  # each begins after the host has come back from waiting for the one before
            before = hip.activation.host_clock()
            assert hip.run(copy, 8, 128, here, there, nbytes // 16, stream=stream) == SUCCESS
            seconds = hip.activation.host_clock() - before - calls
            assert seconds == pytest.approx(copy_seconds(hip, "local", nbytes), rel=EXACT)
    hip.ok("hipFree", here)
    hip.ok("hipFree", there)


def test_a_wait_for_another_stream_ends_the_overlap(hip: Hip, gate: Gate) -> None:
    """The copy follows the wait without a gap, and the wait the copy before it with one."""
    short, long = 64 << 10, 8 << 20
    here, there = hip.malloc(short), hip.malloc(short)
    ends = hip.malloc(long, device=1), hip.malloc(long, device=1)
    copy, copy_beside = hip.kernel(COPY, "copy"), hip.kernel(COPY, "copy", device=1)
    held, done = hip.kernel(GATE, "gate", device=1), hip.event(1)
    with hip.stream() as stream, hip.stream(1) as other:
        launch = lambda: hip.launch(copy, 8, 128, here, there, short // 16, stream=stream)  # noqa: E731  # a value here
        assert hip.launch(held, 1, 1, gate.flag, gate.epoch + 1, stream=other) == SUCCESS
        assert hip.launch(copy_beside, 8, 128, *ends, long // 16, stream=other) == SUCCESS
        hip.ok("hipEventRecord", done, other)
        wait = lambda: hip.code("hipStreamWaitEvent", stream, done, ctypes.c_uint(0))  # noqa: E731  # a value here
        alone, waited, after, behind = event_times(hip, gate, stream, [launch, wait, launch, launch])
        hip.ok("hipStreamSynchronize", other)
    assert waited > 0
    expected = [copy_seconds(hip, "local", short, behind_another=b) for b in (False, False, True)]
    assert [alone, after, behind] == pytest.approx(expected, rel=EXACT)
    for pointer in (here, there, *ends):
        hip.ok("hipFree", pointer)


def test_an_empty_kernel_costs_its_launch(hip: Hip, gate: Gate) -> None:
    nothing = hip.kernel(COPY, "nothing")
    with hip.stream() as stream:
        seconds = event_times(hip, gate, stream, [lambda: hip.launch(nothing, 4, 64, stream=stream)] * 2)
    assert seconds == pytest.approx([hip.model.gfx.launch_us * 1e-6] * 2, rel=EXACT)


def test_the_host_clock_moves_with_calls_and_waits_only(hip: Hip, gate: Gate) -> None:
    clock = hip.activation.host_clock
    model = hip.model
    nothing = hip.kernel(COPY, "nothing")
    with hip.stream() as stream:
        begin = clock()
        assert begin == clock()
        assert hip.launch(nothing, 1, 1, stream=stream) == SUCCESS
        assert clock() - begin == pytest.approx(model.enqueue_us * 1e-6)
        hip.ok("hipStreamSynchronize", stream)
        expected = (model.enqueue_us + model.gfx.launch_us + model.synchronize_us) * 1e-6
        assert clock() - begin == pytest.approx(expected)
        before = clock()
        assert hip.code("hipStreamQuery", stream) == SUCCESS
        assert clock() == before


def test_a_gate_ends_when_the_host_opened_it(hip: Hip, gate: Gate) -> None:
    nothing = hip.kernel(COPY, "nothing")
    held, free = hip.event(), hip.event()
    with hip.stream() as other, hip.stream() as stream:
        with gate.hold(stream):
            hip.ok("hipEventRecord", held, stream)
            for _ in range(100):  # the host is busy for 100 calls before it opens the gate
                assert hip.launch(nothing, 1, 1, stream=other) == SUCCESS
            opened = hip.activation.host_clock()
        hip.ok("hipEventRecord", free, stream)
        recorded = hip.activation.host_clock()
        hip.ok("hipDeviceSynchronize")
        assert hip.elapsed_seconds(held, free) == pytest.approx(recorded - opened, rel=1e-4)


def test_a_kernel_can_wait_on_its_own_clock(hip: Hip, gate: Gate) -> None:
    ticks = 5000
    out = hip.malloc(8)
    wait = hip.kernel(COPY, "wait_ticks")
    with hip.stream() as stream:
        launch = lambda: hip.launch(wait, 1, 1, ctypes.c_longlong(ticks), out, stream=stream)  # noqa: E731  # a value here
        (seconds,) = event_times(hip, gate, stream, [launch])
    assert int.from_bytes(hip.read(out, 8), "little") >= ticks
    assert seconds == pytest.approx(hip.model.gfx.launch_us * 1e-6 + ticks * 1e-8, rel=1e-2)
    hip.ok("hipFree", out)


def test_a_graph_takes_what_the_stream_took(hip: Hip, gate: Gate) -> None:
    nbytes, copies = 256 << 10, 8
    here, there = hip.malloc(nbytes), hip.malloc(nbytes, device=1)
    hip.enable_peer(0, 1)
    copy = hip.kernel(COPY, "copy")
    with hip.stream() as stream:
        hip.ok("hipStreamBeginCapture", stream, ctypes.c_int(0))
        for _ in range(copies):
            assert hip.launch(copy, 8, 128, here, there, nbytes // 16, stream=stream) == SUCCESS
        graph = ctypes.c_void_p()
        hip.ok("hipStreamEndCapture", stream, ctypes.byref(graph))
        executable = hip.value(ctypes.c_void_p, "hipGraphInstantiate", graph, None, None, 0)
        (seconds,) = event_times(hip, gate, stream, [lambda: hip.code("hipGraphLaunch", executable, stream)])
        hip.ok("hipGraphExecDestroy", executable)
        hip.ok("hipGraphDestroy", graph)
    alone, behind = (copy_seconds(hip, "xgmi", nbytes, behind_another=b) for b in (False, True))
    assert seconds == pytest.approx(alone + (copies - 1) * behind, rel=EXACT)
    hip.ok("hipFree", here)
    hip.ok("hipFree", there)


def test_an_event_of_another_device_carries_its_time(hip: Hip, gate: Gate) -> None:
    nbytes = 2 << 20
    here, there = hip.malloc(nbytes), hip.malloc(nbytes)
    copy = hip.kernel(COPY, "copy")
    begin, end = hip.event(1), hip.event(1)
    done = hip.event(0)
    with hip.stream(0) as near, hip.stream(1) as far:
        gate.epoch += 1
        for device, stream in ((0, near), (1, far)):
            kernel = hip.kernel(GATE, "gate", device=device)
            assert hip.launch(kernel, 1, 1, gate.flag, gate.epoch, stream=stream) == SUCCESS
        hip.ok("hipEventRecord", begin, far)
        assert hip.launch(copy, 8, 128, here, there, nbytes // 16, stream=near) == SUCCESS
        hip.ok("hipEventRecord", done, near)
        hip.ok("hipStreamWaitEvent", far, done, ctypes.c_uint(0))
        hip.ok("hipEventRecord", end, far)
        gate.word.value = gate.epoch
        hip.ok("hipStreamSynchronize", far)
        hip.ok("hipStreamSynchronize", near)
    assert hip.elapsed_seconds(begin, end) == pytest.approx(copy_seconds(hip, "local", nbytes), rel=EXACT)
    hip.ok("hipFree", here)
    hip.ok("hipFree", there)


@pytest.mark.parametrize("threads", [1, 2, 4, 64])
@pytest.mark.parametrize("way", ["local", "to_device", "from_device"])
def test_host_copies_follow_the_cpus_rates(hip: Hip, threads: int, way: str) -> None:
    nbytes = (1 << 20) + 4
    pinned, other = hip.host_malloc(nbytes), hip.host_malloc(nbytes)
    device = hip.malloc(nbytes)
    content = bytes(range(256)) * (nbytes // 256) + b"abcd"
    source, target = {"local": (pinned, other), "to_device": (pinned, device), "from_device": (device, pinned)}[way]
    hip.write(source, content)
    before = hip.activation.host_clock()
    seconds = hip.activation.host_copy([target], [source], nbytes, threads)
    assert hip.activation.host_clock() - before == pytest.approx(seconds)
    assert hip.read(target, nbytes) == content
    cpu = hip.model.cpu
    together = min(threads, cpu.threads)
    limit = float("inf") if way == "local" else hip.model.links["host"].usable_gbps
    rates = {"local": cpu.local_gbps, "to_device": cpu.to_device_gbps, "from_device": cpu.from_device_gbps}
    assert seconds == pytest.approx(nbytes / (min(limit, together * rates[way]) * 1e9))
    for pointer in (pinned, other):
        hip.ok("hipHostFree", pointer)
    hip.ok("hipFree", device)

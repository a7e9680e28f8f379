"""Streams, events and peers: order, and exactly the error codes of the real runtime."""

from __future__ import annotations

import ctypes
import itertools

import pytest

from tests.emulator.hip import (
    CAPTURE_UNSUPPORTED,
    DISABLE_TIMING,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NON_BLOCKING,
    NOT_READY,
    PEER_ALREADY_ENABLED,
    PEER_NOT_ENABLED,
    SUCCESS,
    Hip,
)

SOURCE = r"""
extern "C" __global__ void gate(const volatile unsigned long long* flag) { while (!*flag) {} }
extern "C" __global__ void append(unsigned* list, unsigned value) {
  const unsigned count = list[0];
  list[1 + count] = value;
  list[0] = count + 1;
}
"""


def appended(hip: Hip, pointer: int) -> list[int]:
    found = memoryview(hip.read(pointer, 64)).cast("I")
    return list(found[1 : 1 + found[0]])


@pytest.mark.parametrize(("flags", "order"), [(0, [1, 2, 3]), (NON_BLOCKING, [2, 1, 3])])
def test_the_null_stream_waits_for_blocking_streams_only(
    hip: Hip, flag: ctypes.c_uint64, flags: int, order: list[int]
) -> None:
    """Stream: gate, 1. Null stream: 2. Stream again: 3. The virtual times tell the order, whoever was faster."""
    gate, append = hip.kernel(SOURCE, "gate"), hip.kernel(SOURCE, "append")
    entries, scratch = hip.malloc(64), hip.malloc(64)
    for pointer in (entries, scratch):
        hip.write(pointer, bytes(64))
    events = [hip.event() for _ in range(3)]

    def work(number: int, stream: int) -> None:
        assert hip.launch(append, 1, 1, entries, ctypes.c_uint(number), stream=stream) == SUCCESS
        hip.ok("hipEventRecord", events[number - 1], stream)

    with hip.stream(flags=flags) as stream, hip.stream() as other:
        assert hip.launch(gate, 1, 1, ctypes.addressof(flag), stream=stream) == SUCCESS
        work(1, stream)
        work(2, 0)
        for turn in range(1000):  # time passes for the host while the gate is shut
            assert hip.run(append, 1, 1, scratch, ctypes.c_uint(0), stream=other) == SUCCESS
            queried = hip.code("hipStreamQuery", None)
            if turn >= 10 and (flags == 0 or queried == SUCCESS):  # a busy machine may take its time
                break
        assert queried == (NOT_READY if flags == 0 else SUCCESS)
        flag.value = 1
        work(3, stream)
        hip.ok("hipDeviceSynchronize")
    assert appended(hip, entries) == order
    in_order = [events[number - 1] for number in order]
    assert all(hip.elapsed_seconds(*pair) > 0 for pair in itertools.pairwise(in_order))
    hip.ok("hipFree", scratch)
    hip.ok("hipFree", entries)


def test_events_order_streams_of_two_devices(hip: Hip, flag: ctypes.c_uint64) -> None:
    entries = hip.host_malloc(64)
    ctypes.memset(entries, 0, 64)
    done = hip.event(0)
    with hip.stream(0) as near, hip.stream(1) as far:
        assert hip.launch(hip.kernel(SOURCE, "gate", 0), 1, 1, ctypes.addressof(flag), stream=near) == SUCCESS
        assert hip.launch(hip.kernel(SOURCE, "append", 0), 1, 1, entries, ctypes.c_uint(1), stream=near) == SUCCESS
        hip.ok("hipEventRecord", done, near)
        hip.ok("hipStreamWaitEvent", far, done, ctypes.c_uint(0))
        assert hip.launch(hip.kernel(SOURCE, "append", 1), 1, 1, entries, ctypes.c_uint(2), stream=far) == SUCCESS
        assert hip.code("hipStreamQuery", far) == NOT_READY
        assert hip.code("hipEventQuery", done) == NOT_READY
        flag.value = 1
        hip.ok("hipEventSynchronize", done)
        hip.ok("hipStreamSynchronize", far)
        assert hip.code("hipStreamQuery", far) == SUCCESS
    assert appended(hip, entries) == [1, 2]
    hip.ok("hipHostFree", entries)


def test_elapsed_time_has_rules(hip: Hip, flag: ctypes.c_uint64) -> None:
    milliseconds = ctypes.byref(ctypes.c_float())
    first, second, other = hip.event(0), hip.event(0), hip.event(1)
    untimed = hip.event(0, DISABLE_TIMING)

    def elapsed(start: int, stop: int) -> int:
        return hip.code("hipEventElapsedTime", milliseconds, start, stop)

    with hip.stream(0) as stream, hip.stream(1) as far:
        hip.set_device(0)
        assert elapsed(first, second) == INVALID_HANDLE, "never recorded"
        hip.ok("hipEventRecord", first, stream)
        assert elapsed(first, second) == INVALID_HANDLE, "half recorded"
        assert hip.launch(hip.kernel(SOURCE, "gate"), 1, 1, ctypes.addressof(flag), stream=stream) == SUCCESS
        hip.ok("hipEventRecord", second, stream)
        assert elapsed(first, second) == NOT_READY
        flag.value = 1
        hip.ok("hipStreamSynchronize", stream)
        assert elapsed(first, second) == SUCCESS
        hip.ok("hipEventRecord", untimed, stream)
        hip.ok("hipEventRecord", other, far)
        hip.ok("hipStreamSynchronize", stream)
        hip.ok("hipStreamSynchronize", far)
        assert elapsed(first, untimed) == INVALID_HANDLE
        assert elapsed(first, other) == INVALID_HANDLE
        assert hip.code("hipEventRecord", first, far) == INVALID_HANDLE, "a stream of another device"
    for event in (first, second, other, untimed):
        hip.ok("hipEventDestroy", event)
    assert hip.code("hipEventDestroy", first) == INVALID_HANDLE
    assert elapsed(first, second) == INVALID_HANDLE


def test_streams_know_what_they_are(hip: Hip) -> None:
    hip.set_device(3)
    stream = hip.value(ctypes.c_void_p, "hipStreamCreateWithPriority", ctypes.c_uint(NON_BLOCKING), ctypes.c_int(-1))
    for call, expected in (("hipStreamGetFlags", 1), ("hipStreamGetPriority", -1), ("hipStreamGetDevice", 3)):
        out = ctypes.c_int()
        hip.ok(call, stream, ctypes.byref(out))
        assert out.value == expected, call
    hip.ok("hipStreamDestroy", stream)
    assert hip.code("hipStreamSynchronize", stream) == INVALID_HANDLE
    assert hip.code("hipStreamDestroy", stream) == INVALID_HANDLE
    assert hip.code("hipStreamDestroy", None) == INVALID_HANDLE
    assert hip.code("hipStreamCreateWithFlags", ctypes.byref(ctypes.c_void_p()), ctypes.c_uint(2)) == INVALID_VALUE


def test_a_kernel_belongs_to_its_device(hip: Hip) -> None:
    append = hip.kernel(SOURCE, "append", device=0)
    with hip.stream(1) as far:
        assert hip.launch(append, 1, 1, 0, ctypes.c_uint(0), stream=far) == INVALID_HANDLE


def test_peers_have_rules(hip: Hip) -> None:
    enable, disable = "hipDeviceEnablePeerAccess", "hipDeviceDisablePeerAccess"

    def peer(call: str, other: int, *more: object) -> int:
        return hip.code(call, ctypes.c_int(other), *more)

    no_flags = ctypes.c_uint(0)
    hip.set_device(5)
    assert [hip.value(ctypes.c_int, "hipDeviceCanAccessPeer", ctypes.c_int(5), ctypes.c_int(d)) for d in range(8)] == [
        1 if device != 5 else 0 for device in range(8)
    ]
    assert peer(enable, 5, no_flags) == INVALID_DEVICE
    assert peer(enable, 8, no_flags) == INVALID_DEVICE
    assert peer(enable, 7, ctypes.c_uint(1)) == INVALID_VALUE
    assert peer(disable, 7) == PEER_NOT_ENABLED
    assert peer(enable, 7, no_flags) == SUCCESS
    assert peer(enable, 7, no_flags) == PEER_ALREADY_ENABLED
    assert peer(disable, 7) == SUCCESS
    kind, hops = ctypes.c_uint32(), ctypes.c_uint32()
    link = (ctypes.byref(kind), ctypes.byref(hops))
    assert hip.code("hipExtGetLinkTypeAndHopCount", ctypes.c_int(0), ctypes.c_int(1), *link) == SUCCESS
    assert (kind.value, hops.value) == (4, 1)
    assert hip.code("hipExtGetLinkTypeAndHopCount", ctypes.c_int(1), ctypes.c_int(1), *link) == INVALID_VALUE
    attribute = [
        hip.value(ctypes.c_int, "hipDeviceGetP2PAttribute", ctypes.c_int(a), ctypes.c_int(0), ctypes.c_int(1))
        for a in range(4)
    ]
    assert attribute[1:] == [1, 1, 0]


def test_errors_are_kept_until_they_are_read(hip: Hip) -> None:
    hip.code("hipGetLastError")
    assert hip.code("hipSetDevice", ctypes.c_int(99)) == INVALID_DEVICE
    hip.ok("hipSetDevice", ctypes.c_int(0))
    assert hip.code("hipPeekAtLastError") == INVALID_DEVICE
    assert hip.code("hipGetLastError") == INVALID_DEVICE
    assert hip.code("hipGetLastError") == SUCCESS


def test_what_cannot_be_captured_spoils_the_capture(hip: Hip) -> None:
    append = hip.kernel(SOURCE, "append")
    entries = hip.malloc(64)
    hip.write(entries, bytes(64))
    graph, status = ctypes.c_void_p(), ctypes.c_int()
    begin = ("hipStreamBeginCapture", None, ctypes.c_int(0))
    assert hip.code(*begin) == CAPTURE_UNSUPPORTED, "the null stream cannot be captured"
    with hip.stream() as stream:
        hip.ok("hipStreamBeginCapture", stream, ctypes.c_int(0))
        assert hip.launch(append, 1, 1, entries, ctypes.c_uint(1), stream=stream) == SUCCESS
        hip.ok("hipStreamIsCapturing", stream, ctypes.byref(status))
        assert status.value == 1
        assert hip.code("hipStreamSynchronize", stream) == CAPTURE_UNSUPPORTED
        assert hip.launch(append, 1, 1, entries, ctypes.c_uint(2), stream=stream) == 901
        assert hip.code("hipStreamEndCapture", stream, ctypes.byref(graph)) == 901
        assert graph.value is None
        hip.ok("hipStreamIsCapturing", stream, ctypes.byref(status))
        assert status.value == 0
        assert hip.launch(append, 1, 1, entries, ctypes.c_uint(3), stream=stream) == SUCCESS
        hip.ok("hipStreamSynchronize", stream)
    assert appended(hip, entries) == [3]
    hip.ok("hipFree", entries)

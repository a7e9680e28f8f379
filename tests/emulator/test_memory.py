"""Allocations: kinds, attributes, limits, and what is left when everything has been freed."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_transferbench.emulator import Activation
from tests.emulator.hip import (
    D2D,
    D2H,
    DEFAULT,
    H2D,
    INVALID_DEVICE,
    INVALID_DEVICE_POINTER,
    INVALID_DIRECTION,
    INVALID_VALUE,
    NO_CU,
    OUT_OF_MEMORY,
    SUCCESS,
    Hip,
)

GIBI = 1 << 30


class PointerAttributes(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
        ("is_managed", ctypes.c_int),
        ("flags", ctypes.c_uint),
    ]


def resident_bytes() -> int:
    """What this process has in memory, as the kernel counts it."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) << 10


def free_and_total(hip: Hip) -> tuple[int, int]:
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    hip.ok("hipMemGetInfo", ctypes.byref(available), ctypes.byref(total))
    return available.value, total.value


@pytest.mark.parametrize("flags", [0, 1, 3])
def test_device_memory_of_every_kind(hip: Hip, flags: int) -> None:
    hip.set_device(5)
    pointer = hip.value(ctypes.c_void_p, "hipExtMallocWithFlags", 1000, ctypes.c_uint(flags))
    assert pointer % 256 == 0
    attributes = PointerAttributes()
    hip.ok("hipPointerGetAttributes", ctypes.byref(attributes), pointer + 999)
    assert (attributes.type, attributes.device, attributes.flags, attributes.is_managed) == (2, 5, flags, 0)
    assert (attributes.device_pointer, attributes.host_pointer) == (pointer + 999, None)
    assert hip.code("hipPointerGetAttributes", ctypes.byref(attributes), pointer + 1000) == INVALID_VALUE
    hip.ok("hipFree", pointer)
    assert hip.code("hipPointerGetAttributes", ctypes.byref(attributes), pointer) == INVALID_VALUE


def test_pinned_and_registered_memory(hip: Hip) -> None:
    pinned = hip.host_malloc(100)
    ordinary = ctypes.create_string_buffer(100)
    hip.ok("hipHostRegister", ordinary, 100, ctypes.c_uint(0))
    attributes = PointerAttributes()
    for pointer in (pinned, ctypes.addressof(ordinary)):
        hip.ok("hipPointerGetAttributes", ctypes.byref(attributes), pointer)
        assert (attributes.type, attributes.host_pointer) == (1, pointer)
        assert hip.value(ctypes.c_void_p, "hipHostGetDevicePointer", pointer, ctypes.c_uint(0)) == pointer
    assert hip.code("hipHostRegister", ordinary, 100, ctypes.c_uint(0)) == 712
    hip.ok("hipHostUnregister", ordinary)
    assert hip.code("hipHostUnregister", ordinary) == 713
    hip.ok("hipHostFree", pinned)


def test_what_was_freed_is_refused(hip: Hip) -> None:
    device, pinned = hip.malloc(64), hip.host_malloc(64)
    assert hip.code("hipFree", device + 1) == INVALID_DEVICE_POINTER
    assert hip.code("hipFree", pinned) == INVALID_DEVICE_POINTER
    assert hip.code("hipHostFree", device) == INVALID_VALUE
    hip.ok("hipFree", device)
    hip.ok("hipHostFree", pinned)
    assert hip.code("hipFree", device) == INVALID_DEVICE_POINTER
    assert hip.code("hipHostFree", pinned) == INVALID_VALUE
    hip.ok("hipFree", None)
    assert hip.code("hipMemset", device, ctypes.c_int(0), 64) == INVALID_VALUE


def test_freed_memory_goes_back_to_the_system(hip: Hip) -> None:
    before, counters = resident_bytes(), hip.activation.counters()
    pointers = [hip.malloc(96 << 20, device=device) for device in (0, 7)]
    assert hip.activation.counters().bytes_resident == counters.bytes_resident, "nothing is resident before its use"
    for pointer in pointers:
        hip.ok("hipMemset", pointer, ctypes.c_int(1), 96 << 20)
    held = hip.activation.counters()
    assert held.allocations - counters.allocations == 2
    assert held.bytes_allocated - counters.bytes_allocated == 192 << 20
    assert held.bytes_resident - counters.bytes_resident == 192 << 20
    assert resident_bytes() - before > 180 << 20
    for pointer in pointers:
        hip.ok("hipFree", pointer)
    after = hip.activation.counters()
    assert (after.allocations, after.bytes_allocated, after.bytes_of_pool) == (
        counters.allocations,
        counters.bytes_allocated,
        counters.bytes_of_pool,
    )
    assert resident_bytes() - before < 16 << 20


def test_all_devices_and_the_host_share_four_gibibytes(hip: Hip) -> None:
    assert hip.model.reported_memory_bytes == 4 * GIBI
    available, total = free_and_total(hip)
    assert total == 4 * GIBI
    assert available == total - hip.activation.counters().bytes_of_pool
    hip.set_device(0)
    out = ctypes.c_void_p()
    assert hip.code("hipMalloc", ctypes.byref(out), available + 1) == OUT_OF_MEMORY
    assert out.value is None
    assert hip.code("hipMalloc", ctypes.byref(out), 1 << 60) == OUT_OF_MEMORY
    first, pinned = hip.malloc(2 * GIBI, device=0), hip.host_malloc(GIBI)
    rest = available - 3 * GIBI
    assert hip.code("hipMalloc", ctypes.byref(out), rest + 1) == OUT_OF_MEMORY
    last = hip.malloc(rest, device=3)
    assert free_and_total(hip)[0] == 0
    assert hip.code("hipHostMalloc", ctypes.byref(out), 1, ctypes.c_uint(0)) == OUT_OF_MEMORY
    hip.ok("hipFree", first)
    assert free_and_total(hip)[0] == 2 * GIBI
    hip.ok("hipHostFree", pinned)
    hip.ok("hipFree", last)
    assert free_and_total(hip)[0] == available


UNCACHED, NUMA_USER, COHERENT, NON_COHERENT = 0x10000000, 0x20000000, 0x40000000, 0x80000000


@pytest.mark.parametrize("flags", [0, COHERENT, NON_COHERENT, UNCACHED])
@pytest.mark.parametrize("device", [1, 6])
def test_pinned_memory_follows_the_threads_policy_where_its_flags_say_so(
    hip: Hip, activation: Activation, flags: int, device: int
) -> None:
    hip.set_device(device)
    nearest = activation.model.device.numa_nodes[device]
    found = []
    for preferred in (None, 0, 1):
        activation.prefer_numa_node(preferred)
        for more in (0, NUMA_USER):
            pointer = hip.host_malloc(4096, flags | more)
            found.append(activation.numa_node_of(pointer + 4095))
            hip.ok("hipHostFree", pointer)
    activation.prefer_numa_node(None)
    assert found == [nearest, nearest, nearest, 0, nearest, 1]


@pytest.mark.parametrize("flags", [COHERENT | NON_COHERENT, UNCACHED | COHERENT, UNCACHED | NON_COHERENT])
def test_pinned_memory_is_of_one_kind(hip: Hip, flags: int) -> None:
    out = ctypes.c_void_p()
    assert hip.code("hipHostMalloc", ctypes.byref(out), 4096, ctypes.c_uint(flags)) == INVALID_VALUE


def test_a_thread_has_a_policy_of_its_own(hip: Hip, activation: Activation) -> None:
    activation.prefer_numa_node(1)

    def node_of_new_memory() -> int | None:
        pointer = hip.host_malloc(4096, NUMA_USER)
        try:
            return activation.numa_node_of(pointer)
        finally:
            hip.ok("hipHostFree", pointer)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(node_of_new_memory).result() == 0
    assert node_of_new_memory() == 1
    activation.prefer_numa_node(None)


def test_what_is_on_a_device_is_on_no_numa_node(hip: Hip, activation: Activation) -> None:
    device = hip.malloc(4096, device=2)
    hip.set_device(2)
    managed = hip.value(ctypes.c_void_p, "hipMallocManaged", 4096, ctypes.c_uint(1))
    assert activation.numa_node_of(device) is activation.numa_node_of(managed) is activation.numa_node_of(64) is None
    hip.ok("hipMemPrefetchAsync", managed, 4096, ctypes.c_int(-1), None)
    hip.ok("hipDeviceSynchronize")
    assert activation.numa_node_of(managed) == 0
    hip.ok("hipFree", device)
    hip.ok("hipFree", managed)


def test_copies_of_every_kind_move_the_bytes(hip: Hip) -> None:
    nbytes = 10_000
    content = bytes(range(250)) * 40
    one, other = hip.malloc(nbytes, device=0), hip.malloc(nbytes, device=1)
    pinned = hip.host_malloc(nbytes)
    ctypes.memmove(pinned, content, nbytes)
    pageable = ctypes.create_string_buffer(nbytes)
    hip.ok("hipMemcpy", one, pinned, nbytes, ctypes.c_int(H2D))
    for kind in (D2D, DEFAULT, NO_CU):
        hip.ok("hipMemset", other, ctypes.c_int(0), nbytes)
        hip.ok("hipMemcpy", other, one, nbytes, ctypes.c_int(kind))
        assert hip.read(other, nbytes) == content
    hip.ok("hipMemset", other, ctypes.c_int(0), nbytes)
    hip.ok("hipMemcpyPeer", other, ctypes.c_int(1), one, ctypes.c_int(0), nbytes)
    hip.ok("hipMemcpy", pageable, other, nbytes, ctypes.c_int(D2H))
    assert pageable.raw == content
    hip.ok("hipMemsetD32", one, ctypes.c_int(0x01020304), nbytes // 4)
    assert hip.read(one, nbytes) == b"\x04\x03\x02\x01" * (nbytes // 4)
    batch = [(ctypes.c_void_p * 2)(other, other + 100), (ctypes.c_void_p * 2)(one, one), (ctypes.c_size_t * 2)(8, 4)]
    failed = ctypes.c_size_t(99)
    with hip.stream() as stream:
        hip.ok("hipMemcpyBatchAsync", *batch, 2, None, None, 0, ctypes.byref(failed), stream)
        hip.ok("hipStreamSynchronize", stream)
    assert hip.read(other, 8) == b"\x04\x03\x02\x01" * 2
    for pointer in (one, other):
        hip.ok("hipFree", pointer)
    hip.ok("hipHostFree", pinned)


def test_copies_that_cannot_be_are_refused(hip: Hip) -> None:
    device, other = hip.malloc(64), hip.malloc(64)
    pageable = ctypes.create_string_buffer(128)
    copy = "hipMemcpy"
    assert hip.code(copy, device, other, 65, ctypes.c_int(D2D)) == INVALID_VALUE
    assert hip.code(copy, device + 60, other, 8, ctypes.c_int(DEFAULT)) == INVALID_VALUE
    assert hip.code(copy, device, other, 64, ctypes.c_int(5)) == INVALID_DIRECTION
    assert hip.code(copy, pageable, other, 64, ctypes.c_int(D2D)) == INVALID_VALUE
    assert hip.code(copy, pageable, other, 64, ctypes.c_int(H2D)) == INVALID_VALUE
    assert hip.code(copy, None, other, 64, ctypes.c_int(D2D)) == INVALID_VALUE
    assert hip.code(copy, None, None, 0, ctypes.c_int(D2D)) == SUCCESS
    assert hip.code("hipMemcpyPeer", device, ctypes.c_int(8), other, ctypes.c_int(0), 8) == INVALID_DEVICE
    assert hip.code("hipMemset", device, ctypes.c_int(0), 65) == INVALID_VALUE
    hip.ok("hipFree", device)
    hip.ok("hipFree", other)


def test_a_pageable_copy_returns_when_it_is_over(hip: Hip) -> None:
    """Under a shut gate such a call does not come back; here it has no gate, and has finished when it returns."""
    pageable = ctypes.create_string_buffer(b"x" * 4096, 4096)
    device = hip.malloc(4096)
    with hip.stream() as stream:
        hip.ok("hipMemcpyAsync", device, pageable, 4096, ctypes.c_int(H2D), stream)
        assert hip.code("hipStreamQuery", stream) == SUCCESS
    hip.ok("hipFree", device)


def test_managed_memory_moves_where_it_is_asked_to(hip: Hip) -> None:
    managed = hip.value(ctypes.c_void_p, "hipMallocManaged", 1 << 20, ctypes.c_uint(1))
    before = hip.activation.moved_bytes(0, 2)
    hip.ok("hipMemAdvise", managed, 1 << 20, ctypes.c_int(100), ctypes.c_int(0))
    hip.ok("hipMemPrefetchAsync", managed, 1 << 20, ctypes.c_int(2), None)
    hip.ok("hipDeviceSynchronize")
    assert hip.activation.moved_bytes(0, 2) - before == 1 << 20
    assert hip.code("hipMemPrefetchAsync", managed, 1 << 20, ctypes.c_int(9), None) == INVALID_DEVICE
    hip.ok("hipFree", managed)


def test_host_copies_stay_in_their_allocations(hip: Hip) -> None:
    from pytest_transferbench.emulator import EmulatorError

    device, pinned = hip.malloc(64), hip.host_malloc(64)
    with pytest.raises(EmulatorError, match=r"^host copy of 65 bytes from .* with 1 threads refused: hipError 1$"):
        hip.activation.host_copy([device], [pinned], 65, 1)
    with pytest.raises(EmulatorError, match="with 0 threads refused"):
        hip.activation.host_copy([device], [pinned], 64, 0)
    hip.ok("hipFree", device)
    hip.ok("hipHostFree", pinned)

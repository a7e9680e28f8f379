"""Every access of a kernel is looked at: what is out of bounds or not enabled faults, the rest is counted exactly."""

from __future__ import annotations

import ctypes
import struct

import pytest

from tests.emulator.hip import HOST, ILLEGAL_ADDRESS, SUCCESS, Hip

# The first store makes the allocation the one at hand, so that both ways to look at an access are taken.
BYTES = r"""
#define BEFORE(p) if (warm) *p = 1; asm volatile("" ::: "memory")
extern "C" __global__ void store_byte(char* p, size_t at, int warm) { BEFORE(p); p[at] = 7; }
extern "C" __global__ void load_byte(char* p, size_t at, char* out) { *out = p[at]; }
struct alignas(16) quad { unsigned x, y, z, w; };
extern "C" __global__ void store_quad(char* p, size_t at, int warm) { BEFORE(p); *(quad*)(p + at) = quad{1, 2, 3, 4}; }
struct __attribute__((packed)) loose { unsigned long long value; };
extern "C" __global__ void store_loose(char* p, size_t at, int warm) { BEFORE(p); ((loose*)(p + at))->value = 1; }
extern "C" __global__ void move(char* to, const char* from, size_t n) { memcpy(to, from, n); }
"""

COPY = r"""
struct alignas(16) quad { unsigned x, y, z, w; };
extern "C" __global__ void copy(quad* to, const quad* from, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = from[i];
}
extern "C" __global__ void add_two(unsigned* to, const unsigned* a, const unsigned* b, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    to[i] = a[i] + b[i];
}
extern "C" __global__ void copy_volatile(unsigned long long* to, const volatile unsigned long long* from, size_t n) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void copy_bytes(char* __restrict__ to, const char* __restrict__ from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = from[i];
}
extern "C" __global__ void fill_bytes(char* to, const char*, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = 0;
}
"""


@pytest.mark.parametrize(
    ("kernel", "size", "at", "fault"),
    [
        ("store_byte", 4096, 4095, False),
        ("store_byte", 4096, 4096, True),
        ("store_byte", 4096, -1, True),
        ("store_byte", 4099, 4098, False),
        ("store_byte", 4099, 4099, True),
        ("store_byte", 3, 2, False),
        ("store_byte", 3, 3, True),
        ("store_quad", 4096, 4080, False),
        ("store_quad", 4088, 4080, True),
        ("store_quad", 4096, 4096, True),
        ("store_quad", 4096, -16, True),
        ("store_quad", 8, 0, True),
        ("store_loose", 4099, 4091, False),
        ("store_loose", 4099, 4092, True),
        ("store_loose", 4096, -1, True),
    ],
)
@pytest.mark.parametrize("warm", [0, 1])
def test_one_byte_past_an_allocation_faults(hip: Hip, kernel: str, size: int, at: int, fault: bool, warm: int) -> None:
    pointer = hip.malloc(size)
    function = hip.kernel(BYTES, kernel)
    assert hip.run(function, 1, 1, pointer, at, ctypes.c_int(warm)) == (ILLEGAL_ADDRESS if fault else SUCCESS)
    hip.ok("hipDeviceReset")  # it gives the memory of a lost device back
    if not fault:
        hip.ok("hipFree", pointer)


def test_memcpy_in_a_kernel_is_checked_at_both_ends(hip: Hip) -> None:
    source, target = hip.malloc(100), hip.malloc(100)
    move = hip.kernel(BYTES, "move")
    hip.write(source, bytes(range(100)))
    assert hip.run(move, 1, 1, target, source, 100) == SUCCESS
    assert hip.read(target, 100) == bytes(range(100))
    assert hip.run(move, 1, 1, target, source + 1, 100) == ILLEGAL_ADDRESS
    hip.ok("hipDeviceReset")
    source, target = hip.malloc(100), hip.malloc(100)
    assert hip.run(move, 1, 1, target + 1, source, 100) == ILLEGAL_ADDRESS


def test_a_fault_names_kernel_device_and_address(hip: Hip, capfd: pytest.CaptureFixture[str]) -> None:
    pointer = hip.malloc(4096, device=2)
    store = hip.kernel(BYTES, "store_byte", device=2)
    assert hip.run(store, 1, 1, pointer, 4096, ctypes.c_int(0)) == ILLEGAL_ADDRESS
    line = (
        f"kernel store_byte on device 2: store of 1 bytes at {pointer + 4096:#x} is illegal: "
        "it ends 1 bytes past an allocation of 4096 bytes on device 2"
    )
    assert hip.activation.last_fault() == line
    assert capfd.readouterr().err == f"transferbench emulator: {line}\n"


def test_a_fault_sticks_to_its_device_until_reset(hip: Hip) -> None:
    pointer = hip.malloc(64)
    store = hip.kernel(BYTES, "store_byte")
    assert hip.run(store, 1, 1, pointer, 64, ctypes.c_int(0)) == ILLEGAL_ADDRESS
    assert hip.launch(store, 1, 1, pointer, 0, ctypes.c_int(0)) == ILLEGAL_ADDRESS
    assert hip.code("hipDeviceSynchronize") == ILLEGAL_ADDRESS
    hip.set_device(1)
    assert hip.code("hipDeviceSynchronize") == SUCCESS
    hip.set_device(0)
    assert hip.code("hipFree", pointer) == ILLEGAL_ADDRESS
    hip.ok("hipDeviceReset")
    pointer = hip.malloc(64)
    assert hip.run(store, 1, 1, pointer, 0, ctypes.c_int(0)) == SUCCESS
    hip.ok("hipFree", pointer)


def test_the_programs_own_memory_is_no_device_memory(hip: Hip) -> None:
    ordinary = ctypes.create_string_buffer(64)
    assert (
        hip.run(hip.kernel(BYTES, "store_byte"), 1, 1, ctypes.addressof(ordinary), 0, ctypes.c_int(0))
        == ILLEGAL_ADDRESS
    )


def test_memory_of_a_peer_needs_access(hip: Hip) -> None:
    theirs, ours = hip.malloc(64, device=6), hip.malloc(64, device=4)
    load = hip.kernel(BYTES, "load_byte", device=4)
    assert hip.run(load, 1, 1, theirs, 0, ours) == ILLEGAL_ADDRESS
    assert hip.activation.last_fault().endswith("it belongs to device 6, and peer access from device 4 is not enabled")
    hip.ok("hipDeviceReset")
    ours = hip.malloc(64, device=4)
    hip.enable_peer(4, 6)
    hip.write(theirs, b"\x2a" * 64)
    assert hip.run(load, 1, 1, theirs, 5, ours) == SUCCESS
    assert hip.read(ours, 1) == b"\x2a"
    hip.set_device(4)
    hip.ok("hipDeviceDisablePeerAccess", ctypes.c_int(6))
    assert hip.run(load, 1, 1, theirs, 5, ours) == ILLEGAL_ADDRESS


def test_pinned_and_managed_memory_are_open_to_all(hip: Hip) -> None:
    pinned = hip.host_malloc(64)
    managed = hip.value(ctypes.c_void_p, "hipMallocManaged", 64, ctypes.c_uint(1))
    for device in (0, 3):
        hip.set_device(device)
        for pointer in (pinned, managed):
            assert (
                hip.run(hip.kernel(BYTES, "store_byte", device=device), 1, 1, pointer, 63, ctypes.c_int(0)) == SUCCESS
            )
    assert ctypes.string_at(pinned, 64)[63] == 7
    hip.ok("hipHostFree", pinned)
    hip.ok("hipFree", managed)


def moved(hip: Hip, ends: list[tuple[int, int]]) -> list[int]:
    return [hip.activation.moved_bytes(source, destination) for source, destination in ends]


@pytest.mark.parametrize(("grid", "block"), [(1, 64), (7, 256), (304, 256)])
def test_bytes_of_a_pull_and_a_push_are_exact(hip: Hip, grid: int, block: int) -> None:
    nbytes = 3 << 20
    near, far = hip.malloc(nbytes, device=0), hip.malloc(nbytes, device=1)
    hip.enable_peer(0, 1)
    copy = hip.kernel(COPY, "copy")
    ways = [(1, 0), (0, 1), (0, 0), (1, 1)]
    before = moved(hip, ways)
    assert hip.run(copy, grid, block, near, far, nbytes // 16) == SUCCESS
    pulled = moved(hip, ways)
    assert [b - a for a, b in zip(before, pulled, strict=True)] == [nbytes, 0, nbytes, 0]
    assert hip.run(copy, grid, block, far, near, nbytes // 16) == SUCCESS
    assert [b - a for a, b in zip(pulled, moved(hip, ways), strict=True)] == [0, nbytes, nbytes, 0]
    hip.ok("hipFree", near)
    hip.ok("hipFree", far)


def test_bytes_of_two_sources_read_in_turn_are_exact(hip: Hip) -> None:
    words = 10007
    one, other, here = (hip.malloc(4 * words, device=device) for device in (1, 2, 0))
    hip.enable_peer(0, 1)
    hip.enable_peer(0, 2)
    ways = [(1, 0), (2, 0), (0, 0)]
    before = moved(hip, ways)
    assert hip.run(hip.kernel(COPY, "add_two"), 3, 100, here, one, other, words) == SUCCESS
    assert [b - a for a, b in zip(before, moved(hip, ways), strict=True)] == [4 * words] * 3
    for pointer in (one, other, here):
        hip.ok("hipFree", pointer)


@pytest.mark.parametrize(("kernel", "read"), [("copy_bytes", 1000), ("fill_bytes", 0)])
def test_loops_that_a_compiler_could_replace_by_calls_are_counted(hip: Hip, kernel: str, read: int) -> None:
    source, target = hip.malloc(1000, device=1), hip.malloc(1000, device=2)
    hip.enable_peer(0, 1)
    hip.enable_peer(0, 2)
    before = moved(hip, [(1, 0), (0, 2)])
    assert hip.run(hip.kernel(COPY, kernel), 1, 1, target, source, 1000) == SUCCESS
    assert [b - a for a, b in zip(before, moved(hip, [(1, 0), (0, 2)]), strict=True)] == [read, 1000]
    hip.ok("hipFree", source)
    hip.ok("hipFree", target)


def test_a_copy_through_volatile_loads_is_counted(hip: Hip) -> None:
    words = 5000
    source, target = hip.malloc(8 * words, device=1), hip.malloc(8 * words, device=0)
    hip.enable_peer(0, 1)
    before = hip.activation.moved_bytes(1, 0)
    assert hip.run(hip.kernel(COPY, "copy_volatile"), 1, 64, target, source, words) == SUCCESS
    assert hip.activation.moved_bytes(1, 0) - before == 8 * words
    hip.ok("hipFree", source)
    hip.ok("hipFree", target)


def test_more_buffers_than_are_kept_at_hand(hip: Hip) -> None:
    """Twenty buffers read in turn by one thread: ranges are looked up again and again, and no byte is lost."""
    source = r"""
    extern "C" __global__ void gather(unsigned* out, unsigned** from, unsigned buffers, unsigned rounds) {
      unsigned sum = 0;
      for (unsigned r = 0; r < rounds; ++r)
        for (unsigned b = 0; b < buffers; ++b) sum += from[b][r];
      out[0] = sum;
    }
    """
    buffers, rounds = 20, 16
    pointers = [hip.malloc(4 * rounds, device=1) for _ in range(buffers)]
    table, out = hip.malloc(8 * buffers), hip.malloc(4)
    for pointer in pointers:
        hip.write(pointer, (1).to_bytes(4, "little") * rounds)
    hip.write(table, b"".join(pointer.to_bytes(8, "little") for pointer in pointers))
    hip.enable_peer(0, 1)
    before = hip.activation.moved_bytes(1, 0)
    arguments = (out, table, ctypes.c_uint(buffers), ctypes.c_uint(rounds))
    assert hip.run(hip.kernel(source, "gather"), 1, 1, *arguments) == SUCCESS
    assert hip.activation.moved_bytes(1, 0) - before == 4 * rounds * buffers
    assert int.from_bytes(hip.read(out, 4), "little") == rounds * buffers
    for pointer in (*pointers, table, out):
        hip.ok("hipFree", pointer)


def test_bytes_of_contended_atomics_are_the_same_every_time(hip: Hip) -> None:
    source = r"""
    extern "C" __global__ void all(unsigned long long* p, float* f) {
      const unsigned long long me = blockIdx.x * 7919ull % 1000 + threadIdx.x;
      atomicAdd(p, me);
      atomicMin(p + 1, me);
      atomicMax(p + 2, me);
      atomicOr(p + 3, me);
      atomicAdd(f, 1.0f);
    }
    """
    numbers, real = hip.malloc(32, device=1), hip.malloc(4, device=1)
    hip.enable_peer(0, 1)
    kernel = hip.kernel(source, "all")
    threads = 200 * 64
    for _ in range(5):
        hip.write(numbers, bytes(8) + b"\xff" * 8 + bytes(16))
        hip.write(real, bytes(4))
        before = moved(hip, [(1, 0), (0, 1)])
        assert hip.run(kernel, 200, 64, numbers, real) == SUCCESS
        # Minimum, maximum and the sum of floats read before they write; the others only write.
        expected = [threads * (8 + 8 + 4), threads * (4 * 8 + 4)]
        assert [b - a for a, b in zip(before, moved(hip, [(1, 0), (0, 1)]), strict=True)] == expected
        values = memoryview(hip.read(numbers, 32)).cast("Q")
        each = [block * 7919 % 1000 + thread for block in range(200) for thread in range(64)]
        assert (values[0], values[1], values[2]) == (sum(each), min(each), max(each))
        assert struct.unpack("f", hip.read(real, 4)) == (threads,)
    hip.ok("hipFree", numbers)
    hip.ok("hipFree", real)


def test_host_traffic_has_its_own_way(hip: Hip) -> None:
    pinned, device = hip.host_malloc(4096), hip.malloc(4096)
    ways = [(HOST, 0), (0, HOST)]
    before = moved(hip, ways)
    copy = hip.kernel(COPY, "copy")
    assert hip.run(copy, 1, 64, device, pinned, 256) == SUCCESS
    assert hip.run(copy, 1, 64, pinned, device, 128) == SUCCESS
    assert [b - a for a, b in zip(before, moved(hip, ways), strict=True)] == [4096, 2048]
    hip.ok("hipHostFree", pinned)
    hip.ok("hipFree", device)

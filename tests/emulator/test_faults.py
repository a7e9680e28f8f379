"""Planned faults: which use of which call fails, with what, for how long, and what a lost device still does."""

from __future__ import annotations

import ctypes
import fnmatch
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_transferbench.emulator import Activation, Fault, ModelError, error_codes, hip_calls, load_model
from tests.emulator.hip import D2H, H2D, ILLEGAL_ADDRESS, INVALID_DEVICE_POINTER, OUT_OF_MEMORY, SUCCESS, Hip

LAUNCH_FAILURE = 719


@pytest.fixture(autouse=True)
def nothing_left_planned(activation: Activation) -> Iterator[None]:
    yield
    activation.plan_faults()


def test_a_file_lists_faults(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(
        """
        extends = "mi300x-8"
        [[fault]]
        call = "hipMemcpyAsync"
        nth = 3
        code = "hipErrorLaunchFailure"
        [[fault]]
        call = "hipMalloc"
        nth = 1
        code = "hipErrorOutOfMemory"
        sticky = true
        device = 7
        """,
        encoding="utf-8",
    )
    model = load_model(path)
    assert model.faults == (
        Fault("hipMemcpyAsync", 3, "hipErrorLaunchFailure"),
        Fault("hipMalloc", 1, "hipErrorOutOfMemory", sticky=True, device=7),
    )
    assert load_model("mi300x-8").faults == ()


def test_a_fault_that_has_not_happened_says_how_far_it_is(activation: Activation, hip: Hip) -> None:
    planned = (
        Fault("hipMalloc", 1, "hipErrorOutOfMemory"),
        Fault("hipMalloc", 3, "hipErrorOutOfMemory"),
        Fault("hipMalloc", 2, "hipErrorOutOfMemory", device=1),
        Fault("hipMemcpyAsync", 1, "hipErrorLaunchFailure"),
    )
    activation.plan_faults(planned)
    assert activation.pending_faults() == [(number, fault, 0) for number, fault in enumerate(planned, 1)]
    pointer = ctypes.c_void_p()
    assert hip.code("hipMalloc", ctypes.byref(pointer), 4096) == OUT_OF_MEMORY
    hip.ok("hipFree", hip.malloc(4096))
    assert activation.pending_faults() == [(2, planned[1], 2), (3, planned[2], 0), (4, planned[3], 0)]
    activation.plan_faults()
    assert activation.pending_faults() == []


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("call = 'hipMaloc'", "fault 1.call = 'hipMaloc' is not in the emulated HIP; meant: hipMalloc*"),
        ("call = 'cudaFoo'", "fault 1.call = 'cudaFoo' is not in the emulated HIP; meant: none is near it"),
        ("code = 'OutOfMemory'", "fault 1.code = 'OutOfMemory' is not in the emulated HIP; meant: hipErrorOutOfMemory"),
        ("code = 2", "fault 1.code = 2 must be a text"),
        ("nth = 0", "fault 1.nth = 0 must be a whole number from 1 to 1000000000"),
        ("nth = 1.5", "fault 1.nth = 1.5 must be a whole number from 1 to 1000000000"),
        ("sticky = 1", "fault 1.sticky = 1 must be true or false"),
        ("device = 8", "fault 1.device = 8 must be a whole number from 0 to 7"),
        ("device = -1", "fault 1.device = -1 must be a whole number from 0 to 7"),
        ("times = 2", "fault 1.times is no key of a node model"),
    ],
)
def test_a_bad_fault_is_refused_in_one_line(tmp_path: Path, entry: str, message: str) -> None:
    good = {"call": "'hipMalloc'", "nth": "1", "code": "'hipErrorUnknown'"}
    key, _, value = entry.partition(" = ")
    lines = "\n".join(f"{name} = {text}" for name, text in {**good, key: value}.items())
    path = tmp_path / "mine.toml"
    path.write_text(f"extends = 'mi300x-8'\n[[fault]]\n{lines}\n", encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert fnmatch.fnmatchcase(str(caught.value), f"{path}: {message}")


@pytest.mark.parametrize("call", hip_calls())
def test_every_call_fails_as_planned_under_its_own_name(hip: Hip, activation: Activation, call: str) -> None:
    """Without valid arguments: a planned fault comes before anything is looked at."""
    activation.plan_faults([Fault(call, 1, "hipErrorLaunchFailure")])
    assert hip.code(call, *[0] * 12) == LAUNCH_FAILURE
    assert activation.call_counts() == {call: 1}


def test_only_the_nth_use_fails(hip: Hip, activation: Activation) -> None:
    activation.plan_faults([Fault("hipMalloc", 2, "hipErrorOutOfMemory")])
    pointers = [ctypes.c_void_p() for _ in range(3)]
    codes = [hip.code("hipMalloc", ctypes.byref(pointer), 4096) for pointer in pointers]
    assert codes == [SUCCESS, OUT_OF_MEMORY, SUCCESS]
    assert activation.call_counts()["hipMalloc"] == 3
    for pointer in pointers:
        hip.ok("hipFree", pointer)


def test_of_two_faults_at_once_the_first_planned_wins_and_the_other_has_had_its_turn(
    hip: Hip, activation: Activation
) -> None:
    names = "hipErrorUnknown", "hipErrorLaunchFailure"
    for first, second in (names, names[::-1]):
        activation.plan_faults([Fault("hipDeviceSynchronize", 1, code) for code in (first, second)])
        codes = [hip.code("hipDeviceSynchronize") for _ in range(2)]
        assert codes == [error_codes()[first], SUCCESS]


def test_uses_are_counted_on_the_device_they_are_for(hip: Hip, activation: Activation) -> None:
    with hip.stream(0) as on_0, hip.stream(1) as on_1:
        hip.set_device(0)
        activation.plan_faults([Fault("hipStreamSynchronize", 2, "hipErrorLaunchFailure", device=1)])
        codes = [hip.code("hipStreamSynchronize", stream) for stream in (on_0, on_0, on_1, on_0, on_1, on_1)]
    assert codes == [SUCCESS, SUCCESS, SUCCESS, SUCCESS, LAUNCH_FAILURE, SUCCESS]


def test_new_faults_replace_the_old_ones_and_count_anew(hip: Hip, activation: Activation) -> None:
    activation.plan_faults([Fault("hipDeviceSynchronize", 2, "hipErrorUnknown")])
    hip.ok("hipDeviceSynchronize")
    activation.plan_faults([Fault("hipDeviceSynchronize", 2, "hipErrorLaunchFailure")])
    hip.ok("hipDeviceSynchronize")
    assert hip.code("hipDeviceSynchronize") == LAUNCH_FAILURE
    activation.plan_faults()
    assert activation.call_counts() == {}


def test_a_sticky_fault_ends_its_device_and_no_other(hip: Hip, activation: Activation) -> None:
    ended = 7  # the reset below gives all memory of a lost device back: also what tests of the engine hold of others
    before = activation.counters().allocations
    kernel = hip.kernel('extern "C" __global__ void nothing() {}', "nothing", device=ended)
    with hip.stream(ended) as stream:
        other, memory = hip.malloc(4096, device=0), hip.malloc(4096, device=ended)
        event = hip.event(ended)
        hip.ok("hipEventRecord", event, stream)
        activation.plan_faults([Fault("hipEventRecord", 1, "hipErrorLaunchFailure", sticky=True)])
        hip.set_device(0)
        assert hip.code("hipEventRecord", event, stream) == LAUNCH_FAILURE, "on the event's device"
        hip.set_device(ended)
        out, buffer = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        touching = {
            "hipMalloc": (ctypes.byref(out), 4096),
            "hipHostMalloc": (ctypes.byref(out), 4096, 0),
            "hipFree": (memory,),
            "hipMemcpy": (memory, buffer, 4096, H2D),
            "hipMemcpyAsync": (memory, buffer, 4096, H2D, stream),
            "hipMemGetInfo": (ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())),
            "hipEventRecord": (event, stream),
            "hipEventQuery": (event,),
            "hipEventSynchronize": (event,),
            "hipEventElapsedTime": (ctypes.byref(ctypes.c_float()), event, event),
            "hipStreamSynchronize": (stream,),
            "hipStreamQuery": (stream,),
            "hipStreamCreateWithFlags": (ctypes.byref(out), 1),
            "hipEventCreate": (ctypes.byref(out),),
            "hipDeviceSynchronize": (),
            "hipDeviceEnablePeerAccess": (0, 0),
        }
        assert {call: hip.code(call, *arguments) for call, arguments in touching.items()} == dict.fromkeys(
            touching, LAUNCH_FAILURE
        )
        assert hip.launch(kernel, 1, 1, stream=stream) == LAUNCH_FAILURE
        hip.ok("hipEventDestroy", event)
        hip.set_device(0)
        hip.ok("hipMemcpy", buffer, other, 4096, D2H)
        hip.ok("hipFree", other)
        hip.set_device(ended)
        hip.ok("hipDeviceReset")
        assert activation.counters().allocations == before, "a reset gives back what was the device's"
        assert hip.code("hipFree", memory) == INVALID_DEVICE_POINTER
        hip.ok("hipStreamSynchronize", stream)
        assert hip.run(kernel, 1, 1, stream=stream) == SUCCESS


def test_codes_have_their_names_and_numbers() -> None:
    codes = error_codes()
    assert (codes["hipErrorOutOfMemory"], codes["hipErrorIllegalAddress"]) == (OUT_OF_MEMORY, ILLEGAL_ADDRESS)
    assert codes["hipErrorLaunchFailure"] == LAUNCH_FAILURE
    assert "hipSuccess" not in codes


def test_the_runtime_names_every_code(hip: Hip) -> None:
    named = ctypes.CDLL(str(hip.activation.library)).hipGetErrorName
    named.restype = ctypes.c_char_p
    assert {name: named(ctypes.c_int(number)).decode() for name, number in error_codes().items()} == {
        name: name for name in error_codes()
    }

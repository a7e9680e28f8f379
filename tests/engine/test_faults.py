"""Device calls that fail: each is told, nothing of the case is kept, and a lost GPU is left alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import pytest

from pytest_transferbench.emulator import Activation, Fault, activate
from pytest_transferbench.engine import Bench
from pytest_transferbench.measurement import Measurement
from pytest_transferbench.node import Node
from pytest_transferbench.runtime import ProbeError, RuntimeFault, probe, probe_node
from pytest_transferbench.transfer import Case, Transfer
from tests.engine.fault_matrix import CASES, ELSEWHERE, FAILURE, HEADER, KIB, MODEL, FaultMatrix, Row, measure, verdict
from tests.judge.measurements import measured


@pytest.fixture(scope="module")
def matrix() -> FaultMatrix:
    return FaultMatrix()


@pytest.fixture
def activation() -> Iterator[Activation]:
    activation = activate(MODEL)
    yield activation
    activation.plan_faults()


def assert_all_right(rows: Iterable[Row]) -> None:
    """Print the table, visible with -s or -rA, and refuse any wrong row."""
    print(f"\n{HEADER}")
    wrong = []
    for row in rows:
        print(row)
        wrong += [f"{row}"] if row.wrong() else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", ["gfx", "ll"])
def test_every_call_failing_at_its_first_use(matrix: FaultMatrix, case: str) -> None:
    assert_all_right(matrix.rows(case, depth=1))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "depth"), [("gfx", 4), ("dma", 2), ("host", 2), ("cpu", 2), ("ll", 4)])
def test_every_call_failing_at_several_uses_once_and_for_good(matrix: FaultMatrix, case: str, depth: int) -> None:
    assert_all_right(matrix.rows(case, depth))


def test_a_row_says_which_use_of_how_many_and_that_a_call_is_polled() -> None:
    row = Row("gfx", Fault("hipFree", 2, FAILURE), 3, "first", (measured(),) * 4, 0, 0)
    assert f"{row}".startswith("gfx  hipFree                     2 of 3     first     once   failure ")
    polled = dataclasses.replace(row, fault=Fault("hipEventQuery", 1, FAILURE), uses=None)
    assert f"{polled}".startswith("gfx  hipEventQuery               polled     first     once   failure ")


def missing(node: Node, whole: Node) -> list[str]:
    """Return which facts of ``whole`` are not in ``node``."""
    gone = set()
    for part, of in [(node, whole), *zip(node.devices, whole.devices, strict=True)]:
        fields = [field.name for field in dataclasses.fields(of) if field.name not in ("devices", "links")]
        gone |= {name for name in fields if getattr(part, name) != getattr(of, name)}
    if node.links != whole.links:
        gone.add("links")
    return sorted(gone)


def probed(whole: Node) -> list[str] | str:
    """Return what a probed node lacks, or why there is none."""
    try:
        return missing(probe.probe_emulated(MODEL), whole)
    except ProbeError as error:
        return str(error)


def test_every_call_of_the_start_failing(activation: Activation) -> None:
    """Finding out about the machine refuses in one line, or goes on without a fact that it can do without."""
    activation.plan_faults()
    whole = probe.probe_emulated(MODEL)
    uses = activation.call_counts()
    optional: dict[str, list[str]] = {}
    print()
    for call, total in sorted(uses.items()):
        for nth in sorted({1, total}):
            activation.plan_faults([Fault(call, nth, FAILURE)])
            said = probed(whole)
            if isinstance(said, list):
                optional[call] = said
            else:
                assert "\n" not in said
                assert f"{call.removesuffix('R0600')} failed: {FAILURE}" in said
            print(f"{call:29} {nth:3} of {total:3}  {said if isinstance(said, str) else f'goes on without {said}'}")
    assert optional == {"hipDeviceGetUuid": ["uuid"], "hipExtGetLinkTypeAndHopCount": ["links"]}


def test_a_runtime_that_does_not_open_is_one_fault(activation: Activation) -> None:
    node = probe_node("emulator", MODEL)
    activation.plan_faults([Fault("hipRuntimeGetVersion", 1, FAILURE)])
    with pytest.raises(RuntimeFault, match=rf"^hipRuntimeGetVersion on the host failed: {FAILURE} unspecified"):
        Bench.open(node, MODEL)


@pytest.fixture
def small_bench(matrix: FaultMatrix, activation: Activation) -> Iterator[Bench]:
    bench = Bench.open(matrix.node, MODEL)
    yield bench
    bench.close()
    matrix.reset()


def detail(measurement: Measurement) -> str:
    (fault,) = measurement.faults
    return fault.detail


def test_a_lost_gpu_is_named_with_the_item_that_lost_it(small_bench: Bench, activation: Activation) -> None:
    activation.plan_faults([Fault("hipModuleLaunchKernel", 20, "hipErrorIllegalAddress", sticky=True, device=4)])
    first = measure(small_bench, CASES["gfx"])
    assert "hipErrorIllegalAddress an illegal memory access was encountered" in detail(first)
    lost = detail(first).removeprefix("pull-gfx-G5-G4-64K: ")
    assert detail(measure(small_bench, CASES["host"])) == (
        f"push-gfx-G4-C0-64K: GPU 4 was lost in pull-gfx-G5-G4-64K: {lost}; nothing runs on it any more, "
        "see the driver's log and start a new run"
    )
    assert verdict(measure(small_bench, CASES["cpu"])) == "OK", "GPU 5 was only read"


def test_a_lease_goes_on_after_a_fault_and_not_on_a_lost_gpu(small_bench: Bench, activation: Activation) -> None:
    with small_bench.lease(Case(CASES["gfx"], samples=1, rotate_bytes=0)) as lease:
        for sticky, said in ((False, "failed: "), (True, "failed: "), (True, "GPU 4 was lost in ")):
            activation.plan_faults([Fault("hipEventElapsedTime", 1, FAILURE, sticky)])
            measurement = small_bench.measure(lease, key="key")
            assert said in detail(measurement)
        assert activation.call_counts() == {}, "nothing is asked of a lost GPU"
    assert small_bench.arena.held_bytes() == 0


def test_nothing_of_a_failed_case_is_kept(small_bench: Bench, activation: Activation) -> None:
    measure(small_bench, CASES["gfx"])
    held = small_bench.arena.held_bytes()
    assert held > 0
    activation.plan_faults([Fault("hipEventElapsedTime", 1, FAILURE)])
    assert verdict(measure(small_bench, CASES["gfx"])) == "DEVICE_ERROR"
    assert small_bench.arena.held_bytes() == 0


def test_running_out_says_how_much_and_what_to_do(small_bench: Bench, activation: Activation) -> None:
    for transfer in (CASES["gfx"], ELSEWHERE):  # opens the GPUs, and gives the buffers on them back
        measure(small_bench, transfer)
    activation.plan_faults([Fault("hipMalloc", 1, "hipErrorOutOfMemory", device=5)])
    free = small_bench.runtime.free_bytes(5)
    said = detail(measure(small_bench, CASES["gfx"]))
    assert said.startswith("pull-gfx-G5-G4-64K: hipMalloc on GPU 5 failed: hipErrorOutOfMemory out of memory (")
    assert said.endswith(
        "bytes are free): use smaller sizes (--transfer-sizes) or a smaller rotation (--transfer-rotate)"
    )
    asked, left = (int(part.split()[0]) for part in said.partition("(")[2].split("; "))
    assert asked == 2 * 64 * KIB
    assert left >= free, "the buffers of the case before are given back by then"


def test_memory_held_on_another_gpu_is_a_warning(small_bench: Bench, activation: Activation) -> None:
    measure(small_bench, CASES["gfx"])
    activation.plan_faults([Fault("hipFree", 1, FAILURE)])
    elsewhere = measure(small_bench, ELSEWHERE)
    assert verdict(elsewhere) == "OK"
    (warning,) = elsewhere.warnings
    assert warning.startswith("memory of an earlier case is still held: hipFree on GPU ")


def test_what_an_earlier_case_left_makes_room_for_the_next(small_bench: Bench, activation: Activation) -> None:
    measure(small_bench, CASES["gfx"])
    activation.plan_faults([Fault("hipMalloc", 1, "hipErrorOutOfMemory")])
    larger = Transfer.pull("G5", "G4", 1024 * KIB)
    assert verdict(measure(small_bench, larger)) == "OK"


def test_host_memory_is_not_asked_of_a_lost_gpu(
    small_bench: Bench, activation: Activation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is allocated for the device that is current, and the lost one was the last one used."""
    from_host = Transfer.pull("C0", "G6", 64 * KIB)
    to_host = Transfer.push("G7", "C0", 64 * KIB)
    measure(small_bench, to_host)
    activation.plan_faults([Fault("hipEventElapsedTime", 1, FAILURE, sticky=True, device=7)])
    made_current: list[int] = []
    left_current: list[int] = []
    use, find_lost = small_bench.runtime._use, small_bench.find_lost
    monkeypatch.setattr(small_bench.runtime, "_use", lambda device: (made_current.append(device), use(device)))
    monkeypatch.setattr(
        small_bench, "find_lost", lambda *found: (find_lost(*found), left_current.append(made_current[-1]))
    )
    assert verdict(measure(small_bench, to_host)) == "DEVICE_ERROR"
    assert len(left_current) == 1
    assert left_current != [7]
    assert verdict(measure(small_bench, from_host)) == "OK"


def test_a_call_that_fails_behind_the_gate_leaves_it_open(small_bench: Bench) -> None:
    context = small_bench.device(4)
    with pytest.raises(RuntimeFault), small_bench.gate.closed(context):
        raise RuntimeFault("call", 4, FAILURE)
    context.synchronize()
    assert not small_bench.gate.timed_out()

"""The calls of ROCr for copies by one engine, on a library that reads their arguments as C does."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest

from pytest_transferbench.runtime import RuntimeFault, hsa
from pytest_transferbench.runtime.hip_api import HipApi
from pytest_transferbench.runtime.host import RealHost
from pytest_transferbench.runtime.rocm import RocmRuntime

from .fake_hsa import FakeHsa
from .fakes import FakeCudaRuntime, FakeHip, FakeHipProperties, FakeHiprtc, install_cupy

NBYTES = 4096
CPU, GPU, PEER = 11, 22, 33


class Machine:
    """Memory of a CPU and of two GPUs, and who copies between them."""

    def __init__(self, fake: FakeHsa) -> None:
        self.fake = fake
        self.memory = {agent: np.full(NBYTES, agent, np.uint8) for agent in (CPU, GPU, PEER)}
        for agent, memory in self.memory.items():
            fake.allocated(memory.ctypes.data, NBYTES, agent)
        self.api = hsa.HsaApi(fake.path)

    def address(self, agent: int) -> int:
        return int(self.memory[agent].ctypes.data)


@pytest.fixture
def fake(tmp_path: Path) -> FakeHsa:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    made = FakeHsa(tmp_path)
    made.set("engines", 0b1010)
    return made


@pytest.fixture
def machine(fake: FakeHsa) -> Machine:
    return Machine(fake)


def test_a_library_without_the_call_is_not_there(fake: FakeHsa) -> None:
    assert hsa.available(fake.path)
    assert not hsa.available("libc.so.6")
    assert not hsa.available("libno-such-thing.so.1")


@pytest.mark.parametrize(("to", "of"), [(PEER, GPU), (CPU, GPU), (GPU, CPU)])
def test_a_copy_is_made_by_the_engine_asked_for(machine: Machine, to: int, of: int) -> None:
    copy = machine.api.route(3, machine.address(to), machine.address(of))
    copy(machine.address(to) + 64, machine.address(of) + 128, 1024)
    copy(machine.address(to) + 2048, machine.address(of), 4)
    assert machine.fake.copies() == {3: 2}
    moved = machine.memory[to] == of
    assert np.flatnonzero(moved).tolist() == [*range(64, 64 + 1024), *range(2048, 2052)]


def test_an_engine_that_does_not_serve_the_ends_is_named_beside_those_that_do(machine: Machine) -> None:
    with pytest.raises(hsa.HsaError, match=r"^engine 2 does not copy between these ends; 1, 3 would$") as caught:
        machine.api.route(2, machine.address(GPU), machine.address(PEER))
    assert caught.value.call == "hsa_amd_memory_copy_engine_status"
    machine.fake.set("engines", 0)
    with pytest.raises(hsa.HsaError, match="between these ends; none would"):
        machine.api.route(3, machine.address(GPU), machine.address(PEER))


def test_within_a_device_nobody_is_asked_which_engines_there_are(machine: Machine) -> None:
    machine.api.route(2, machine.address(GPU), machine.address(GPU) + 2048)(
        machine.address(GPU), machine.address(GPU) + 2048, 1024
    )
    assert machine.fake.copies() == {2: 1}


def test_memory_that_rocr_has_not_given_out_is_refused(machine: Machine) -> None:
    elsewhere = np.zeros(64, np.uint8)
    with pytest.raises(hsa.HsaError, match=r"^0x[0-9a-f]+ is in no memory that ROCr has given out$"):
        machine.api.route(1, machine.address(GPU), elsewhere.ctypes.data)


def test_a_refusal_is_told_in_rocrs_own_words(machine: Machine) -> None:
    copy = machine.api.route(1, machine.address(PEER), machine.address(GPU))
    machine.fake.set("refusal", 0x1001)
    with pytest.raises(hsa.HsaError, match=r"^HSA_STATUS_ERROR_INVALID_ARGUMENT: One of the arguments") as caught:
        copy(machine.address(PEER), machine.address(GPU), 64)
    assert (caught.value.call, caught.value.code) == ("hsa_amd_memory_async_copy_on_engine", "0x1001")
    machine.fake.set("refusal", 0x1FFF)
    with pytest.raises(hsa.HsaError, match=r"^no description$"):
        copy(machine.address(PEER), machine.address(GPU), 64)
    copy(machine.address(PEER), machine.address(GPU), 64)
    assert machine.memory[PEER][0] == GPU


def test_a_copy_that_fails_while_it_runs_is_no_copy(machine: Machine) -> None:
    copy = machine.api.route(1, machine.address(PEER), machine.address(GPU))
    machine.fake.set("outcome", -1, ctypes.c_int64)
    with pytest.raises(hsa.HsaError, match="failed while it ran"):
        copy(machine.address(PEER), machine.address(GPU), 64)


def test_a_copy_that_never_ends_is_waited_for_no_longer_than_the_deadline(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hsa, "DEADLINE_SECONDS", 0.05)
    copy = machine.api.route(1, machine.address(PEER), machine.address(GPU))
    machine.fake.set("outcome", 1, ctypes.c_int64)
    with pytest.raises(hsa.HsaError, match="nothing arrived within 0 s") as caught:
        copy(machine.address(PEER), machine.address(GPU), 64)
    assert caught.value.code == "TIMEOUT"
    machine.fake.set("outcome", 0, ctypes.c_int64)
    with pytest.raises(hsa.HsaError, match="an earlier copy is still under way"):
        copy(machine.address(PEER), machine.address(GPU), 64)
    machine.api.close()
    assert machine.fake.number("signals") == 1, "the engine may still write to it"


def test_rocr_is_given_up_as_often_as_it_was_opened(machine: Machine) -> None:
    assert (machine.fake.number("users"), machine.fake.number("signals")) == (1, 1)
    machine.api.close()
    assert (machine.fake.number("users"), machine.fake.number("signals")) == (0, 0)


@pytest.fixture
def runtime(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RocmRuntime:
    install_cupy(monkeypatch, FakeCudaRuntime())
    opened, path = hsa.HsaApi, machine.fake.path
    monkeypatch.setattr(hsa, "HsaApi", lambda: opened(path))
    return RocmRuntime(RealHost(), HipApi(FakeHip([FakeHipProperties()]), FakeHiprtc()), tmp_path)


def test_the_runtime_opens_rocr_once_and_closes_it(machine: Machine, runtime: RocmRuntime) -> None:
    machine.api.close()
    for _ in range(2):
        runtime.engine_copy(0, 3, machine.address(CPU), machine.address(GPU))(
            machine.address(CPU), machine.address(GPU), NBYTES
        )
    assert (machine.memory[CPU] == GPU).all()
    assert machine.fake.number("users") == 1
    runtime.close()
    assert machine.fake.number("users") == 0


def test_what_rocr_refuses_is_a_fault_of_the_gpu(machine: Machine, runtime: RocmRuntime) -> None:
    with pytest.raises(
        RuntimeFault,
        match=r"^hsa_amd_memory_copy_engine_status on GPU 0 failed: NO_SUCH_ENGINE engine 0 .* \(DMA engine 0\)$",
    ):
        runtime.engine_copy(0, 0, machine.address(CPU), machine.address(GPU))
    copy = runtime.engine_copy(0, 1, machine.address(CPU), machine.address(GPU))
    machine.fake.set("refusal", 0x1004)
    with pytest.raises(RuntimeFault, match=r"async_copy_on_engine on GPU 0 failed: 0x1004 HSA_STATUS_ERROR_INVALID_AG"):
        copy(machine.address(CPU), machine.address(GPU), 64)


def test_without_the_library_it_is_a_fault_too(
    machine: Machine, runtime: RocmRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> hsa.HsaApi:
        raise OSError("libhsa-runtime64.so.1: cannot open shared object file")

    monkeypatch.setattr(hsa, "HsaApi", missing)
    with pytest.raises(RuntimeFault, match=r"^engine_copy on GPU 0 failed: OSError libhsa-runtime64\.so\.1: cannot"):
        runtime.engine_copy(0, 0, machine.address(CPU), machine.address(GPU))

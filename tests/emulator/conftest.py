"""One process has one emulated node: all tests here that need one share it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_transferbench.emulator import Activation, EmulatorError, activate
from tests.emulator.gate import Gate
from tests.emulator.hip import Hip

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def activation() -> Activation:
    try:
        return activate("mi300x-8")
    except EmulatorError as error:
        if "use another environment" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture
def hip(activation: Activation) -> Iterator[Hip]:
    """The runtime, with every device usable again afterwards, even after a fault."""
    hip = Hip(activation)
    hip.set_device(0)
    yield hip
    for device in range(activation.model.device.count):
        hip.set_device(device)
        hip.ok("hipDeviceReset")
    hip.set_device(0)


@pytest.fixture
def flag(hip: Hip) -> Iterator[ctypes.c_uint64]:
    """A 64-bit word in pinned memory that kernels wait on; a test that fails leaves no kernel waiting."""
    pointer = hip.host_malloc(64)
    word = ctypes.c_uint64.from_address(pointer)
    word.value = 0
    yield word
    word.value = 1 << 63
    hip.ok("hipHostFree", pointer)


@pytest.fixture
def gate(hip: Hip, flag: ctypes.c_uint64) -> Gate:
    return Gate(hip, flag)


@pytest.fixture
def run_child(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python source in a fresh process of its own."""

    def run(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / f"child_{len(list(tmp_path.glob('child_*')))}.py"
        script.write_text(source, encoding="utf-8")
        paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONPATH": paths, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run

"""Building and activating: one line for whatever is missing, and never half a build."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_transferbench.emulator import Activation, EmulatorError, activate
from pytest_transferbench.emulator import build as building

Child = Callable[..., subprocess.CompletedProcess[str]]

ACTIVATE = """
from pytest_transferbench.emulator import EmulatorError, activate
{before}
try:
    activation = activate({model!r})
except EmulatorError as error:
    print(error)
else:
    print("active", activation.library)
{after}
"""


def source(model: str = "mi300x-8", before: str = "", after: str = "") -> str:
    return ACTIVATE.format(model=model, before=before, after=after)


def test_the_same_node_again_is_the_same_activation(activation: Activation) -> None:
    assert activate("mi300x-8") is activation


def test_another_node_is_refused(activation: Activation, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("extends = 'mi300x-8'\n[gfx]\nlaunch_us = 1\n")
    with pytest.raises(
        EmulatorError, match=r"^this process already runs on the emulated node mi300x-8; start another for other$"
    ):
        activate(other)


def test_activation_comes_before_the_first_import(activation: Activation, run_child: Child) -> None:
    # Any library called libamdhip64 stands for a real runtime here.
    before = f"import ctypes; ctypes.CDLL({str(activation.library)!r})"
    assert run_child(source(before=before)).stdout == (
        f"{activation.library} is already loaded with a real runtime; "
        "activate the emulated node before that, in a new process\n"
    )
    before = "import sys, types; sys.modules['cupy'] = types.ModuleType('cupy')"
    assert run_child(source(before=before)).stdout == (
        "cupy is already loaded with a real runtime; activate the emulated node before that, in a new process\n"
    )


def test_importing_hip_python_alone_is_not_too_early(activation: Activation, run_child: Child) -> None:
    done = run_child(source(before="from hip import hip", after="print(hip.hipGetDeviceCount()[1])"))
    assert done.stdout.splitlines() == [f"active {activation.library}", "8"]


def test_without_a_compiler(activation: Activation, run_child: Child) -> None:
    done = run_child(source(), PATH="/nonexistent")
    assert done.stdout == ("the emulated node needs a C++ compiler: install g++ (Debian/Ubuntu: apt-get install g++)\n")


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ([], 'the emulated node needs cupy-rocm-7-0: pip install "pytest-transferbench[emulator]"'),
        (["cupy-rocm-7-0"], 'the emulated node needs hip-python: pip install "pytest-transferbench[emulator]"'),
        (
            ["cupy-cuda13x", "hip-python"],
            "the emulated node needs the wheel cupy-rocm-7-0, but cupy-cuda13x is installed: use another environment",
        ),
        (
            ["cupy-rocm-6-4", "hip-python"],
            "the emulated node needs the wheel cupy-rocm-7-0, but cupy-rocm-6-4 is installed: use another environment",
        ),
    ],
)
def test_without_the_wheels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: list[str], message: str
) -> None:
    class Distribution:
        version = "1"

        def __init__(self, name: str) -> None:
            self.metadata = {"Name": name}

    monkeypatch.setattr(building.importlib.metadata, "distributions", lambda: [Distribution(n) for n in installed])
    monkeypatch.setattr(building.shutil, "which", lambda name: sys.executable)
    with pytest.raises(EmulatorError) as caught:
        building.build(tmp_path)
    assert str(caught.value) == message


def test_a_compiler_that_fails_is_quoted(activation: Activation, run_child: Child, tmp_path: Path) -> None:
    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)
    path = f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"
    done = run_child(source(), PATH=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.stdout == "building the emulated runtime failed: g++: x.cpp:1: error: no such thing\n"
    left = [entry.name for entry in (tmp_path / "cache" / "pytest-transferbench" / "emulator").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


def test_a_cache_that_cannot_be_written_is_one_line(activation: Activation, run_child: Child, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_child(source(), XDG_CACHE_HOME=str(tmp_path / "file"))
    assert done.stdout.startswith("cannot build the emulated runtime in ")
    assert done.stdout.count("\n") == 1


def test_the_folder_of_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(cache: str, home: str) -> str:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        monkeypatch.setenv("HOME", home)
        return str(building.cache_folder())

    assert given("/caches", "/home/a") == "/caches/pytest-transferbench/emulator"
    assert given("", "/home/a") == "/home/a/.cache/pytest-transferbench/emulator"
    assert given("caches", "/home/a") == "/home/a/.cache/pytest-transferbench/emulator"
    with pytest.raises(EmulatorError, match=r"^no emulated runtime can be built in '/a\\nb': set XDG_CACHE_HOME to "):
        given("/a\nb", "/home/a")
    with pytest.raises(EmulatorError, match=r"^no home folder .*: set XDG_CACHE_HOME to a folder's full path$"):
        given("caches", "")


def test_what_killed_builds_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, alive = tmp_path / "building-dead", tmp_path / "building-alive"
    for folder in (dead, alive):
        (folder / "work").mkdir(parents=True)
    day = 24 * 3600
    os.utime(dead, (time.time() - day - 60,) * 2)
    os.utime(alive, (time.time() - day + 60,) * 2)
    monkeypatch.setattr(building, "_compile_all", lambda *arguments: None)
    monkeypatch.setattr(building, "_link_all", lambda *arguments: None)
    monkeypatch.setattr(building, "_find_compiler", lambda: sys.executable)
    monkeypatch.setattr(building, "_find_wheels", dict)
    made = building.build(tmp_path)
    assert {entry for entry in tmp_path.iterdir() if entry.is_dir()} == {alive, made.root}


def test_cupys_code_objects_stay_apart(activation: Activation, run_child: Child) -> None:
    done = run_child(source(after="import os; print(os.environ['CUPY_CACHE_DIR'], os.environ['ROCM_PATH'])"))
    root = activation.library.parents[1]
    assert done.stdout.splitlines()[-1] == f"{root / 'cupy'} {root}"


@pytest.mark.slow
def test_two_processes_build_once(activation: Activation, run_child: Child, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor() as pool:
        children = [pool.submit(run_child, source(), XDG_CACHE_HOME=str(cache)) for _ in range(2)]
        lines = {child.result().stdout for child in children}
    assert len(lines) == 1
    assert lines.pop().startswith("active ")
    builds = [entry for entry in (cache / "pytest-transferbench" / "emulator").iterdir() if entry.is_dir()]
    assert len(builds) == 1
    assert sorted(entry.name for entry in builds[0].iterdir()) == ["bin", "include", "kernels", "kfd", "lib"]


def test_an_older_hip_python_opens_the_plain_names(activation: Activation, run_child: Child) -> None:
    """hip-python up to 7 asks the loader for ``libamdhip64.so`` and ``libhiprtc.so``, with no folder."""
    done = run_child(
        source(
            after="""
import ctypes
plain, real = ctypes.CDLL("libamdhip64.so"), ctypes.CDLL(str(activation.library))
address = lambda library: ctypes.cast(library.hipMalloc, ctypes.c_void_p).value
assert address(plain) == address(real)
assert ctypes.CDLL("libhiprtc.so").hiprtcVersion
"""
        )
    )
    assert done.returncode == 0, done.stderr

"""The parent's side: a child that answers, chatters, fails, dies or hangs."""

import json
import os
import select
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pytest_transferbench.node import Device, Node
from pytest_transferbench.runtime import ProbeError, probe_node, probing

NODE = Node(runtime="cuda", devices=(Device(0, "GPU", "sm_90", "0000:18:00.0", 132, 1 << 30),))


def child(tmp_path: Path, script: str) -> list[str]:
    """Return the command of a stand-in for the probe that runs ``script``."""
    path = tmp_path / "child.py"
    node = f"import json, os, signal, sys, time\nNODE = json.dumps({NODE.to_json()!r})\n"
    path.write_text(node + textwrap.dedent(script))
    return [sys.executable, str(path)]


def test_the_answer_is_found_among_noise(tmp_path: Path) -> None:
    command = child(
        tmp_path,
        """
        print('{"error": "the JSON of a library that was only warning"}')
        print("loading libfoo", end="")
        print("\\n" + '{"not": "an answer"}')
        print(NODE)
        print("{ goodbye")
        sys.stderr.write("warning: something\\n")
        """,
    )
    assert probe_node("auto", command=command) == NODE


def test_the_request_reaches_the_child(tmp_path: Path) -> None:
    command = child(tmp_path, 'print(json.dumps({"error": " ".join(sys.argv[1:])}))')
    with pytest.raises(ProbeError, match=r"^--runtime emulator --emulate mi300x-8$"):
        probe_node("emulator", "mi300x-8", command=command)


def test_the_childs_own_error_is_passed_on(tmp_path: Path) -> None:
    command = child(tmp_path, 'print(json.dumps({"error": "no ROCm: /dev/kfd is not there"})); sys.exit(1)')
    with pytest.raises(ProbeError, match=r"^no ROCm: /dev/kfd is not there$"):
        probe_node("rocm", command=command)


def test_a_killed_child_is_named_by_its_signal_and_last_words(tmp_path: Path) -> None:
    command = child(
        tmp_path, 'sys.stderr.write("first\\nld.so: assertion failed\\n"); os.kill(os.getpid(), signal.SIGSEGV)'
    )
    with pytest.raises(
        ProbeError, match=r"^probing the GPUs failed: the probe was killed by SIGSEGV: ld.so: assertion failed$"
    ):
        probe_node("rocm", command=command)


def test_a_child_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"ended with status 3: it said nothing$"):
        probe_node("rocm", command=child(tmp_path, "sys.exit(3)"))


def test_an_answer_that_is_no_node(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"^the probe's answer is not a node: "):
        probe_node("rocm", command=child(tmp_path, 'print(json.dumps({"runtime": "rocm", "devices": 3, "links": []}))'))


def ended(pid: int, within_seconds: float) -> bool:
    """Wait for a process that was killed: on a busy machine it goes on for a moment."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], within_seconds)[0])
    finally:
        os.close(process)


def test_a_child_that_hangs_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "grandchild"
    command = child(
        tmp_path,
        f"""
        if os.fork() == 0:
            open({str(mark)!r}, "w").write(str(os.getpid()))
        signal.pause()
        """,
    )
    begun = time.monotonic()
    with pytest.raises(
        ProbeError, match=r"^probing the GPUs took more than 1 s and was stopped: .* --runtime rocm' to see"
    ):
        probe_node("rocm", timeout_seconds=1, command=command)
    assert time.monotonic() - begun < 10
    assert ended(int(mark.read_text()), within_seconds=10)


def test_a_command_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"^the probe could not be started: "):
        probe_node("rocm", command=[str(tmp_path / "nothing")])


@pytest.mark.parametrize(("emulate", "seconds"), [(None, 60.0), ("mi300x-8", 300.0)])
def test_an_emulated_node_has_time_to_be_built(
    emulate: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def run(child: object, limit: float, suspicion: str) -> tuple[int, str, str]:
        limits.append(limit)
        return 0, json.dumps(NODE.to_json()), ""

    monkeypatch.setattr(probing, "_run", run)
    probe_node("auto", emulate)
    assert limits == [seconds]


@pytest.mark.parametrize("runtime", ["ROCm", "", "opencl"])
def test_an_unknown_runtime_lists_what_there_is(runtime: str) -> None:
    with pytest.raises(ProbeError, match=f"^unknown runtime '{runtime}': use one of auto, rocm, cuda, emulator, host$"):
        probe_node(runtime)


def test_emulating_on_a_real_runtime_is_a_contradiction() -> None:
    with pytest.raises(ProbeError, match=r"^emulating mi300x-8 contradicts runtime cuda: give one of them$"):
        probe_node("cuda", "mi300x-8")


def test_the_real_child_answers_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the user was taken for the standard one')")
    node = probe_node("host")
    assert (node.runtime, node.devices, node.why_no_gpu) == ("host", (), "runtime host was asked for")
    assert node.host_cpus >= 1


def test_a_lone_brace_is_no_answer() -> None:
    assert probing._last_answer('{\n{"x": 1}\n{"runtime": "host"}\n[1]\n{broken') == {"runtime": "host"}
    assert probing._last_answer("") is None

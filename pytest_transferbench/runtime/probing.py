"""Asking a child process what this machine is.

A driver that hangs, a library that kills the process and a runtime that prints on stdout must not do so to the
session that asked: the child may, and its parent says in one line what became of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_transferbench.node import Node

RUNTIMES = ("auto", "rocm", "cuda", "emulator", "host")
PROBE_SECONDS = 60.0
BUILD_SECONDS = 300.0
"""Time limit of an emulated node, whose first use on a machine compiles its runtime."""

DEFAULT_MODEL = "mi300x-8"

_MODULE = "pytest_transferbench.runtime.probe"


class ProbeError(Exception):
    """The machine could not be asked, or has not what was asked for by name; one line."""


def check_request(runtime: str, emulate: str | None) -> None:
    """Refuse, before any process is started, a request that cannot be meant; raises :class:`ProbeError`."""
    if runtime not in RUNTIMES:
        raise ProbeError(f"unknown runtime {runtime!r}: use one of {', '.join(RUNTIMES)}")
    if emulate is not None and runtime not in ("auto", "emulator"):
        raise ProbeError(f"emulating {emulate} contradicts runtime {runtime}: give one of them")


def probe_node(
    runtime: str = "auto",
    emulate: str | None = None,
    timeout_seconds: float | None = None,
    *,
    command: Sequence[str] | None = None,
) -> Node:
    """Return this machine, or the emulated one that ``emulate`` names (a model or a ``.toml`` file).

    ``auto`` takes a ROCm device, else a CUDA device, else the host alone with the reason in ``why_no_gpu``; a runtime
    asked for by name is never replaced. The time limit is 60 s, and 300 s for an emulated node. ``command`` stands in
    for the child in tests. Raises :class:`ProbeError`.
    """
    check_request(runtime, emulate)
    arguments = ["--runtime", runtime, *(["--emulate", emulate] if emulate is not None else [])]
    # -P: a file in the current directory must not stand in for a module of ours.
    child = [*(command or (sys.executable, "-P", "-m", _MODULE)), *arguments]
    emulated = emulate is not None or runtime == "emulator"
    suspicion = "is the compiler stuck?" if emulated else "is a GPU hung?"
    limit = timeout_seconds or (BUILD_SECONDS if emulated else PROBE_SECONDS)
    status, output, complaints = _run(child, limit, suspicion)
    answer = _last_answer(output)
    if answer is not None and "error" in answer:
        raise ProbeError(str(answer["error"]))
    if answer is not None:
        try:
            return Node.from_json(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise ProbeError(f"the probe's answer is not a node: {error}") from error
    last_words = (complaints.strip().splitlines() or ["it said nothing"])[-1]
    ending = f"was killed by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
    raise ProbeError(f"probing the GPUs failed: the probe {ending}: {last_words}")


def _run(child: Sequence[str], timeout_seconds: float, suspicion: str) -> tuple[int, str, str]:
    """Run the child and return (status, stdout, stderr); its whole process group dies at the time limit."""
    try:
        process = subprocess.Popen(
            child,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise ProbeError(f"the probe could not be started: {error}") from error
    try:
        output, complaints = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        arguments = " ".join(child[child.index("--runtime") :])
        raise ProbeError(
            f"probing the GPUs took more than {timeout_seconds:g} s and was stopped: {suspicion} Run "
            f"'{Path(sys.executable).name} -m {_MODULE} {arguments}' to see where"
        ) from None
    except BaseException:
        _kill(process)
        raise
    return process.returncode, output, complaints


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process that waits inside a hung driver does not die at once; it is not waited for longer than this.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=2)


def _environment() -> dict[str, str]:
    """Return our environment with the folder of this package on the child's path: a bare checkout is not installed."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *([inherited] if inherited else [])])}


def _last_answer(output: str) -> dict[str, Any] | None:
    """Return the last line that is an answer of the probe; libraries print on stdout before and after it."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if isinstance(answer, dict) and ("error" in answer or "runtime" in answer):
                return answer
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""The probing child: ``python -m pytest_transferbench.runtime.probe`` prints one Node as a line of JSON.

Imports of vendor libraries live in functions: which of them is even there is what this module finds out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_transferbench.node import HOST, Link, LinkClass, Node
from pytest_transferbench.runtime import host_facts
from pytest_transferbench.runtime.probing import DEFAULT_MODEL, RUNTIMES, ProbeError, check_request

if TYPE_CHECKING:
    from pytest_transferbench.emulator import NodeModel

KFD_DEVICE = Path("/dev/kfd")
NVIDIA_DEVICE = Path("/dev/nvidiactl")
ROCM_ROOTS = ("/opt/rocm/lib", "/opt/rocm/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")


def probe(runtime: str, emulate: str | None) -> Node:
    """Return the node of one runtime, probed in this process; raises :class:`ProbeError`."""
    check_request(runtime, emulate)
    if emulate is not None or runtime == "emulator":
        return probe_emulated(emulate or DEFAULT_MODEL)
    if runtime == "rocm":
        return probe_rocm()
    if runtime == "cuda":
        return probe_cuda()
    if runtime == "host":
        return probe_host("runtime host was asked for")
    return _probe_auto()


def _probe_auto() -> Node:
    """Return the ROCm node, else the CUDA node, else the host; what stood in the way goes into ``why_no_gpu``."""
    reasons = []
    for attempt in (probe_rocm, probe_cuda):
        try:
            return attempt()
        except ProbeError as error:
            reasons.append(str(error))
    return probe_host("; ".join(reasons))


def probe_host(why_no_gpu: str) -> Node:
    """Return the machine without its GPUs."""
    return Node(
        runtime="host",
        links=(Link(HOST, HOST, LinkClass.HOST),),
        why_no_gpu=why_no_gpu,
        versions=host_facts.package_versions(),
        environment=host_facts.settings(),
        host_name=host_facts.cpu_name(),
        host_cpus=host_facts.cpu_count(),
        host_cache_bytes=host_facts.last_level_cache_bytes(),
        numa_nodes=host_facts.numa_nodes(),
    )


def probe_cuda(device_file: Path = NVIDIA_DEVICE) -> Node:
    """Return the CUDA node; raises :class:`ProbeError` with what is missing."""
    from pytest_transferbench.runtime import cuda_facts

    _require_wheel("CUDA", "cupy-cuda", "cuda13")
    runtime = _import_cupy("CUDA", "cuda13", ())
    if runtime.is_hip:
        raise ProbeError("no CUDA: the installed CuPy is the ROCm build; install pytest-transferbench[cuda13] instead")
    nvml, why_no_nvml = cuda_facts.open_nvml()
    try:
        node = cuda_facts.read_node(runtime, nvml)
    except runtime.CUDARuntimeError as error:
        hint = "" if device_file.exists() else f"; {device_file} is not there: no driver, or a container without --gpus"
        raise ProbeError(f"no CUDA device: {_first_line(error)}{hint}") from error
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()
    if not node.devices:
        raise ProbeError("no CUDA device: the driver shows none (is CUDA_VISIBLE_DEVICES empty?)")
    return _with_notes(node, [why_no_nvml] if why_no_nvml else [])


def probe_rocm(device_file: Path = KFD_DEVICE) -> Node:
    """Return the ROCm node; raises :class:`ProbeError` with what is missing."""
    from pytest_transferbench.runtime import kfd

    _require_wheel("ROCm", "cupy-rocm", "rocm")
    _require_kfd(device_file)
    return _read_rocm(kfd.KFD_NODES, host_facts.NUMA_NODES, None)


def probe_emulated(model: str) -> Node:
    """Return the node that a model describes, as the unmodified wheels see it."""
    from pytest_transferbench import emulator

    _require_wheel("emulated node", "cupy-rocm", "emulator")
    try:
        activation = emulator.activate(model)
    except emulator.EmulatorError as error:
        raise ProbeError(_first_line(error)) from error
    node = _read_rocm(activation.kfd_root, activation.numa_root, activation.model.name)
    return _with_notes(node, _notes_of_model(activation.model))


def _notes_of_model(model: NodeModel) -> Sequence[str]:
    """Return what a user's own file says that no figure of the node shows."""
    facts = [f"extends {model.extends}"] if model.extends else []
    if model.faults:
        facts.append(f"{len(model.faults)} planned fault{'' if len(model.faults) == 1 else 's'}")
    return [f"model {model.name} {', '.join(facts)}"] if facts else []


def _read_rocm(kfd_root: Path, numa_root: Path, emulated: str | None) -> Node:
    from pytest_transferbench.runtime import hip_api, rocm_facts

    runtime = _import_cupy("ROCm", "rocm", ROCM_ROOTS)
    if not runtime.is_hip:
        raise ProbeError("no ROCm: the installed CuPy is the CUDA build; install pytest-transferbench[rocm] instead")
    try:
        hip = hip_api.load()
        node = rocm_facts.read_node(hip, kfd_root, emulated, numa_root=numa_root)
    except ImportError as error:
        raise ProbeError(why_import_failed("ROCm", "hip-python", "rocm", error, ROCM_ROOTS)) from error
    except hip_api.HipError as error:
        raise ProbeError(f"no ROCm device: {error.call} failed: {error}") from error
    if not node.devices:
        raise ProbeError(
            "no ROCm device: the driver shows none (is ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES empty?)"
        )
    return node


def _require_wheel(runtime: str, prefix: str, extra: str) -> None:
    """Raise when no CuPy wheel of that kind is installed; a CuPy built from source may be either."""
    wheels = host_facts.cupy_wheels()
    if any(name == "cupy" or name.startswith(prefix) for name in wheels):
        return
    there = f"{', '.join(wheels)} is installed instead" if wheels else "CuPy is not installed"
    raise ProbeError(f"no {runtime}: {there}; pip install 'pytest-transferbench[{extra}]'")


def _require_kfd(device_file: Path) -> None:
    """Raise when the AMD driver's device file is missing or closed to this user."""
    if not device_file.exists():
        raise ProbeError(
            f"no ROCm: {device_file} is not there; load the amdgpu driver, or start the container with "
            "--device=/dev/kfd --device=/dev/dri"
        )
    if not os.access(device_file, os.R_OK | os.W_OK):
        raise ProbeError(
            f"no ROCm: {device_file} is not accessible; add this user to the render group "
            "(usermod -aG render,video), or start the container with --group-add render --group-add video"
        )


def _import_cupy(runtime: str, extra: str, roots: Sequence[str]) -> Any:
    """Return ``cupy.cuda.runtime``; raises :class:`ProbeError` naming the library that is missing."""
    try:
        from cupy.cuda import runtime as cupy_runtime
    except ImportError as error:
        raise ProbeError(why_import_failed(runtime, "CuPy", extra, error, roots)) from error
    return cupy_runtime


def why_import_failed(runtime: str, package: str, extra: str, error: BaseException, roots: Iterable[str]) -> str:
    """Say in one line why a vendor package did not load, with the library's exact name.

    A library of another version beside the missing one tells of ROCm 6 under wheels made for ROCm 7.
    """
    library = _missing_library(error)
    if library is None:
        if isinstance(error, ModuleNotFoundError):
            return f"no {runtime}: {package} is not installed; pip install 'pytest-transferbench[{extra}]'"
        return f"no {runtime}: {package} does not load: {_first_line(error)}"
    folders = [
        Path(folder) for folder in (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_rocm_folders(roots)) if folder
    ]
    here = next((folder for folder in folders if (folder / library).exists()), None)
    if here is not None:
        return f"no {runtime}: {package} does not find {library}, which is in {here}: set LD_LIBRARY_PATH={here}"
    stem, _, wanted = library.partition(".so")
    other = next((path for folder in folders for path in sorted(folder.glob(f"{stem}.so.[0-9]*"))), None)
    if other is not None:
        cure = f"upgrade {runtime} to {wanted[1:]}" if wanted else f"make {other.parent / library} a link to it"
        return f"no {runtime}: {package} needs {library}, but this machine has {other}: {cure}"
    return f"no {runtime}: {package} needs {library}, which is not on this machine: install {runtime}"


def _missing_library(error: BaseException | None) -> str | None:
    """Return the library that the loader could not open; CuPy wraps its complaint in words of its own."""
    while error is not None:
        found = re.search(r"(lib[\w+.-]+?\.so[\w.]*): cannot open", str(error))
        if found is not None:
            return found.group(1)
        error = error.__cause__ or error.__context__
    return None


def _rocm_folders(roots: Iterable[str]) -> Iterable[str]:
    for name in ("ROCM_PATH", "ROCM_HOME"):
        if os.environ.get(name):
            yield f"{os.environ[name]}/lib"
    yield from roots


def _with_notes(node: Node, notes: Sequence[str]) -> Node:
    return dataclasses.replace(node, notes=(*node.notes, *notes))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the node, or ``{"error": ...}`` with status 1; a traceback of the unexpected goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m pytest_transferbench.runtime.probe", description=main.__doc__)
    parser.add_argument("--runtime", default="auto", help=f"one of {', '.join(RUNTIMES)}")
    parser.add_argument("--emulate", default=None, help="a node model's name or a .toml file")
    options = parser.parse_args(arguments)
    try:
        answer = probe(options.runtime, options.emulate).to_json()
    except ProbeError as error:
        answer = {"error": str(error)}
    except Exception as error:
        traceback.print_exc()
        answer = {"error": f"probing failed: {type(error).__name__}: {_first_line(error)}"}
    # A library may have left an unfinished line on stdout.
    print("\n" + json.dumps(answer), flush=True)
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())

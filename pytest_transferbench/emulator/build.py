"""Building the emulated runtime: once per source, compiler and wheels, into a private cache.

Processes that need the same build at once take turns at a lock; the finished folder appears by one rename, so nobody
ever sees half of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from pytest_transferbench.emulator.model import EmulatorError

_COMPILE = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread")
_LINK = ("-shared", "-pthread", "-Wl,-z,defs")
_DEFAULT_VERSION = "hip_4.2"
_HIPRTC_SOURCES = ("hiprtc.cpp", "source_scan.cpp")
_NOT_ERROR_CODES = {"hipApiName", "hipCreateChannelDesc", "hipKernelNameRef", "hipKernelNameRefByPtr"}
"""Functions whose result is no error code: a stub could only answer nonsense, so they stay absent."""
_CUPY_PACKAGES = ("cupy", "cupyx", "cupy_backends")
_HIP_PYTHON_PACKAGES = ("rocm", "hip")


@dataclass(frozen=True)
class Build:
    """A finished build: a small ROCm tree that CuPy and hip-python take for theirs."""

    root: Path
    compiler: str

    @property
    def libraries(self) -> tuple[Path, ...]:
        """What has to be loaded, in this order, before CuPy and hip-python."""
        hip = ("libamdhip64.so.7", "libamdhip64.so", "libhiprtc.so.7", "libhiprtc.so")
        return tuple(self.root / "lib" / name for name in (*hip, "libroctracer64.so.4", "librocfft.so.0"))

    @property
    def kernel_cache(self) -> Path:
        return self.root / "kernels"

    @property
    def include_folder(self) -> Path:
        return self.root / "include"


def cache_folder() -> Path:
    """Return the folder that holds all builds: ``$XDG_CACHE_HOME`` or ``~/.cache``, and our name.

    A relative ``$XDG_CACHE_HOME`` counts as none, as the XDG Base Directory Specification asks.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = _home() / ".cache"
    if not str(base).isprintable():  # compilers and the scripts that call them take a line for a path
        raise EmulatorError(f"no emulated runtime can be built in {str(base)!r}: set XDG_CACHE_HOME to another folder")
    return base / "pytest-transferbench" / "emulator"


def _home() -> Path:
    with contextlib.suppress(RuntimeError):
        if os.environ.get("HOME") != "" and (home := Path.home()).is_absolute():
            return home
    raise EmulatorError("no home folder to build the emulated runtime in: set XDG_CACHE_HOME to a folder's full path")


def build(folder: Path | None = None) -> Build:
    """Return the build for the installed wheels and compiler, made now if it is not there.

    Raises :class:`EmulatorError`, one line, when g++ or the wheels are missing or the compiler fails.
    """
    compiler = _find_compiler()
    wheels = _find_wheels()
    sources = _sources()
    folder = folder or cache_folder()
    root = folder / _key(sources, compiler, wheels)
    if root.is_dir():
        return Build(root, compiler)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(root.with_suffix(".lock")):
            if not root.is_dir():
                _make(root, sources, compiler)
    except OSError as error:
        raise EmulatorError(
            f"cannot build the emulated runtime in {folder}: {error.strerror or error}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    return Build(root, compiler)


def _find_compiler() -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        raise EmulatorError("the emulated node needs a C++ compiler: install g++ (Debian/Ubuntu: apt-get install g++)")
    return compiler


def _find_wheels() -> Mapping[str, str]:
    """Return name -> version of the wheels that will load the runtime; raises when one is missing or the wrong one."""
    versions = {}
    others = []
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if re.fullmatch(r"cupy-rocm-7(-\d+)?|hip-python|rocm-bindings-hip", name):
            versions[name] = distribution.version
        elif name == "cupy" or re.fullmatch(r"cupy-(cuda|rocm).*", name):
            others.append(name)
    has_cupy = any(name.startswith("cupy-rocm-7") for name in versions)
    if others:
        raise EmulatorError(
            f"the emulated node needs the wheel cupy-rocm-7-0, but {others[0]} is installed: use another environment"
        )
    if not has_cupy or "hip-python" not in versions:
        missing = "hip-python" if has_cupy else "cupy-rocm-7-0"
        raise EmulatorError(f'the emulated node needs {missing}: pip install "pytest-transferbench[emulator]"')
    return versions


def _sources() -> dict[str, bytes]:
    """Return every file of ``native/`` with its content."""
    found = {}
    with as_file(files("pytest_transferbench.emulator").joinpath("native")) as native:
        for path in sorted(native.rglob("*")):
            if path.is_file() and path.suffix in (".cpp", ".hpp", ".h", ".cuh"):
                found[path.relative_to(native).as_posix()] = path.read_bytes()
    return found


def _key(sources: Mapping[str, bytes], compiler: str, wheels: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, content in sources.items():
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    for writer in ("build.py", "kfd.py"):  # of what else lies in the folder
        digest.update(files("pytest_transferbench.emulator").joinpath(writer).read_bytes())
    path = Path(compiler).resolve()
    facts = path.stat()
    digest.update(f"{path} {facts.st_size} {facts.st_mtime_ns} {sorted(wheels.items())}".encode())
    return digest.hexdigest()[:20]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(root: Path, sources: Mapping[str, bytes], compiler: str) -> None:
    _sweep(root.parent)
    with tempfile.TemporaryDirectory(prefix="building-", dir=root.parent) as scratch:
        work, tree = Path(scratch) / "work", Path(scratch) / "tree"
        for folder in (work, tree / "lib", tree / "bin", tree / "include", tree / "kernels", tree / "kfd"):
            folder.mkdir(parents=True)
        for name, content in sources.items():
            target = (tree / "include" / name.removeprefix("include/")) if _is_for_kernels(name) else work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        _compile_all(compiler, work)
        _link_all(compiler, work, tree / "lib")
        _write_hipcc(tree / "bin" / "hipcc", root / "include")
        tree.rename(root)


def _sweep(folder: Path) -> None:
    """Remove what builds left that were killed: no build takes a day."""
    for left in folder.glob("building-*"):
        if time.time() - left.stat().st_mtime > 24 * 3600:
            shutil.rmtree(left, ignore_errors=True)


def _is_for_kernels(name: str) -> bool:
    return name == "device.h" or name.startswith("include/")


def _compile_all(compiler: str, work: Path) -> None:
    def compile_one(source: Path) -> None:
        _run([compiler, *_COMPILE, "-c", source.name, "-o", f"{source.stem}.o"], work)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        list(pool.map(compile_one, sorted(work.glob("*.cpp"), key=lambda path: -path.stat().st_size)))


def _link_all(compiler: str, work: Path, lib: Path) -> None:
    hiprtc_objects = [f"{Path(name).stem}.o" for name in _HIPRTC_SOURCES]
    runtime_objects = sorted(path.name for path in work.glob("*.o") if path.name not in hiprtc_objects)
    present = _defined_symbols(runtime_objects, work)
    versions = _wheel_symbols()
    stubs = sorted(name for name in versions if name not in present)
    (work / "stubs.cpp").write_text(_stub_source(stubs), encoding="ascii")
    (work / "hip.map").write_text(_version_script(versions), encoding="ascii")
    (work / "roctracer.cpp").write_text(
        'extern "C" __attribute__((visibility("default"))) void roctracer_start() {}\n'
        'extern "C" __attribute__((visibility("default"))) void roctracer_stop() {}\n',
        encoding="ascii",
    )
    (work / "roctracer.map").write_text("ROCTRACER_4.0 { global: roctracer_*; local: *; };\n", encoding="ascii")
    (work / "empty.cpp").write_text("", encoding="ascii")

    def link(name: str, *arguments: str) -> None:
        _run([compiler, *_COMPILE, *_LINK, f"-Wl,-soname,{name}", "-o", str(lib / name), *arguments], work)

    runtime = str(lib / "libamdhip64.so.7")
    link("libamdhip64.so.7", "-Wl,--version-script=hip.map", *runtime_objects, "stubs.cpp", "-ldl")
    link("libhiprtc.so.7", *hiprtc_objects, runtime, "-Wl,-rpath,$ORIGIN")
    # hip-python opens the plain names: libraries of these names that only need the real ones.
    keep = ("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN")
    link("libamdhip64.so", "empty.cpp", *keep, runtime)
    link("libhiprtc.so", "empty.cpp", *keep, str(lib / "libhiprtc.so.7"))
    link("libroctracer64.so.4", "roctracer.cpp", "-Wl,--version-script=roctracer.map")
    link("librocfft.so.0", "empty.cpp")


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise EmulatorError(f"building the emulated runtime failed: {Path(command[0]).name}: {first}")
    return done.stdout


def _defined_symbols(objects: Iterable[str], work: Path) -> set[str]:
    listing = _run(["nm", "--defined-only", "--extern-only", "--format=posix", *objects], work)
    return {line.split()[0] for line in listing.splitlines() if line.strip()}


def _wheel_symbols() -> dict[str, str]:
    """Return every HIP function the wheels name, with the symbol version they ask for ("" where they ask for none)."""
    symbols: dict[str, str] = {}
    for library in _libraries_of(_HIP_PYTHON_PACKAGES):
        # Loaded by name at run time: the names are strings in the file.
        for match in re.finditer(rb"(?<=\0)(?:hip[A-Z][A-Za-z0-9_]*|__hip[A-Za-z]+)(?=\0)", library.read_bytes()):
            name = match[0].decode()
            if _is_function_name(name):
                symbols[name] = ""
    for library in _libraries_of(_CUPY_PACKAGES):
        if _DEFAULT_VERSION.encode() not in library.read_bytes():
            continue
        listing = _run(["nm", "--dynamic", "--undefined-only", str(library)], library.parent)
        for line in listing.splitlines():
            name, _, version = line.split()[-1].partition("@")
            if version.startswith("hip_"):
                symbols[name] = version
    return symbols


def _is_function_name(name: str) -> bool:
    """Leave out what only looks like a function: types, constants and their string forms."""
    return name not in _NOT_ERROR_CODES and not re.search(r"_t$|_st$|^hip(Error|Success)", name)


def _libraries_of(packages: Iterable[str]) -> Iterator[Path]:
    for package in packages:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            yield from sorted(Path(folder).rglob("*.so"))


def _stub_source(names: Iterable[str]) -> str:
    lines = ['extern "C" int transferbench_emulator_refuse(const char* name);']
    for name in names:
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) int {name}() '
            f'{{ return transferbench_emulator_refuse("{name}"); }}'
        )
    return "\n".join(lines) + "\n"


def _version_script(symbols: Mapping[str, str]) -> str:
    """Give each symbol the version that the wheels ask for: the loader ends the process where one is missing."""
    versions = sorted({version for version in symbols.values() if version} | {_DEFAULT_VERSION}, key=_version_order)
    script, before = [], ""
    for version in versions:
        names = sorted(name for name, wanted in symbols.items() if wanted == version)
        if version == _DEFAULT_VERSION:
            names = ["hip*", "__hip*", "transferbench_emulator_*", "__tsan_*", *names]
        local = " local: *;" if version == _DEFAULT_VERSION else ""
        script.append(f"{version} {{ global: {'; '.join(names)};{local} }}{before};")
        before = f" {version}"
    return "\n".join(script) + "\n"


def _version_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _write_hipcc(path: Path, include_folder: Path) -> None:
    """CuPy asks ``hipcc`` for its include folders before it compiles a RawModule; nothing else uses it."""
    path.write_text(
        f"#!/bin/sh\nprintf '#include <...> search starts here:\\n {include_folder}\\nEnd of search list.\\n' >&2\n",
        encoding="utf-8",
    )
    path.chmod(0o755)

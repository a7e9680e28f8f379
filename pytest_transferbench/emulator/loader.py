"""Putting the emulated runtime under CuPy and hip-python in this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_transferbench.emulator.build import Build, build
from pytest_transferbench.emulator.faults import Fault, runtime_lines
from pytest_transferbench.emulator.kfd import write_numa_nodes, write_topology
from pytest_transferbench.emulator.model import EmulatorError, NodeModel, load_model

NO_NUMA_NODE = -1


@dataclass(frozen=True)
class Counters:
    """What the emulated runtime holds now."""

    allocations: int
    bytes_allocated: int
    bytes_resident: int
    bytes_of_pool: int
    """Allocated bytes in whole pages: what counts against the pool of all devices and pinned host memory."""


class _CountersStruct(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("allocations", "bytes", "resident", "pool")]


@dataclass(frozen=True)
class Activation:
    """The emulated node of this process.

    ``kfd_root`` is what ``/sys/class/kfd/kfd/topology/nodes`` is on a real machine; ``library`` is the runtime, for
    ctypes.
    """

    model: NodeModel
    kfd_root: Path
    library: Path
    _native: Any = field(repr=False)
    _planned: list[Fault] = field(default_factory=list, repr=False)

    @property
    def numa_root(self) -> Path:
        """What ``/sys/devices/system/node`` is on a real machine."""
        return self.kfd_root.parents[1] / "system" / "node"

    @property
    def code_folder(self) -> Path:
        """Where compiled kernels are kept: with the build, because another one may compile differently."""
        return self.library.parents[1] / "kernels"

    def host_clock(self) -> float:
        """Return seconds of the host's virtual clock. Reading it costs nothing."""
        return float(self._native.transferbench_emulator_host_clock())

    def host_copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> float:
        """Copy the one source, or the float32 sum of several, to all destinations with ``threads`` host threads.

        Moves the host's clock by the model's time for it, which is returned.

        Raises :class:`EmulatorError` for a range that leaves its allocation and for device memory without large BAR.
        """
        return self.end_host_copy(self.begin_host_copy(destinations, sources, nbytes, threads))

    def begin_host_copy(self, destinations: Sequence[int], sources: Sequence[int], nbytes: int, threads: int) -> int:
        """Copy as :meth:`host_copy`, but leave the host's clock alone: other copies may begin at the same time.

        Returns a handle for :meth:`end_host_copy`, which must be called once.
        """
        to, of = ((ctypes.c_void_p * len(ends))(*ends) for ends in (destinations, sources))
        refused = ctypes.c_int()
        handle = self._native.transferbench_emulator_begin_host_copy(
            to, len(destinations), of, len(sources), nbytes, threads, ctypes.byref(refused)
        )
        if not handle:
            raise EmulatorError(
                f"host copy of {nbytes} bytes from {_addresses(sources)} to {_addresses(destinations)} with {threads} "
                f"threads refused: hipError {-refused.value}"
            )
        return int(handle)

    def end_host_copy(self, handle: int) -> float:
        """Move the host's clock to the end of a copy that was begun, and return the virtual seconds it took."""
        return float(self._native.transferbench_emulator_end_host_copy(handle))

    def prefer_numa_node(self, numa_node: int | None) -> None:
        """Set this thread's memory policy on the emulated host: pinned memory that asks for it comes from that node."""
        self._native.transferbench_emulator_prefer_numa_node(NO_NUMA_NODE if numa_node is None else numa_node)

    def numa_node_of(self, pointer: int) -> int | None:
        """Return the NUMA node that allocated memory lies on; None for what is on a device, or not allocated here."""
        found = int(self._native.transferbench_emulator_numa_node_of(pointer))
        return None if found == NO_NUMA_NODE else found

    def counters(self) -> Counters:
        """Return what is allocated and resident now."""
        values = _CountersStruct()
        self._native.transferbench_emulator_counters(ctypes.byref(values))
        return Counters(values.allocations, values.bytes, values.resident, values.pool)

    def moved_bytes(self, source: int, destination: int) -> int:
        """Return the bytes that have moved from ``source`` to ``destination`` since activation; ``HOST`` is allowed.

        Kernels count each load and store of theirs, so a kernel that copies inside one device counts there twice.
        """
        return int(self._native.transferbench_emulator_moved_bytes(source, destination))

    def copies(self, device: int) -> tuple[int, int]:
        """Return how many runtime copies this device has carried out by DMA engine, and how many by shader."""
        by_dma, by_shader = ctypes.c_uint64(), ctypes.c_uint64()
        self._native.transferbench_emulator_copies(device, ctypes.byref(by_dma), ctypes.byref(by_shader))
        return by_dma.value, by_shader.value

    def call_counts(self) -> dict[str, int]:
        """Return how often each HIP call was used since :meth:`plan_faults`, or since activation."""
        lines = _text_of(self._native.transferbench_emulator_call_counts).splitlines()
        return {call: int(uses) for call, uses in (line.split() for line in lines)}

    def plan_faults(self, faults: Iterable[Fault] = ()) -> None:
        """Put ``faults`` in the place of those planned so far, the model's own too, and count all calls anew.

        A device that a sticky fault has ended stays so until ``hipDeviceReset``.
        """
        self._planned[:] = faults
        text = runtime_lines(self._planned).encode()
        wrong = _text_of(lambda buffer, size: self._native.transferbench_emulator_plan_faults(text, buffer, size))
        if wrong:
            raise EmulatorError(wrong)

    def pending_faults(self) -> list[tuple[int, Fault, int]]:
        """Return the planned faults that have not happened yet: number from 1, fault, uses of its call so far."""
        uses = map(int, _text_of(self._native.transferbench_emulator_fault_uses).split())
        planned = zip(self._planned, uses, strict=True)
        return [(number, fault, used) for number, (fault, used) in enumerate(planned, 1) if used < fault.nth]

    def last_fault(self) -> str:
        """Return the last kernel fault in words, or an empty string."""
        return _text_of(self._native.transferbench_emulator_last_fault)


_active: Activation | None = None


def active() -> Activation | None:
    """Return the emulated node of this process, if it has one."""
    return _active


def activate(model: str | Path = "mi300x-8") -> Activation:
    """Build if need be, load the libraries, and open the node; CuPy and hip-python are imported afterwards.

    A process has one node: activating the same model again returns the same Activation. Raises
    :class:`EmulatorError`, one line, for an unknown or broken model, a missing compiler or wheel, another node that is
    already active, and a real runtime that CuPy or hip-python has loaded.
    """
    global _active
    wanted = load_model(model)
    if _active is not None:
        if _active.model != wanted:
            raise EmulatorError(
                f"this process already runs on the emulated node {_active.model.name}; start another for {wanted.name}"
            )
        return _active
    made = build()
    early = "cupy" if "cupy" in sys.modules else _loaded_runtime()
    if early is not None:
        raise EmulatorError(
            f"{early} is already loaded with a real runtime; activate the emulated node before that, in a new process"
        )
    _prepare_environment(made)
    native = _load(made)
    _open(native, wanted, made)
    _active = Activation(wanted, _topology(wanted, made), made.libraries[0], native)
    _active.plan_faults(wanted.faults)
    return _active


def _loaded_runtime() -> str | None:
    """Return the HIP runtime this process has already opened. Importing hip-python alone opens none."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.rpartition(" ")[2]
        if "libamdhip64" in path:
            return path
    return None


def _prepare_environment(made: Build) -> None:
    """Point hip-python and CuPy at the build, and keep CuPy's own cache of code objects apart from real ones."""
    os.environ["ROCM_PATH"] = os.environ["ROCM_HOME"] = str(made.root)
    os.environ["PATH"] = f"{made.root / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ["CUPY_CACHE_DIR"] = str(made.root / "cupy")


def _load(made: Build) -> ctypes.CDLL:
    try:
        libraries = [ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in made.libraries]
    except OSError as error:
        raise EmulatorError(
            f"the emulated runtime cannot be loaded: {error}; remove {made.root} to build it anew"
        ) from None
    native = libraries[0]
    native.transferbench_emulator_host_clock.restype = ctypes.c_double
    begin, end = native.transferbench_emulator_begin_host_copy, native.transferbench_emulator_end_host_copy
    begin.restype = ctypes.c_void_p
    ends = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)
    begin.argtypes = [*ends, *ends, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(ctypes.c_int)]
    end.restype, end.argtypes = ctypes.c_double, [ctypes.c_void_p]
    native.transferbench_emulator_moved_bytes.restype = ctypes.c_uint64
    native.transferbench_emulator_moved_bytes.argtypes = [ctypes.c_int, ctypes.c_int]
    native.transferbench_emulator_numa_node_of.argtypes = [ctypes.c_void_p]
    native.transferbench_emulator_open.restype = ctypes.c_size_t
    native.transferbench_emulator_plan_faults.restype = ctypes.c_size_t
    native.transferbench_emulator_fault_uses.restype = ctypes.c_size_t
    native.transferbench_emulator_call_counts.restype = ctypes.c_size_t
    native.transferbench_emulator_last_fault.restype = ctypes.c_size_t
    return native


def _open(native: ctypes.CDLL, model: NodeModel, made: Build) -> None:
    text = model.runtime_text(
        compiler=made.compiler, kernel_cache=made.kernel_cache, include_folder=made.include_folder
    )
    wrong = _text_of(lambda buffer, size: native.transferbench_emulator_open(text.encode(), buffer, size))
    if wrong:
        raise EmulatorError(wrong)


def _addresses(pointers: Iterable[int]) -> str:
    return ", ".join(f"{pointer:#x}" for pointer in pointers)


def _text_of(call: Callable[[ctypes.Array[ctypes.c_char], ctypes.c_size_t], int]) -> str:
    buffer = ctypes.create_string_buffer(16384)
    call(buffer, ctypes.c_size_t(len(buffer)))
    return buffer.value.decode(errors="replace")


def _topology(model: NodeModel, made: Build) -> Path:
    """Write the kernel's files of the node beside the build, once for each content of the model."""
    root = made.root / "kfd" / f"{model.name}-{model.digest()}"
    if not root.is_dir():
        scratch = Path(tempfile.mkdtemp(prefix="writing-", dir=root.parent))
        write_topology(model, scratch)
        write_numa_nodes(model, scratch)
        with contextlib.suppress(OSError):  # another process was faster; its files are the same
            scratch.rename(root)
    return root / "topology" / "nodes"

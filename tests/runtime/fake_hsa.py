"""ROCr made of host memory, built by g++: what ctypes hands over is read as C reads it."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "fake_hsa.cpp"


@functools.cache
def _built() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fake.so"
        command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(path), str(SOURCE)]
        subprocess.run(command, check=True)
        return path.read_bytes()


class FakeHsa:
    """The fake library at ``path``, and what a test sets and sees of it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "libhsa-fake.so")  # loaded anew by each test, so that none finds another's traces
        Path(self.path).write_bytes(_built())
        self.library = ctypes.CDLL(self.path)
        self.library.fake_allocation.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64)

    def allocated(self, pointer: int, nbytes: int, owner: int) -> None:
        """Let ROCr know memory of the agent ``owner``, a number above 0."""
        self.library.fake_allocation(pointer, nbytes, owner)

    def set(self, name: str, value: int, kind: type[ctypes.c_uint32] | type[ctypes.c_int64] = ctypes.c_uint32) -> None:
        kind.in_dll(self.library, f"fake_{name}").value = value

    def number(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.library, f"fake_{name}").value

    def copies(self) -> dict[int, int]:
        """Return how many copies each engine has made."""
        made = (ctypes.c_uint64 * 32).in_dll(self.library, "fake_copies")
        return {engine: count for engine, count in enumerate(made) if count}

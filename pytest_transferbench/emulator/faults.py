"""``[[fault]]``: which use of which HIP call fails on an emulated node, with what, and whether for good."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

ANY_DEVICE = -1


@dataclass(frozen=True)
class Fault:
    """The ``nth`` use (1 is the first) of ``call`` fails with ``code``.

    With ``sticky`` it ends the device: from then on every call that touches it fails with that code, as after an
    illegal address on a real GPU. Only uses for ``device`` count, or all of them with :data:`ANY_DEVICE`.
    """

    call: str
    nth: int
    code: str
    sticky: bool = False
    device: int = ANY_DEVICE


@cache
def hip_calls() -> tuple[str, ...]:
    """Return the HIP calls that can fail, sorted: every one that the runtime's own sources define."""
    names = re.findall(r"^HIP_API hipError_t (hip\w+)\(", _native(".cpp"), re.MULTILINE)
    return tuple(sorted(set(names)))


@cache
def error_codes() -> Mapping[str, int]:
    """Return the number of every error code that the runtime's own header names."""
    return {name: int(number) for name, number in re.findall(r"\b(hipError\w+) = (\d+)", _native("hip_abi.hpp"))}


def runtime_lines(faults: Iterable[Fault]) -> str:
    """Return ``faults`` as the C++ runtime reads them."""
    return "".join(
        f"{fault.call} {fault.nth} {error_codes()[fault.code]} {int(fault.sticky)} {fault.device}\n" for fault in faults
    )


def _native(ending: str) -> str:
    """Return the runtime's own source files whose names end so, one after another."""
    folder = files("pytest_transferbench.emulator").joinpath("native")
    return "\n".join(
        entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(ending)
    )

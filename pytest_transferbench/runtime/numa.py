"""NUMA nodes of the host: taking memory from one of them, and seeing where its pages lie.

The calls are the kernel's own, by number: neither libnuma nor its headers are needed. Containers often deny them, each
with an error of its own; nothing here takes that for an answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_transferbench.node import HOST
from pytest_transferbench.runtime.host_facts import NUMA_NODES, processors
from pytest_transferbench.runtime.protocol import RuntimeFault
from pytest_transferbench.transfer import Memory

_CALLS = {
    "x86_64": {"mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "move_pages": 279},
    "aarch64": {"mbind": 235, "get_mempolicy": 236, "set_mempolicy": 237, "move_pages": 239},
}
"""The kernel's numbers of the calls, from its ``unistd`` headers."""

_PREFERRED = 1
"""``MPOL_PREFERRED``. A bound policy would let the kernel kill this process where the node has no memory left; a
preferred one goes elsewhere, and then the pages tell."""

_MASK_BITS = 2048
"""More than any kernel has nodes: a mask that is too short is refused."""

DENIED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
ABSENT = -errno.ENOENT
"""Where ``move_pages`` finds no page of the host's."""

HOW_TO_ALLOW = "start the container with --cap-add=SYS_NICE or --security-opt seccomp=unconfined"


def pages_by_place(pointer: int, nbytes: int) -> Counter[int]:
    """Return how many pages of a range lie on each NUMA node; below 0 stands what is wrong with a page, ``-ENOENT``
    for one that is on none.

    Raises ``OSError`` where the call is denied.
    """
    first = pointer // mmap.PAGESIZE * mmap.PAGESIZE
    statuses = move_pages(np.arange(first, pointer + nbytes, mmap.PAGESIZE, dtype=np.uint64))
    places, counts = np.unique(statuses, return_counts=True)
    return Counter(dict(zip(map(int, places), map(int, counts), strict=True)))


def move_pages(addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """Ask where pages are, and move none; raises ``OSError``."""
    statuses = np.full(len(addresses), ABSENT, dtype=np.int32)
    _call("move_pages", 0, len(addresses), addresses.ctypes.data, None, statuses.ctypes.data, 0)
    return statuses


@contextlib.contextmanager
def preferring(numa_node: int) -> Iterator[None]:
    """Take the memory that this thread asks for, meanwhile, from one NUMA node if it has any.

    Where the kernel's policy is denied the thread runs on the node's processors instead, and first touch does it.
    Raises ``OSError`` for a node that there is not.
    """
    try:
        mode, before = _policy()
        _set_policy(_PREFERRED, _mask(numa_node))
    except OSError as error:
        if error.errno not in DENIED:
            raise
        with _running_on(numa_node):
            yield
        return
    try:
        yield
    finally:
        _set_policy(mode, before)


@contextlib.contextmanager
def _running_on(numa_node: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    there = processors(numa_node) & before
    if not there:
        yield
        return
    os.sched_setaffinity(0, there)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Mappings:
    """Unpinned host memory, mapped page by page and touched, so that it is there before it is timed."""

    def __init__(self) -> None:
        self._maps: dict[int, tuple[mmap.mmap, object]] = {}

    def map(self, nbytes: int, numa_node: int | None = None) -> int:
        """Return zeroed memory, of a NUMA node where one is named.

        Raises ``OSError`` for a node that there is not, and ``MemoryError`` where there is no memory left.
        """
        try:
            made = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise MemoryError(os.strerror(errno.ENOMEM)) from error
            raise
        buffer = ctypes.c_char.from_buffer(made)
        pointer = ctypes.addressof(buffer)
        try:
            if numa_node is None:
                touch(pointer, nbytes)
            else:
                with preferring(numa_node):
                    # Beside the thread's policy, or the kernel would move the pages to whoever uses them.
                    with contextlib.suppress(OSError):
                        _call("mbind", pointer, nbytes, _PREFERRED, _mask(numa_node), _MASK_BITS, 0)
                    touch(pointer, nbytes)
        except OSError:
            del buffer
            made.close()
            raise
        self._maps[pointer] = (made, buffer)
        return pointer

    def unmap(self, pointer: int) -> None:
        """Give memory back; raises ``KeyError`` for what :meth:`map` has not returned."""
        made, buffer = self._maps.pop(pointer)
        del buffer
        made.close()

    def clear(self) -> None:
        for pointer in list(self._maps):
            self.unmap(pointer)


def touch(pointer: int, nbytes: int) -> None:
    """Write a zero into every page: only then is there one, and a place where it is."""
    every_byte = np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(pointer))
    every_byte[:: mmap.PAGESIZE] = 0


def check_on_node(memory: Memory, numa_node: int, places: Mapping[int, int]) -> str:
    """Return what cannot be told of the places of pinned or unpinned host memory, nothing where all is well.

    Raises :class:`RuntimeFault` for pages on another node than ``numa_node``.
    """
    elsewhere = {place: count for place, count in places.items() if place >= 0 and place != numa_node}
    pages = sum(places.values())
    if elsewhere:
        wrong = " and ".join(f"{count} of {pages} pages are on NUMA node {place}" for place, count in elsewhere.items())
        raise RuntimeFault(
            "placement",
            HOST,
            "WrongNumaNode",
            f"{memory}: {wrong}, not on {numa_node}: it may have no memory left (see numactl --hardware)",
        )
    unknown = {place: count for place, count in places.items() if place < 0}
    if unknown:
        place, count = max(unknown.items(), key=lambda item: item[1])
        name = errno.errorcode.get(-place, str(place))
        return unchecked(f"move_pages says {name} of {count} of {pages} pages of {memory.kind} memory")
    return ""


def check_off_host(memory: Memory, places: Mapping[int, int], root: Path = NUMA_NODES) -> None:
    """Raise :class:`RuntimeFault` for managed memory that has pages on a NUMA node of the host's processors.

    A GPU may be a NUMA node itself, one without a processor.
    """
    here = {place: count for place, count in places.items() if place >= 0 and processors(place, root)}
    if here:
        raise RuntimeFault(
            "placement",
            memory.index,
            "NotPrefetched",
            f"{memory}: {sum(here.values())} of {sum(places.values())} pages stayed on the host, on NUMA node "
            f"{', '.join(map(str, sorted(here)))}",
        )


def refused(memory: Memory, numa_node: int, error: OSError) -> RuntimeFault:
    """Return the fault of a call of the kernel that would not give memory of a node."""
    code = errno.errorcode.get(error.errno or 0, str(error.errno))
    return RuntimeFault(
        str(error.filename or "mmap"), HOST, code, f"{memory} on NUMA node {numa_node}: {error.strerror}"
    )


def unchecked(why: str) -> str:
    """Return the line about memory that lies nobody knows where."""
    return f"placement of host memory could not be checked: {why}"


def why_denied(error: OSError) -> str:
    """Return the line about a kernel that does not answer."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    if error.errno not in DENIED:
        return unchecked(f"move_pages failed: {name}")
    return unchecked(f"move_pages is denied ({name}): {HOW_TO_ALLOW}")


def _policy() -> tuple[int, ctypes.Array[ctypes.c_ulong]]:
    mode, mask = ctypes.c_int(), _mask()
    _call("get_mempolicy", ctypes.addressof(mode), mask, _MASK_BITS, None, 0)
    return mode.value, mask


def _set_policy(mode: int, mask: ctypes.Array[ctypes.c_ulong]) -> None:
    empty = not any(mask)
    _call("set_mempolicy", mode, None if empty else mask, 0 if empty else _MASK_BITS)


def _mask(*numa_nodes: int) -> ctypes.Array[ctypes.c_ulong]:
    word_bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (_MASK_BITS // word_bits))()
    for numa_node in numa_nodes:
        if numa_node >= _MASK_BITS:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), "set_mempolicy")
        mask[numa_node // word_bits] |= 1 << numa_node % word_bits
    return mask


def _call(name: str, *arguments: object) -> None:
    """Make a call of the kernel; raises ``OSError`` with its name."""
    number = _CALLS.get(platform.machine(), {}).get(name)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), name)
    libc = ctypes.CDLL(None, use_errno=True)
    # A bare int is passed as 32 bits: addresses and lengths would be cut.
    wide = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    if libc.syscall(ctypes.c_long(number), *wide) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)

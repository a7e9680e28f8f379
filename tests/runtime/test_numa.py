"""NUMA nodes on this machine's own kernel, and on one that a test speaks for."""

from __future__ import annotations

import errno
import mmap
import os
import platform
from pathlib import Path

import pytest

from pytest_transferbench.runtime import RuntimeFault, numa
from pytest_transferbench.transfer import Memory

from .fakes import place_pages

C1 = Memory("C", 1)
PAGES = 4


@pytest.fixture
def mappings() -> numa.Mappings:
    return numa.Mappings()


def denied(call: str) -> OSError:
    return OSError(errno.EPERM, "Operation not permitted", call)


def a_node_of_this_machine() -> int:
    memory_nodes = numa.processors(0)
    return 0 if memory_nodes or not Path("/sys/devices/system/node").exists() else pytest.skip("no node 0 here")


def test_memory_of_a_node_is_there_zeroed_and_on_it(mappings: numa.Mappings) -> None:
    node = a_node_of_this_machine()
    pointer = mappings.map(PAGES * mmap.PAGESIZE, node)
    try:
        assert numa.pages_by_place(pointer, PAGES * mmap.PAGESIZE) == {node: PAGES}
    except OSError as error:
        assert error.errno in numa.DENIED  # noqa: PT017 - a container's kernel may not answer
    mappings.unmap(pointer)
    with pytest.raises(KeyError):
        mappings.unmap(pointer)


def test_every_page_that_a_range_touches_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    place_pages(monkeypatch, lambda page: page)
    for pointer, nbytes, pages in (
        (0, mmap.PAGESIZE, 1),
        (mmap.PAGESIZE - 4, 8, 2),
        (8, mmap.PAGESIZE, 2),
        (mmap.PAGESIZE, 4, 1),
    ):
        assert dict(numa.pages_by_place(pointer, nbytes)) == dict.fromkeys(range(pages), 1)


def test_the_threads_policy_is_put_back(mappings: numa.Mappings) -> None:
    before = _policy_or_skip()
    with numa.preferring(a_node_of_this_machine()):
        assert numa._policy()[0] == numa._PREFERRED
        with pytest.raises(OSError, match="set_mempolicy"), numa.preferring(1000):
            pass
        assert numa._policy()[0] == numa._PREFERRED
    assert _policy_or_skip() == before


def _policy_or_skip() -> tuple[int, list[int]]:
    try:
        mode, mask = numa._policy()
    except OSError as error:
        pytest.skip(f"this kernel tells no policy: {error}")
    return mode, list(mask)


@pytest.mark.parametrize("node", [1000, 9999])
def test_a_node_that_there_is_not_gives_no_memory(mappings: numa.Mappings, node: int) -> None:
    _policy_or_skip()
    with pytest.raises(OSError, match=r"Invalid argument.*set_mempolicy"):
        mappings.map(mmap.PAGESIZE, node)


def test_without_a_policy_the_thread_goes_to_the_nodes_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: moved.append(set(cpus)))
    monkeypatch.setattr(numa, "processors", lambda node: {1: frozenset({2, 3, 4}), 7: frozenset()}[node])

    def deny(name: str, *arguments: object) -> None:
        raise denied(name)

    monkeypatch.setattr(numa, "_call", deny)
    with numa.preferring(1):
        assert moved == [{2, 3}]
    assert moved == [{2, 3}, {0, 1, 2, 3}]
    with numa.preferring(7):
        assert len(moved) == 2
    assert len(moved) == 2


def test_another_processor_family_has_no_such_calls(monkeypatch: pytest.MonkeyPatch, mappings: numa.Mappings) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    pointer = mappings.map(mmap.PAGESIZE, 0)
    with pytest.raises(OSError, match="move_pages") as caught:
        numa.pages_by_place(pointer, mmap.PAGESIZE)
    assert numa.why_denied(caught.value).startswith(
        "placement of host memory could not be checked: move_pages is denied (ENOSYS): start the container with"
    )


def test_pages_elsewhere_are_counted_and_their_nodes_named() -> None:
    with pytest.raises(RuntimeFault) as caught:
        numa.check_on_node(C1, 1, {1: 200, 0: 50, 3: 6})
    assert str(caught.value) == (
        "placement on the host failed: WrongNumaNode C1: 50 of 256 pages are on NUMA node 0 and 6 of 256 pages are on "
        "NUMA node 3, not on 1: it may have no memory left (see numactl --hardware)"
    )
    assert caught.value.code == "WrongNumaNode"


def test_pages_that_the_kernel_cannot_place_are_said_and_no_error() -> None:
    assert numa.check_on_node(C1, 1, {1: 256}) == ""
    assert numa.check_on_node(C1, 1, {-errno.ENOENT: 3, 1: 253}) == (
        "placement of host memory could not be checked: move_pages says ENOENT of 3 of 256 pages of C memory"
    )
    assert numa.why_denied(OSError(errno.E2BIG, "too big")) == (
        "placement of host memory could not be checked: move_pages failed: E2BIG"
    )


def test_managed_memory_may_lie_on_a_gpu_that_is_a_node_itself(tmp_path: Path) -> None:
    for node, cpulist in ((0, "0-3"), (4, "")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cpulist + "\n")
    managed = Memory("M", 2)
    numa.check_off_host(managed, {-errno.ENOENT: 10, 4: 6}, tmp_path)
    with pytest.raises(
        RuntimeFault, match=r"^placement on GPU 2 failed: NotPrefetched M2: 6 of 16 pages stayed .*node 0$"
    ):
        numa.check_off_host(managed, {-errno.ENOENT: 10, 0: 6}, tmp_path)

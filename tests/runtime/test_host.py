import errno
import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_transferbench.node import HOST
from pytest_transferbench.runtime import RuntimeFault, host
from pytest_transferbench.runtime.host import HostRuntime, RealHost
from pytest_transferbench.transfer import Memory

from .fakes import place_pages


@given(nbytes=st.integers(1, 1 << 40), threads=st.integers(1, 512))
def test_pieces_cover_every_byte_once_in_order(nbytes: int, threads: int) -> None:
    pieces = host._pieces(nbytes, threads)
    assert len(pieces) <= threads
    assert pieces[0][0] == 0
    assert all(length > 0 for _, length in pieces)
    ends = [offset + length for offset, length in pieces]
    assert [offset for offset, _ in pieces[1:]] == ends[:-1]
    assert ends[-1] == nbytes
    assert all(offset % 4096 == 0 for offset, _ in pieces)


@pytest.mark.parametrize("threads", [1, 3, 8])
@pytest.mark.parametrize("nbytes", [4, 4096, 40_000, 1 << 20])
def test_a_copy_moves_all_bytes_and_no_other(nbytes: int, threads: int) -> None:
    source = np.arange(nbytes + 64, dtype=np.uint64).astype(np.uint8)
    target = np.zeros_like(source)
    worker = RealHost()
    worker.copy([target.ctypes.data], [source.ctypes.data], nbytes, threads)
    worker.close()
    assert (target[:nbytes] == source[:nbytes]).all()
    assert not target[nbytes:].any()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("nbytes", [4, 40_000])
@pytest.mark.parametrize("sources", [1, 2, 5])
def test_several_sources_are_added_up_for_every_destination(nbytes: int, threads: int, sources: int) -> None:
    numbers = [np.arange(nbytes // 4, dtype=np.float32) + source for source in range(sources)]
    targets = [np.zeros(nbytes // 4 + 16, dtype=np.float32) for _ in range(3)]
    worker = RealHost()
    worker.copy([each.ctypes.data for each in targets], [each.ctypes.data for each in numbers], nbytes, threads)
    worker.close()
    for target in targets:
        assert (target[: nbytes // 4] == sum(numbers)).all()
        assert not target[nbytes // 4 :].any()


def test_host_memory_is_aligned_usable_and_given_back() -> None:
    runtime = HostRuntime()
    first, second = (runtime.allocate(Memory("C", 0), 1 << 16) for _ in range(2))
    assert first.owner == HOST
    assert first.pointer % 4096 == second.pointer % 4096 == 0
    runtime.write(first.pointer, b"\x01\x02\x03\x04" * 4, HOST)
    runtime.host_copy([second.pointer], [first.pointer], 16, 2)
    assert runtime.read(second.pointer, 16, HOST) == b"\x01\x02\x03\x04" * 4
    assert runtime.array(second, 4, 8).tolist() == [0x04030201, 0x04030201]
    runtime.free(first)
    with pytest.raises(RuntimeFault, match="was not allocated here"):
        runtime.free(first)
    runtime.close()


def test_more_host_memory_than_there_is_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(
        RuntimeFault, match=r"^allocate on the host failed: MemoryError 64 bytes: Cannot allocate"
    ) as caught:
        HostRuntime().allocate(Memory("C", 0), 64)
    assert caught.value.out_of_memory


@pytest.mark.parametrize("letter", "CH")
def test_host_memory_without_a_gpu_is_checked_too(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    runtime = HostRuntime()
    assert runtime.allocate(Memory(letter, 0), 4096).unchecked == ""
    place_pages(monkeypatch, lambda page: 3)
    with pytest.raises(RuntimeFault, match=rf"{letter}0: 1 of 1 pages are on NUMA node 3, not on 0"):
        runtime.allocate(Memory(letter, 0), 4096)
    with pytest.raises(RuntimeFault, match=r"EINVAL .*1000"):
        runtime.allocate(Memory(letter, 1000), 4096)
    runtime.close()


@pytest.mark.parametrize("letter", "PBDK")
def test_other_host_memory_is_a_gpu_runtimes(letter: str) -> None:
    with pytest.raises(RuntimeFault, match=f"{letter}0: without a GPU host memory is C or H"):
        HostRuntime().allocate(Memory(letter, 0), 64)


def test_device_calls_say_why_there_is_no_gpu() -> None:
    runtime = HostRuntime("no /dev/kfd")
    for call in (
        lambda: runtime.allocate(Memory("G", 0), 64),
        lambda: runtime.open_stream(0),
        lambda: runtime.compile(0, "copy", ["tb_copy"], {}),
        lambda: runtime.read(0, 4, 0),
        lambda: runtime.free_bytes(0),
    ):
        with pytest.raises(RuntimeFault, match=r"^\w+ on GPU 0 failed: no GPU no /dev/kfd$"):
            call()


def test_the_clock_goes_forward() -> None:
    runtime = HostRuntime()
    assert runtime.host_clock() <= runtime.host_clock()


def test_available_memory(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       100 kB\nMemAvailable:    50 kB\n")
    assert host.available_bytes(meminfo) == 51_200
    assert host.available_bytes(tmp_path / "nothing") == 0
    assert HostRuntime().free_bytes(HOST) > 0

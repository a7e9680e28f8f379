from pathlib import Path

import pytest

from pytest_transferbench.runtime import kfd

from .kfd_tree import KfdTree

RECORDED = Path(__file__).parent / "kfd" / "mi300x-pair"


def test_a_tree_in_the_drivers_own_form() -> None:
    processor, first, second = kfd.read_nodes(RECORDED)
    assert not processor.is_gpu
    assert first.is_gpu
    assert first.pci == (0, 0x05, 0, 0)
    assert first.unique_id == 0x5A5A000000000001
    assert first.xccs == 8
    assert first.last_level_cache_bytes() == 256 << 20
    to_second, to_processor = first.link_to(second.number), first.link_to(processor.number)
    assert to_second is not None
    assert to_processor is not None
    assert (to_second.type, to_second.gbps) == (kfd.IOLINK_XGMI, 64.0)
    assert (to_processor.type, to_processor.gbps) == (kfd.IOLINK_PCIE, 64.0)


def test_partitions_are_numbered_in_the_top_bits(tmp_path: Path) -> None:
    KfdTree(tmp_path).gpu(1, bus=0x05, partition=3)
    node = kfd.read_nodes(tmp_path)[1]
    assert (node.partition_number, node.pci) == (3, (0, 0x05, 0, 0))


def test_no_level_three_cache_is_unknown(tmp_path: Path) -> None:
    KfdTree(tmp_path).gpu(1, bus=0x05, llc_kib=None)
    assert kfd.read_nodes(tmp_path)[1].last_level_cache_bytes() is None


def test_a_rate_of_zero_is_unknown(tmp_path: Path) -> None:
    KfdTree(tmp_path).gpu(1, bus=0x05, links={0: (kfd.IOLINK_PCIE, 0)})
    link = kfd.read_nodes(tmp_path)[1].link_to(0)
    assert link is not None
    assert link.gbps is None


def test_peer_links_are_read_too_and_xgmi_wins(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    tree.gpu(1, bus=0x05, links={2: (kfd.IOLINK_XGMI, 64_000)}, p2p={2: (kfd.IOLINK_PCIE, 99_000), 3: (2, 32_000)})
    node = kfd.read_nodes(tmp_path)[1]
    xgmi, pcie = node.link_to(2), node.link_to(3)
    assert xgmi is not None
    assert pcie is not None
    assert (xgmi.type, pcie.gbps) == (kfd.IOLINK_XGMI, 32.0)


def test_nodes_come_by_number_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    for number in (10, 9, 2):
        tree.gpu(number, bus=number)
    (tmp_path / "9" / "properties").write_text("")
    assert [node.number for node in kfd.read_nodes(tmp_path)] == [0, 2, 10]


def test_no_driver_no_nodes(tmp_path: Path) -> None:
    assert kfd.read_nodes(tmp_path / "nothing") == ()


@pytest.mark.parametrize("text", ["", "simd_count\n", "simd_count four\n", "\x00\x01"])
def test_unreadable_properties_are_no_node(tmp_path: Path, text: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "properties").write_text(text)
    assert kfd.read_nodes(tmp_path) == ()

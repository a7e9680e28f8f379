from pathlib import Path

import pytest

from pytest_transferbench.node import HOST, LinkClass, Node, NumaNode
from pytest_transferbench.runtime import kfd, rocm_facts
from pytest_transferbench.runtime.hip_api import HipApi, HipError

from .fakes import FakeHip, FakeHipProperties, FakeHiprtc, HipCode
from .kfd_tree import KfdTree

RECORDED = Path(__file__).parent / "kfd" / "mi300x-pair"


def pair() -> FakeHip:
    hip = FakeHip([FakeHipProperties(), FakeHipProperties(pciBusID=0x26)])
    hip.uuids = ["5a5a000000000001", "5a5a000000000002"]
    return hip


def read(hip: FakeHip, root: Path, emulated: str | None = "test", pci: Path = Path("/nowhere")) -> Node:
    return rocm_facts.read_node(HipApi(hip, FakeHiprtc()), root, emulated, pci)


@pytest.mark.parametrize("generation", [7, 10])
def test_a_pair_of_mi300x(generation: int) -> None:
    hip = pair()
    hip.generation = generation
    node = read(hip, RECORDED)
    device = node.device(1)
    assert (device.name, device.arch, device.pci) == ("AMD Instinct MI300X", "gfx942", "0000:26:00.0")
    assert (device.compute_units, device.xccs, device.warp_size) == (304, 8, 64)
    assert device.last_level_cache_bytes == 256 << 20
    assert device.memory_gbps == pytest.approx(5324.8)
    assert device.physical_gpu == "5a5a000000000002"
    link = node.link(0, 1)
    assert (link.link_class, link.gbps, link.source_of_rate) == (LinkClass.XGMI, 64.0, "KFD 64000 MB/s")
    assert (node.link(HOST, 0).gbps, node.link(0, HOST).source_of_rate) == (64.0, "KFD 64000 MB/s")
    assert (node.runtime, node.runtime_version, node.emulated) == ("rocm", "7.0.51831", "test")
    assert any(note.startswith("XNACK off: no GPU reaches unpinned host memory") for note in node.notes)
    assert (device.managed_memory, device.pageable_access) == (True, False)
    assert Node.from_json(node.to_json()) == node


def test_the_numa_nodes_of_an_emulated_host_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "has_memory").write_text("0,4\n")
    (tmp_path / "node4").mkdir()
    (tmp_path / "node4" / "cpulist").write_text("500-507\n")
    hip = pair()
    hip.attributes["HostNumaId"] = 4
    node = rocm_facts.read_node(HipApi(hip, FakeHiprtc()), RECORDED, "test", numa_root=tmp_path)
    assert node.numa_nodes == (NumaNode(0, 0), NumaNode(4, 8))
    assert [node.closest_numa_node(gpu) for gpu in (0, 1)] == [4, 4]


def test_without_the_drivers_files_the_table_answers_and_says_so(tmp_path: Path) -> None:
    node = read(pair(), tmp_path)
    assert node.device(0).last_level_cache_bytes == 256 << 20
    assert node.device(0).xccs == 8
    link = node.link(0, 1)
    assert link.gbps == 64.0
    assert link.source_of_rate == "AMD CDNA 3 white paper"


def test_an_architecture_nobody_described_is_unknown(tmp_path: Path) -> None:
    hip = FakeHip([FakeHipProperties(gcnArchName=b"gfx9999"), FakeHipProperties(gcnArchName=b"gfx9999", pciBusID=6)])
    node = read(hip, tmp_path)
    assert node.device(0).last_level_cache_bytes is None
    assert node.device(0).memory_gbps is None
    assert (node.link(0, 1).gbps, node.link(0, 1).source_of_rate) == (None, "unknown")


def test_partitions_of_one_gpu_share_a_die_and_no_link(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    for partition in range(2):
        tree.gpu(1 + partition, bus=0x05, partition=partition, unique_id=7, xcc=4, links={0: (2, 64_000)})
    tree.gpu(3, bus=0x06, unique_id=8, links={1: (kfd.IOLINK_XGMI, 48_000)})
    hip = FakeHip([FakeHipProperties(), FakeHipProperties(), FakeHipProperties(pciBusID=0x06)])
    node = read(hip, tmp_path)
    assert node.link(0, 1).link_class is LinkClass.ON_DIE
    assert node.link(0, 1).gbps is None
    assert node.device(0).physical_gpu == node.device(1).physical_gpu != node.device(2).physical_gpu
    assert node.device(0).xccs == 4
    assert (node.link(2, 0).link_class, node.link(2, 0).gbps) == (LinkClass.XGMI, 48.0)


def test_partitions_have_the_pci_functions_that_the_driver_gives_them(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path / "kfd")
    for function in range(2):
        tree.gpu(1 + function, bus=0x05, function=function, unique_id=7)
    slot = tmp_path / "pci" / "0000:05:00.0"
    slot.mkdir(parents=True)
    (slot / "current_compute_partition").write_text("DPX\n")
    hip = FakeHip([FakeHipProperties(), FakeHipProperties()])
    node = read(hip, tmp_path / "kfd", None, tmp_path / "pci")
    assert [device.pci for device in node.devices] == ["0000:05:00.0", "0000:05:00.1"]
    assert node.link(0, 1).link_class is LinkClass.ON_DIE
    # What the kernel says of the whole GPU lies with its function 0.
    assert [device.partition for device in node.devices] == ["DPX", "DPX"]


def test_a_shared_unique_id_is_one_gpu_whatever_the_addresses(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    tree.gpu(1, bus=0x05, unique_id=7)
    tree.gpu(2, bus=0x06, unique_id=7)
    hip = FakeHip([FakeHipProperties(), FakeHipProperties(pciBusID=0x06)])
    assert read(hip, tmp_path).link(0, 1).link_class is LinkClass.ON_DIE


def test_partitions_with_ids_of_their_own_are_found_by_them(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    for partition in range(3):
        tree.gpu(1 + partition, bus=0x05, partition=partition, unique_id=0x100 + partition, llc_kib=1024 << partition)
    hip = FakeHip([FakeHipProperties()])
    hip.uuids = [f"{0x102:016x}"]
    assert read(hip, tmp_path).device(0).last_level_cache_bytes == 4 << 20


def test_a_partition_that_cannot_be_told_apart_is_not_guessed(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    for partition in range(2):
        tree.gpu(1 + partition, bus=0x05, partition=partition, unique_id=7)
    nodes = rocm_facts.match_nodes([((0, 5, 0), None)], kfd.read_nodes(tmp_path))
    assert nodes == [None]


def test_pcie_peers_are_as_slow_as_the_slower_slot(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    tree.gpu(1, bus=0x05, unique_id=1, links={0: (2, 64_000)})
    tree.gpu(2, bus=0x26, unique_id=2, links={0: (2, 32_000)})
    hip = pair()
    hip.link_type = (2, 2)
    link = read(hip, tmp_path).link(0, 1)
    assert (link.link_class, link.gbps, link.hops) == (LinkClass.PCIE, 32.0, 2)


def test_hip_alone_knows_xgmi_and_the_listed_way_over_the_host_is_not_its_rate(tmp_path: Path) -> None:
    tree = KfdTree(tmp_path)
    tree.gpu(1, bus=0x05, unique_id=1, p2p={2: (2, 16_000)})
    tree.gpu(2, bus=0x26, unique_id=2)
    link = read(pair(), tmp_path).link(0, 1)
    assert (link.link_class, link.gbps) == (LinkClass.XGMI, 64.0)


def test_peer_access_and_silent_link_queries(tmp_path: Path) -> None:
    hip = pair()
    hip.peers = False
    hip.fail["hipExtGetLinkTypeAndHopCount"] = HipCode.hipErrorOutOfMemory
    link = read(hip, tmp_path).link(0, 1)
    assert (link.peer_access, link.hops, link.link_class) == (False, None, LinkClass.PCIE)


def test_an_apu_has_no_pcie_host_link() -> None:
    hip = pair()
    hip.devices[0].integrated = 1
    node = read(hip, RECORDED)
    assert (node.link(HOST, 0).gbps, node.link(HOST, 1).gbps) == (None, 64.0)


def test_partition_mode_and_numa_node_come_from_sysfs(tmp_path: Path) -> None:
    slot = tmp_path / "pci" / "0000:05:00.0"
    slot.mkdir(parents=True)
    (slot / "current_compute_partition").write_text("CPX\n")
    (slot / "current_memory_partition").write_text("NPS4\n")
    (slot / "numa_node").write_text("1\n")
    node = read(FakeHip([FakeHipProperties()]), RECORDED, None, tmp_path / "pci")
    assert (node.device(0).partition, node.device(0).numa_node) == ("CPX/NPS4", 1)
    assert "partition mode CPX/NPS4" in node.notes


def test_settings_that_choose_the_copy_engine_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSA_ENABLE_SDMA", "0")
    monkeypatch.setenv("ROC_P2P_SDMA_SIZE", "64")
    node = read(pair(), RECORDED)
    assert any(note.startswith("HSA_ENABLE_SDMA=0:") for note in node.notes)
    assert node.environment["ROC_P2P_SDMA_SIZE"] == "64"


def test_a_small_bar_is_noted() -> None:
    hip = pair()
    hip.devices[1].isLargeBar = 0
    node = read(hip, RECORDED)
    assert (node.device(0).large_bar, node.device(1).large_bar) == (True, False)
    assert "large BAR off on GPU 1: the host cannot reach its memory" in node.notes


def test_no_device_is_hips_own_error() -> None:
    hip = pair()
    hip.fail["hipGetDeviceCount"] = HipCode.hipErrorNoDevice
    with pytest.raises(HipError, match=r"^hipErrorNoDevice: no ROCm-capable device is detected$"):
        read(hip, RECORDED)


def test_between_gfx1250_gpus_the_driver_s_xgmi_is_ualoe(tmp_path: Path) -> None:
    hip = FakeHip([FakeHipProperties(gcnArchName=b"gfx1250"), FakeHipProperties(gcnArchName=b"gfx1250", pciBusID=0x26)])
    tree = KfdTree(tmp_path)
    tree.gpu(1, bus=0x05, links={2: (kfd.IOLINK_XGMI, 1000000)})
    tree.gpu(2, bus=0x26, links={1: (kfd.IOLINK_XGMI, 1000000)})
    link = read(hip, tmp_path).link(0, 1)
    assert (link.link_class, link.gbps) == (LinkClass.UALOE, 1000.0)

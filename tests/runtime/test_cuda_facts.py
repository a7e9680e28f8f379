from types import SimpleNamespace

import pytest

from pytest_transferbench.node import HOST, LinkClass, Node
from pytest_transferbench.runtime import cuda_facts

from .fakes import FakeCudaRuntime, FakeNvml, FakeNvmlError, field


def test_two_h200s_behind_a_switch() -> None:
    node = cuda_facts.read_node(FakeCudaRuntime(), FakeNvml())
    device = node.device(0)
    assert (device.name, device.arch, device.pci, device.compute_units) == ("NVIDIA H200", "sm_90", "0000:18:00.0", 132)
    assert device.memory_gbps == pytest.approx(4916.7, abs=0.1)
    assert device.last_level_cache_bytes == 62_914_560
    assert (device.copy_engines, device.warp_size, device.large_bar, device.partition) == (3, 32, True, None)
    assert device.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    link = node.link(0, 1)
    assert link.link_class is LinkClass.NVLINK
    assert link.gbps == pytest.approx(18 * 26.562)
    assert link.source_of_rate == "NVML 18 x 26.562 (NVLink 4)"
    assert link.peer_access
    host = node.link(HOST, 1)
    assert (host.link_class, host.source_of_rate) == (LinkClass.HOST, "PCIe gen5 x16")
    assert host.gbps == pytest.approx(63.0, abs=0.05)
    assert node.link(1, 1).gbps == pytest.approx(2458.4, abs=0.1)
    assert (node.runtime, node.driver, node.runtime_version) == ("cuda", "580.159", "13.0")
    assert Node.from_json(node.to_json()) == node


def test_a_reported_link_speed_wins_over_the_table() -> None:
    nvml = FakeNvml(nvmlDeviceGetFieldValues=lambda handle, wanted: [field(wanted[0][0], 25_781, 0, 1)])
    assert cuda_facts.read_node(FakeCudaRuntime(), nvml).link(0, 1).gbps == pytest.approx(18 * 25.781)


def test_an_unknown_generation_gives_no_rate() -> None:
    nvml = FakeNvml(nvmlDeviceGetNvLinkVersion=lambda handle, link: 99)
    link = cuda_facts.read_node(FakeCudaRuntime(), nvml).link(0, 1)
    assert (link.link_class, link.gbps) == (LinkClass.NVLINK, None)


def test_direct_links_count_only_towards_the_peer() -> None:
    def remote(handle: str, link: int) -> SimpleNamespace:
        other = "00000000:19:00.0" if handle == "0000:18:00.0" else "00000000:18:00.0"
        return SimpleNamespace(busId=(other if link < 4 else "00000000:55:00.0").encode())

    nvml = FakeNvml(
        nvmlDeviceGetNvLinkRemotePciInfo=remote,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda handle, link: 0,
    )
    link = cuda_facts.read_node(FakeCudaRuntime(), nvml).link(0, 1)
    assert (link.hops, link.source_of_rate) == (1, "NVML 4 x 26.562 (NVLink 4)")


@pytest.mark.parametrize(("status", "link_class"), [(0, LinkClass.NVLINK), (None, LinkClass.PCIE)])
def test_an_untyped_far_end_is_a_switch_only_if_nvml_vouches_for_the_pair(
    status: int | None, link_class: LinkClass
) -> None:
    nvml = FakeNvml(
        nvmlDeviceGetNvLinkRemoteDeviceType=FakeNvmlError("not supported"),
        nvmlDeviceGetP2PStatus=FakeNvmlError("not supported") if status is None else lambda a, b, what: status,
    )
    assert cuda_facts.read_node(FakeCudaRuntime(), nvml).link(0, 1).link_class is link_class


def test_a_fabric_that_is_down_leaves_pcie() -> None:
    nvml = FakeNvml(nvmlDeviceGetP2PStatus=lambda a, b, what: 5)
    link = cuda_facts.read_node(FakeCudaRuntime(), nvml).link(0, 1)
    assert (link.link_class, link.source_of_rate) == (LinkClass.PCIE, "PCIe gen5 x16")


def test_links_to_a_processor_do_not_count() -> None:
    nvml = FakeNvml(nvmlDeviceGetNvLinkRemoteDeviceType=lambda handle, link: 1)
    assert cuda_facts.read_node(FakeCudaRuntime(), nvml).link(0, 1).link_class is LinkClass.PCIE


def test_without_nvml_rates_are_unknown_and_nothing_fails() -> None:
    node = cuda_facts.read_node(FakeCudaRuntime(), None)
    assert (node.link(0, 1).link_class, node.link(0, 1).gbps) == (LinkClass.PCIE, None)
    assert node.device(0).memory_gbps == pytest.approx(4916.7, abs=0.1)
    assert node.device(0).large_bar is None
    assert node.driver is None


def test_peer_access_is_recorded_as_it_is() -> None:
    cuda = FakeCudaRuntime()
    cuda.peers = False
    node = cuda_facts.read_node(cuda, FakeNvml())
    assert not node.link(0, 1).peer_access
    assert cuda.said("deviceCanAccessPeer") == [(0, 1), (1, 0)]


def test_a_coherent_host_link_is_not_taken_for_pcie() -> None:
    cuda = FakeCudaRuntime(1)
    cuda.properties["pageableMemoryAccessUsesHostPageTables"] = 1
    assert cuda_facts.read_node(cuda, FakeNvml()).link(HOST, 0).gbps is None


def test_mig_is_named() -> None:
    nvml = FakeNvml(nvmlDeviceGetMigMode=lambda handle: [1, 1])
    assert cuda_facts.read_node(FakeCudaRuntime(1), nvml).device(0).partition == "MIG"


@pytest.mark.parametrize(
    ("changes", "managed"),
    [({}, True), ({"concurrentManagedAccess": 0}, False), ({"managedMemory": 0}, False)],
)
def test_managed_memory_is_there_where_it_can_be_prefetched(changes: dict[str, int], managed: bool) -> None:
    cuda = FakeCudaRuntime()
    cuda.properties.update(changes)
    device = cuda_facts.read_node(cuda, FakeNvml()).device(0)
    assert (device.managed_memory, device.pageable_access) == (managed, True)


def test_a_cuda_that_does_not_tell_of_managed_memory_leaves_it_unknown() -> None:
    cuda = FakeCudaRuntime()
    for name in ("managedMemory", "concurrentManagedAccess", "pageableMemoryAccess"):
        del cuda.properties[name]
    device = cuda_facts.read_node(cuda, FakeNvml()).device(0)
    assert (device.managed_memory, device.pageable_access) == (None, None)

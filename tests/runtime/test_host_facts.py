import os
from pathlib import Path

import pytest

from pytest_transferbench.node import NumaNode
from pytest_transferbench.runtime import host_facts


def chain(root: Path, *steps: tuple[str, str]) -> Path:
    """Make a device under bridges, root port first, with (speed, width) files; return the devices folder."""
    folder = root / "devices" / "pci0000:00"
    for number, (speed, width) in enumerate(steps):
        folder = folder / f"0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "max_link_speed").write_text(f"{speed}\n")
        (folder / "max_link_width").write_text(f"{width}\n")
    links = root / "links"
    links.mkdir()
    (links / "0000:aa:00.0").symlink_to(folder)
    return links


def test_the_slowest_step_to_the_host_counts(tmp_path: Path) -> None:
    devices = chain(tmp_path, ("16.0 GT/s PCIe", "16"), ("32.0 GT/s PCIe", "16"), ("32.0 GT/s PCIe", "16"))
    found = host_facts.slot_gbps("0000:AA:00.0", devices)
    assert found == (pytest.approx(31.508, abs=1e-3), "PCIe 16 GT/s x16")


def test_a_hypervisors_bridge_is_passed_over(tmp_path: Path) -> None:
    devices = chain(tmp_path, ("2.5 GT/s PCIe", "1"), ("32.0 GT/s PCIe", "16"))
    assert host_facts.slot_gbps("0000:aa:00.0", devices) == (pytest.approx(63.015, abs=1e-3), "PCIe 32 GT/s x16")


@pytest.mark.parametrize("speed", ["Unknown", "", "7.0 GT/s"])
def test_an_unknown_speed_is_unknown(tmp_path: Path, speed: str) -> None:
    assert host_facts.slot_gbps("0000:aa:00.0", chain(tmp_path, (speed, "16"))) is None


def test_no_such_device(tmp_path: Path) -> None:
    assert host_facts.slot_gbps("0000:aa:00.0", tmp_path) is None


def test_generations() -> None:
    assert host_facts.pcie_gbps(4, 8) == (pytest.approx(15.754, abs=1e-3), "PCIe gen4 x8")
    assert host_facts.pcie_gbps(0, 16) is None
    assert host_facts.pcie_gbps(9, 16) is None


def test_addresses() -> None:
    assert host_facts.pci_slot("00000000:C1:00.0") == host_facts.pci_slot("0000:c1:00.1") == "0000:c1:00"
    assert host_facts.pci_address(1, 0xAB, 2) == "0001:ab:02.0"


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), ("", None)])
def test_numa_node(tmp_path: Path, text: str, node: int | None) -> None:
    (tmp_path / "0000:05:00.0").mkdir()
    (tmp_path / "0000:05:00.0" / "numa_node").write_text(text)
    assert host_facts.numa_node("0000:05:00.0", tmp_path) == node


def test_iommu(tmp_path: Path) -> None:
    cmdline, classes = tmp_path / "cmdline", tmp_path / "iommu"
    assert host_facts.iommu(cmdline, classes) == "IOMMU off"
    cmdline.write_text("quiet amd_iommu=on iommu=pt\n")
    (classes / "ivhd0").mkdir(parents=True)
    assert host_facts.iommu(cmdline, classes) == "IOMMU on (1 unit), amd_iommu=on iommu=pt"


def test_cpu_name(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9654\n")
    assert host_facts.cpu_name(cpuinfo) == "AMD EPYC 9654"
    assert host_facts.cpu_name(tmp_path / "nothing") != ""


def test_only_known_settings_are_taken() -> None:
    assert host_facts.settings({"HSA_XNACK": "1", "PATH": "/bin", "HIP_VISIBLE_DEVICES": "0"}) == {
        "HIP_VISIBLE_DEVICES": "0",
        "HSA_XNACK": "1",
    }


def test_the_largest_last_level_cache_counts(tmp_path: Path) -> None:
    for cpu, (level, size) in enumerate([("2", "1024K"), ("3", "32768K"), ("3", "98304K"), ("3", "?")]):
        folder = tmp_path / f"cpu{cpu}" / "cache" / "index3"
        folder.mkdir(parents=True)
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    assert host_facts.last_level_cache_bytes(tmp_path) == 96 << 20
    assert host_facts.last_level_cache_bytes(tmp_path / "nothing") is None


def numa_tree(root: Path, has_memory: str, **cpulists: str) -> Path:
    (root / "has_memory").write_text(has_memory + "\n")
    for name, cpulist in cpulists.items():
        (root / name).mkdir()
        (root / name / "cpulist").write_text(cpulist + "\n")
    return root


def test_numa_nodes_are_those_with_memory_whatever_their_numbers(tmp_path: Path) -> None:
    root = numa_tree(tmp_path, "0,2-3,8", node0="0-3,8-11", node1="4-7", node2="", node3="12", node8="13,15")
    assert host_facts.numa_nodes(root, None) == (NumaNode(0, 8), NumaNode(2, 0), NumaNode(3, 1), NumaNode(8, 2))


def test_numa_nodes_outside_the_cpuset_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5})
    root = numa_tree(tmp_path, "0-3", node0="0-3", node1="4-7", node2="8", node3="9")
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nMems_allowed:\t0000000a\nMems_allowed_list:\t1,3\n")
    assert host_facts.numa_nodes(root, status) == (NumaNode(1, 2), NumaNode(3, 0))
    assert [found.index for found in host_facts.numa_nodes(root, tmp_path / "absent")] == [0, 1, 2, 3]


def test_a_kernel_without_numa_has_node_0(tmp_path: Path) -> None:
    assert host_facts.numa_nodes(tmp_path / "absent") == (NumaNode(0, host_facts.cpu_count()),)


@pytest.mark.parametrize(
    ("text", "found"), [("0-2,7\n", {0, 1, 2, 7}), ("5", {5}), ("", set()), ("\n", set()), ("(null)", set())]
)
def test_the_kernels_lists(text: str, found: set[int]) -> None:
    assert host_facts.numbers(text) == found

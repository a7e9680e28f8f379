from __future__ import annotations

import dataclasses

from pytest_transferbench.node import Link, LinkClass, Node
from pytest_transferbench.options import Settings, resolve
from pytest_transferbench.report.header import header_lines
from tests.plugin.fake_machine import FakeMachine


def lines(node: Node, settings: Settings | None = None, taken: tuple[str, ...] = ()) -> list[str]:
    gpus = tuple(device.index for device in node.devices)
    return header_lines(settings or Settings(), node, gpus, (1 << 20,), {}, taken)


def test_a_machine_without_a_gpu_says_why() -> None:
    assert lines(FakeMachine(gpus=0, why_no_gpu="no driver").node())[0] == (
        "transferbench: no GPU (no driver); host CPU, 1 CPUs"
    )


def test_devices_that_differ_have_lines_of_their_own() -> None:
    node = FakeMachine(gpus=3).node()
    odd = dataclasses.replace(node.devices[1], partition="CPX", large_bar=False, last_level_cache_bytes=None)
    node = dataclasses.replace(node, devices=(node.devices[0], odd, node.devices[2]))
    using = [line for line in lines(node) if "using" in line]
    assert [line.partition(":")[0] for line in using] == ["  using GPUs 0, 2", "  using GPU 1"]
    assert using[1].endswith("64 GiB, partition CPX, last-level cache unknown, 16 copy engines; PCI 0000:02:00.0")


def test_only_selected_gpus_and_their_links_are_listed() -> None:
    node = FakeMachine(gpus=4).node()
    shown = header_lines(Settings(), node, (1, 3), (1 << 20,), {}, ())
    assert any(line.startswith("  using GPUs 1, 3:") for line in shown)
    assert "  links G1-G3 G3-G1: xGMI 400.0 GB/s a direction (a fake table)" in shown


def test_many_links_are_counted() -> None:
    assert any(line.startswith("  links 56 pairs: xGMI") for line in lines(FakeMachine(gpus=8).node()))


def test_a_dead_or_unknown_link_is_seen() -> None:
    node = FakeMachine().node()
    links = (
        Link(0, 1, LinkClass.PCIE, None, peer_access=False),
        Link(1, 0, LinkClass.PCIE, None),
    )
    shown = lines(dataclasses.replace(node, links=links))
    assert "  links G0-G1: PCIe rate unknown, NO PEER ACCESS" in shown
    assert "  links G1-G0: PCIe rate unknown" in shown


def test_rotation_as_asked() -> None:
    for text, said in (("auto", "auto"), ("0", "off"), ("8G", "8G")):
        shown = lines(FakeMachine().node(), resolve({"rotate": text}, {}, {}))
        assert any(f"rotation {said};" in line for line in shown)


def test_where_the_sizes_come_from() -> None:
    assert "  sizes 1M (default on a node with GPUs); rotation auto; 25 samples; marks override" in lines(
        FakeMachine().node()
    )
    emulated = lines(FakeMachine(emulated="mi300x-8").node())
    assert "  sizes 1M (default on an emulated node); rotation auto; 25 samples; marks override" in emulated
    asked = lines(FakeMachine().node(), resolve({"sizes": "1M"}, {}, {}))
    assert "  sizes 1M (from --sizes); rotation auto; 25 samples; marks override" in asked

"""Node models: what is read, what is refused in one line, what the runtime and KFD's readers are given."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from pytest_transferbench.emulator import ModelError, load_model, node_models
from pytest_transferbench.emulator.kfd import IO_LINK_PCIE, IO_LINK_XGMI, write_numa_nodes, write_topology
from pytest_transferbench.emulator.model import NodeModel
from pytest_transferbench.node import HOST, NumaNode
from pytest_transferbench.runtime.host_facts import numa_nodes


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def classes(model: NodeModel) -> dict[tuple[int, int], str]:
    """Return the class of the link of every pair of GPUs, which is the same both ways."""
    pairs = list(combinations(range(model.device.count), 2))
    assert all(model.link(first, second) == model.link(second, first) for first, second in pairs)
    return {pair: model.link(*pair).link_class for pair in pairs}


def test_the_default_model_is_there() -> None:
    assert "mi300x-8" in node_models()
    model = load_model("mi300x-8")
    assert (model.device.count, model.device.compute_units, model.device.xccs) == (8, 304, 8)
    assert model.device_name == "Emulated AMD Instinct MI300X"
    assert model.device.memory_bytes == 192 << 30
    assert model.reported_memory_bytes == 4 << 30
    assert model.link(0, 7).raw_gbps == 64
    assert [model.link(*ends).link_class for ends in ((0, 0), (0, 1), (HOST, 3), (3, HOST))] == [
        "local",
        "xgmi",
        "host",
        "host",
    ]


def test_a_file_says_only_what_differs(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        extends = "mi300x-8"
        [gfx]
        launch_us = 9
        [link.slow]
        usable_gbps = 12.5
        first_us = 7
        one_way_us = 2
        [links]
        "0-3" = "slow"
        """,
    )
    model, base = load_model(path), load_model("mi300x-8")
    assert (model.name, model.extends, base.extends) == ("mine", "mi300x-8", "")
    assert (model.gfx.launch_us, model.gfx.overlap_us) == (9, base.gfx.overlap_us)
    assert model.device == base.device
    assert model.link(0, 3) == model.link(3, 0) == model.links["slow"]
    assert model.link(0, 2) == base.link(0, 2)
    assert model.digest() != base.digest()


def test_caches_translations_and_units_limit_nothing_by_default() -> None:
    model = load_model("mi300x-8")
    assert (model.gfx.cold_remote_read_us, model.gfx.translation_reach_bytes) == (0, 0)
    assert model.gfx.remote_read_gbps_per_compute_unit is None
    assert model.gfx.remote_write_gbps_per_compute_unit is None
    assert model.cache_hit_gbps is None
    assert dict(model.pairs) == {}


def test_caches_translations_and_units_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        extends = "mi300x-8"
        [device]
        count = 3
        pci = ["0000:0c:00.0", "0000:0c:00.1", "0000:22:00.0"]
        numa_nodes = [0, 0, 1]
        [gfx]
        cold_remote_read_us = 3
        translation_reach = "128M"
        remote_read_gbps_per_compute_unit = 15
        remote_write_gbps_per_compute_unit = 48.5
        [cache]
        hit_gbps = 8600
        [link.near]
        usable_gbps = 1300
        first_us = 2
        one_way_us = 0.5
        [links]
        same_gpu = "near"
        """,
    )
    model = load_model(path)
    assert (model.gfx.cold_remote_read_us, model.gfx.translation_reach_bytes) == (3, 128 << 20)
    assert model.gfx.remote_read_gbps_per_compute_unit == 15
    assert model.gfx.remote_write_gbps_per_compute_unit == 48.5
    assert model.cache_hit_gbps == 8600
    assert classes(model) == {(0, 1): "near", (0, 2): "xgmi", (1, 2): "xgmi"}


def test_engines_batches_and_both_ways_are_like_one_copy_by_default(tmp_path: Path) -> None:
    model = load_model("mi300x-8")
    assert (model.dma.small, model.batch.call_us, model.batch.issue_us) == (None, 0, None)
    assert (model.links["host"].dma_gbps, model.links["host"].duplex) == (None, 1)
    assert model.cpu.memory_gbps is None
    without = write(tmp_path, "extends = 'mi210-pcie-2'")
    assert load_model(without).device.xgmi_copy_engines == 0


def test_engines_batches_and_both_ways_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        extends = "mi300x-8"
        [device]
        xgmi_copy_engines = 3
        [link.xgmi]
        dma_gbps = 55
        duplex = 0.9
        [dma]
        issue_us = 6
        small_max = "512K"
        small_gbps = 40
        large_setup_us = 8
        [batch]
        call_us = 0.25
        issue_us = 5
        [cpu]
        memory_gbps = 300
        """,
    )
    model = load_model(path)
    assert model.device.xgmi_copy_engines == 3
    assert (model.links["xgmi"].dma_gbps, model.links["xgmi"].duplex) == (55, 0.9)
    assert model.dma.small is not None
    small = model.dma.small
    assert (small.max_bytes, small.rate_gbps, small.large_setup_us) == (512 << 10, 40, 8)
    assert (model.batch.call_us, model.batch.issue_us) == (0.25, 5)
    assert model.cpu.memory_gbps == 300
    text = model.runtime_text(compiler="/usr/bin/g++", kernel_cache=tmp_path, include_folder=tmp_path)
    lines = dict(line.split(" ", 1) for line in text.splitlines() if not line.startswith(("link", "device ")))
    assert lines["copy_engines"] == "2 3"
    assert lines["small_copies"] == f"{512 << 10} {40e9!r} {8e-6!r}"
    assert lines["batch"] == f"{0.25e-6!r} {5e-6!r}"
    assert lines["cpu"].endswith(f" {300e9!r}")
    xgmi = text.partition("\nlink 0 1 ")[2].split("\n", 1)[0]
    assert xgmi.endswith(f" {55e9!r} 0.9")


def test_mi355x_and_mi210_are_what_they_are_called(tmp_path: Path) -> None:
    mi355x, mi210 = load_model("mi355x-8"), load_model("mi210-pcie-2")
    assert (mi355x.device.count, mi355x.device.arch.partition(":")[0]) == (8, "gfx950")
    assert set(classes(mi355x).values()) == {"xgmi"}
    assert (mi210.device.count, mi210.device.arch.partition(":")[0]) == (2, "gfx90a")
    assert (classes(mi210), mi210.device.numa_nodes) == ({(0, 1): "pcie"}, (0, 0))
    gpus = [path for path in write_topology(mi210, tmp_path).iterdir() if (path / "gpu_id").read_text() != "0\n"]
    levels = [[properties(cache / "properties")["level"] for cache in (gpu / "caches").iterdir()] for gpu in gpus]
    assert levels == [[2], [2]], "what a GPU has not is not in its files"
    assert [properties(gpu / "properties")["caches_count"] for gpu in gpus] == [1, 1]


def test_partitions_have_the_default_link_unless_told_otherwise(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        extends = "mi300x-8"
        [device]
        count = 2
        pci = ["0000:0c:00.0", "0000:0c:00.1"]
        numa_nodes = [0, 0]
        """,
    )
    assert classes(load_model(path)) == {(0, 1): "xgmi"}


def test_a_named_pair_goes_before_the_physical_gpu(tmp_path: Path) -> None:
    model = load_model(write(tmp_path, "extends = 'gfx1250-dpx'\n[links]\n'0-1' = 'ualoe'\n"))
    assert (model.link(1, 0).link_class, model.link(2, 3).link_class) == ("ualoe", "on_die")


def test_dpx_is_two_devices_on_each_of_four_physical_gpus() -> None:
    model = load_model("gfx1250-dpx")
    device = model.device
    assert (device.count, device.arch, device.partition) == (8, "gfx1250", "DPX")
    assert [device.physical_gpu(index) for index in range(8)] == [0, 0, 2, 2, 4, 4, 6, 6]
    on_die = {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert classes(model) == {pair: "on_die" if pair in on_die else "ualoe" for pair in combinations(range(8), 2)}


def test_spx_is_four_whole_gpus() -> None:
    model = load_model("gfx1250-spx")
    device = model.device
    assert (device.count, device.arch, device.partition) == (4, "gfx1250", "SPX")
    assert [device.physical_gpu(index) for index in range(4)] == [0, 1, 2, 3]
    assert classes(model) == dict.fromkeys(combinations(range(4), 2), "ualoe")
    assert model.cache_hit_gbps == load_model("gfx1250-dpx").cache_hit_gbps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends = 'mi300x-8'\n[gfx]\nlaunch = 3", "{path}: gfx.launch is no key of a node model"),
        ("extends = 'mi300x-8'\n[gfx]\nlaunch_us = -1", "{path}: gfx.launch_us = -1 must be a number from 0 to 1e+06"),
        (
            "extends = 'mi300x-8'\n[gfx]\nlaunch_us = 'x'",
            "{path}: gfx.launch_us = 'x' must be a number from 0 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[device]\nxccs = true",
            "{path}: device.xccs = True must be a whole number from 1 to 64",
        ),
        (
            "extends = 'mi300x-8'\n[device]\nmemory = '4Q'",
            '{path}: device.memory = \'4Q\' must be a size from "1M" to "16384G"',
        ),
        ("extends = 'mi300x-8'\n[device]\ncount = 4", "{path}: device.pci has 8 entries for device.count = 4"),
        ("extends = 'mi300x-8'\n[device]\narch = 'sm_90'", "{path}: device.arch = 'sm_90' must be as gfx942 or *"),
        ("extends = 'mi300x-8'\n[links]\n'0-8' = 'xgmi'", '{path}: links.0-8 must name two GPUs of 8, such as "0-1"'),
        (
            "extends = 'mi300x-8'\n[links]\n'0-1' = 'x'",
            "{path}: [[]links] names 'x', but the classes are local, host, xgmi",
        ),
        (
            "extends = 'mi300x-8'\n[link.xgmi]\nusable_gbps = 0",
            "{path}: link.xgmi.usable_gbps = 0 must be a number from 1e-06 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[gfx]\ncold_remote_read_us = -1",
            "{path}: gfx.cold_remote_read_us = -1 must be a number from 0 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[gfx]\ntranslation_reach = 128",
            '{path}: gfx.translation_reach = 128 must be a size from "0" to "16384G"',
        ),
        (
            "extends = 'mi300x-8'\n[gfx]\ntranslation_reach = '-1M'",
            '{path}: gfx.translation_reach = \'-1M\' must be a size from "0" to "16384G"',
        ),
        (
            "extends = 'mi300x-8'\n[gfx]\nremote_read_gbps_per_compute_unit = 0",
            "{path}: gfx.remote_read_gbps_per_compute_unit = 0 must be a number from 1e-06 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[gfx]\nremote_write_gbps_per_compute_unit = 'x'",
            "{path}: gfx.remote_write_gbps_per_compute_unit = 'x' must be a number from 1e-06 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[link.xgmi]\none_way_us = -0.5",
            "{path}: link.xgmi.one_way_us = -0.5 must be a number from 0 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[link.xgmi]\none_way_us = true",
            "{path}: link.xgmi.one_way_us = True must be a number from 0 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[link.slow]\nusable_gbps = 1\nfirst_us = 1",
            "{path}: link.slow.one_way_us is missing",
        ),
        (
            "extends = 'mi300x-8'\n[gfx]\nwrite_back_us = -1",
            "{path}: gfx.write_back_us = -1 must be a number from 0 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[gfx]\nwrite_back_us = '1'",
            "{path}: gfx.write_back_us = '1' must be a number from 0 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[cache]\nhit_gbps = 0",
            "{path}: cache.hit_gbps = 0 must be a number from 1e-06 to 1e+06",
        ),
        (
            "extends = 'mi300x-8'\n[cache]\nhit_gbps = 1749",
            "{path}: cache.hit_gbps = 1749.0 must be at least link.local.usable_gbps = 1750: a cache is *",
        ),
        (
            "extends = 'mi300x-8'\n[link.xgmi]\nfirst_store_us = -1",
            "{path}: link.xgmi.first_store_us = -1 must be a number from 0 to 1e+06",
        ),
        ("extends = 'mi300x-8'\n[cache]", "{path}: cache.hit_gbps is missing"),
        ("extends = 'mi300x-8'\n[cache]\nhit_gbps = 1\nways = 16", "{path}: cache.ways is no key of a node model"),
        ("cache = 1\nextends = 'mi300x-8'", "{path}: cache = 1 must be a table"),
        ("extends = 'mi300x-8'\n[links]\nsame_gpu = 1", "{path}: links.same_gpu = 1 must be a text"),
        (
            "extends = 'mi300x-8'\n[links]\nsame_gpu = 'on_die'",
            "{path}: [[]links] names 'on_die', but the classes are local, host, xgmi",
        ),
        ("extends = 'nosuch'", "{path}: extends = 'nosuch', but there are *mi300x-8*"),
        ("description = 'x'", "{path}: device is missing"),
        ("a = ", "{path}: not valid TOML: *"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    import fnmatch

    path = write(tmp_path, text)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    line = str(caught.value)
    assert "\n" not in line
    assert fnmatch.fnmatchcase(line, message.format(path=path))


MINE = "extends = 'mi300x-8'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[device]\nname = "a\\nmemory 1"', "device.name = 'a?nmemory 1' must be a text of printable ASCII, *"),
        ('[device]\nname = "a\\u0000b"', "device.name = 'a?x00b' must be a text of printable ASCII, *"),
        ("[device]\nname = ' '", "device.name = ' ' must be a text of printable ASCII, *"),
        (f"[cpu]\nname = '{'x' * 101}'", "cpu.name = 'xxx*... must be a text of printable ASCII, *"),
        ("[device]\narch = 'gfx942:; x'", "device.arch = 'gfx942:; x' must be as gfx942 or gfx942:sramecc+:xnack-"),
        ("[device]\narch = 'gfxabc'", "device.arch = 'gfxabc' must be as gfx942 or *"),
        ("[device]\nmemory = '0'", 'device.memory = \'0\' must be a size from "1M" to "16384G"'),
        ("[device]\nmemory = '\u0663G'", "device.memory = '\u0663G' must be a size from *"),
        (f"[device]\nmemory = '{'9' * 400}'", "device.memory = '999*... must be a size from *"),
        ("[device]\nlast_level_cache = '4G'", 'device.last_level_cache = \'4G\' must be a size from "0" to "512M"'),
        ("[device]\nl2_cache = '2G'", 'device.l2_cache = \'2G\' must be a size from "0" to "1G"'),
        ("[device]\nxccs = 1000", "device.xccs = 1000 must be a whole number from 1 to 64"),
        ("[device]\ncompute_units = 7", "device.xccs = 8 must be at most device.compute_units = 7: a die has *"),
        ("[device]\ncompute_units = 1.0", "device.compute_units = 1.0 must be a whole number from 1 to 4096"),
        ("[device]\ncount = 0", "device.count = 0 must be a whole number from 1 to 64"),
        ("[device]\nclock_mhz = 4000000", "device.clock_mhz = 4000000 must be a whole number from 1 to 100000"),
        ("[device]\nwall_clock_khz = 1", "device.wall_clock_khz = 1 must be a whole number from 1000 to 10000000"),
        ("[device]\nnuma_nodes = [0, 0, 0, 0, 1, 1, 1, -1]", "device.numa_nodes holds -1; a node is a whole number *"),
        ("[device]\nnuma_nodes = [0, 0, 0, 0, 1, 1, 1, true]", "device.numa_nodes holds True; a node is a whole *"),
        (
            "[device]\ncount = 2\nnuma_nodes = [0, 0]\npci = ['0000:0c:00.0', '0000:0c:00.0']",
            "device.pci holds 0000:0c:00.0 twice; every GPU and partition has its own",
        ),
        ("[link.xgmi]\nusable_gbps = nan", "link.xgmi.usable_gbps = nan must be a number from 1e-06 to 1e+06"),
        ("[link.xgmi]\nusable_gbps = inf", "link.xgmi.usable_gbps = inf must be a number from *"),
        (f"[link.xgmi]\nusable_gbps = {'9' * 400}", "link.xgmi.usable_gbps = 999*... must be a number from *"),
        ("[link.xgmi]\nfirst_us = nan", "link.xgmi.first_us = nan must be a number from 0 to 1e+06"),
        ("[link.xgmi]\nraw_gbps = -5", "link.xgmi.raw_gbps = -5 must be 0 (unknown) or a number from *"),
        ("[link.xgmi]\nraw_gbps = nan", "link.xgmi.raw_gbps = nan must be 0 (unknown) or a number from *"),
        ("[link.xgmi]\nraw_gbps = false", "link.xgmi.raw_gbps = False must be 0 (unknown) or a number from *"),
        ("[link.xgmi]\nhops = -3", "link.xgmi.hops = -3 must be a whole number from 0 to 64"),
        ("[link.'my link']\nhops = 1", "link class 'my link' must be named with letters, digits, _ and -"),
        ('[link."a\\nb"]\nhops = 1', "link class 'a?nb' must be named with letters, digits, _ and -"),
        ("[links]\n'\u0660-\u0661' = 'xgmi'", "links.\u0660-\u0661 must name two GPUs of 8, *"),
        ('[links]\n"0-\\n1" = "xgmi"', "links.'0-?n1' must name two GPUs of 8, *"),
        (
            "[links]\n'0-1' = 'xgmi'\n'1-0' = 'host'",
            "links.1-0 = 'host' and links.0-1 = 'xgmi': a pair's link is the same both ways, name it once",
        ),
        ("[device]\nxgmi_copy_engines = 65", "device.xgmi_copy_engines = 65 must be a whole number from 0 to 64"),
        ("[link.xgmi]\ndma_gbps = 0", "link.xgmi.dma_gbps = 0 must be a number from 1e-06 to 1e+06"),
        ("[link.xgmi]\nduplex = 0.49", "link.xgmi.duplex = 0.49 must be a number from 0.5 to 1"),
        ("[link.xgmi]\nduplex = 1.01", "link.xgmi.duplex = 1.01 must be a number from 0.5 to 1"),
        ("[dma]\nsmall_gbps = 50", "dma.small_max is missing"),
        ("[dma]\nsmall_max = '1M'\nlarge_setup_us = 9", "dma.small_gbps is missing"),
        ("[dma]\nsmall_max = '1M'\nsmall_gbps = 50", "dma.large_setup_us is missing"),
        ("[dma]\nsmall_max = '0'\nsmall_gbps = 50\nlarge_setup_us = 9", "dma.small_max = '0' must be a size from *"),
        ("[dma]\nsmall_max = '1M'\nsmall_gbps = -1\nlarge_setup_us = 9", "dma.small_gbps = -1 must be a number from *"),
        ("[batch]\ncall_us = 1", "batch.issue_us is missing"),
        ("[batch]\ncall_us = -1\nissue_us = 5", "batch.call_us = -1 must be a number from 0 to 1e+06"),
        ("[batch]\ncall_us = 1\nissue_us = 5\nserial = true", "batch.serial is no key of a node model"),
        ("batch = 1", "batch = 1 must be a table"),
        ("[cpu]\nmemory_gbps = 'x'", "cpu.memory_gbps = 'x' must be a number from 1e-06 to 1e+06"),
        ("[cpu]\nthreads = 9999999", "cpu.threads = 9999999 must be a whole number from 1 to 4096"),
        ("[dma]\npeer_minimum = '9T'", 'dma.peer_minimum = \'9T\' must be a size from "0" to "1024G"'),
        (
            "[[fault]]\ncall = 'hipMalloc'\nnth = 18446744073709551616\ncode = 'hipErrorUnknown'",
            "fault 1.nth = 18446744073709551616 must be a whole number from 1 to 1000000000",
        ),
        ("x = " + "[" * 5000, "not valid TOML: nested too deep, *"),
        (f"x = {'9' * 5000}", "not valid TOML: *"),
        ("[links]\n'0-1' = " + repr("x" * 100), "[[]links] names 'xxx*..., but the classes are local, host, xgmi"),
    ],
)
def test_what_no_machine_has_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    import fnmatch

    path = write(tmp_path, MINE + text)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    line = str(caught.value)
    assert line.isprintable() or "\u0663" in line or "\u0660" in line
    assert len(line) < 300 + len(str(path))
    assert fnmatch.fnmatchcase(line.removeprefix(f"{path}: "), message), line


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"description = '\xe9'")
    with pytest.raises(ModelError, match=r"mine\.toml: not valid TOML: byte 15 is not UTF-8, save it as a UTF-8 text$"):
        load_model(path)
    monkeypatch.chdir(tmp_path)
    Path("new\nline.toml").write_text(MINE)
    with pytest.raises(
        ModelError, match=r"^node model file 'new\\nline\.toml': its name must be printable: rename it$"
    ):
        load_model("new\nline.toml")
    with pytest.raises(ModelError, match=r"^unknown node model 'x{56}\.\.\.; there are "):
        load_model("x" * 5000)

    def fails(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    write(tmp_path, MINE)
    monkeypatch.setattr(Path, "read_text", fails)
    with pytest.raises(ModelError, match=r"^node model file mine\.toml cannot be read: Permission denied$"):
        load_model("mine.toml")


def test_what_a_good_file_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = MINE + "[link.xgmi]\nraw_gbps = 0\n[links]\n'0-1' = 'host'\n'1-0' = 'host'\n[device]\npartition = ''"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    model = load_model(path)
    assert model.link(0, 2).raw_gbps is None
    assert model.link(1, 0).link_class == "host"
    assert model.device.partition == ""


def test_an_unknown_model_lists_what_there_is() -> None:
    with pytest.raises(
        ModelError, match=r"^unknown node model 'nosuch'; there are .*mi300x-8.*, or give a FILE\.toml$"
    ):
        load_model("nosuch")
    with pytest.raises(ModelError, match=r"^no node model file /no/such\.toml$"):
        load_model("/no/such.toml")


@pytest.mark.parametrize("name", node_models())
def test_every_link_takes_its_time(name: str) -> None:
    """A store is at home sooner than anywhere else, and no way is longer than a first read over it would allow."""
    model = load_model(name)
    local, *others = (model.links[link].one_way_us for link in ("local", *(set(model.links) - {"local"})))
    assert 0 < local < min(others)
    assert all(link.one_way_us < link.first_us for link in model.links.values())
    assert model.gfx.write_back_us > 0


@pytest.mark.parametrize(
    ("arch", "wavefront"), [("gfx90a:sramecc+:xnack-", 64), ("gfx942", 64), ("gfx950", 64), ("gfx1201", 32)]
)
def test_a_wavefront_is_as_wide_as_its_architecture(tmp_path: Path, arch: str, wavefront: int) -> None:
    model = load_model(write(tmp_path, f"extends = 'mi300x-8'\n[device]\narch = '{arch}'\n"))
    assert model.device.wavefront == wavefront


def test_the_runtime_is_given_seconds_and_bytes(tmp_path: Path) -> None:
    model = load_model("mi300x-8")
    text = model.runtime_text(compiler="/usr/bin/g++", kernel_cache=tmp_path, include_folder=tmp_path)
    lines = dict(line.split(" ", 1) for line in text.splitlines() if not line.startswith(("link", "device ")))
    assert float(lines["launch"]) == pytest.approx(model.gfx.launch_us * 1e-6)
    assert lines["memory"] == str(4 << 30)
    assert sum(line.startswith("link ") for line in text.splitlines()) == 9 * 9
    assert f"link 0 1 xgmi 48600000000.0 {4e-6!r} 0.0 {1e-6!r} 4 1 48600000000.0 0.951" in text.splitlines()
    assert lines["copy_engines"] == "2 14"
    assert lines["small_copies"].startswith("0 ")
    assert lines["batch"] == f"0.0 {6.08e-6!r}"
    assert lines["cpu"].endswith(" 0.0")
    assert float(lines["write_back"]) == pytest.approx(model.gfx.write_back_us * 1e-6)
    assert lines["wavefront"] == "64"
    assert (lines["cold_remote_read"], lines["translation_reach"]) == ("0.0", "0")
    assert lines["remote_rates_of_a_unit"] == "0.0 0.0"
    assert lines["cache"] == "0 0.0", "a last level that no rate is given for is not modelled"


def test_the_runtime_is_given_caches_translations_and_physical_gpus(tmp_path: Path) -> None:
    model = load_model("gfx1250-dpx")
    text = model.runtime_text(compiler="/usr/bin/g++", kernel_cache=tmp_path, include_folder=tmp_path)
    lines = dict(line.split(" ", 1) for line in text.splitlines() if not line.startswith(("link", "device ")))
    assert float(lines["cold_remote_read"]) == pytest.approx(model.gfx.cold_remote_read_us * 1e-6)
    assert lines["translation_reach"] == str(model.gfx.translation_reach_bytes)
    assert lines["remote_rates_of_a_unit"] == "15000000000.0 48000000000.0"
    cache_bytes, cache_rate = lines["cache"].split()
    assert int(cache_bytes) == model.device.last_level_cache_bytes
    assert float(cache_rate) == (model.cache_hit_gbps or 0) * 1e9 > 0
    ualoe, on_die = (text.partition(f"\nlink {ends} ")[2].split() for ends in ("0 2", "0 1"))
    assert float(ualoe[3]) == pytest.approx(model.links["ualoe"].first_store_us * 1e-6)
    assert float(ualoe[3]) > float(on_die[3]) == 0
    devices = [line.split() for line in text.splitlines() if line.startswith("device ")]
    assert [int(words[-1]) for words in devices] == [0, 0, 2, 2, 4, 4, 6, 6]


def properties(path: Path) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split() for line in path.read_text().splitlines())}


def test_the_kfd_topology_reads_like_the_kernels(tmp_path: Path) -> None:
    model = load_model("mi300x-8")
    nodes = write_topology(model, tmp_path)
    folders = sorted(nodes.iterdir(), key=lambda path: int(path.name))
    assert [folder.name for folder in folders] == [str(number) for number in range(10)], "two CPUs, eight GPUs"
    ids = [int((folder / "gpu_id").read_text()) for folder in folders]
    assert ids[:2] == [0, 0]
    assert len(set(ids[2:])) == 8
    assert 0 not in ids[2:]
    gpu = properties(folders[2] / "properties")
    assert gpu["simd_count"] == 304 * 4
    assert gpu["gfx_target_version"] == 90402
    assert gpu["num_xcc"] == 8
    assert gpu["wave_front_size"] == 64
    assert (gpu["location_id"], gpu["domain"]) == (0x0C00, 0)
    assert gpu["unique_id"] == model.unique_id(0)
    assert (gpu["io_links_count"], gpu["p2p_links_count"], gpu["caches_count"]) == (8, 0, 2)
    assert (IO_LINK_PCIE, IO_LINK_XGMI) == (2, 11), "HSA's numbers"
    links = [properties(path / "properties") for path in sorted((folders[2] / "io_links").iterdir())]
    assert [(link["type"], link["node_from"], link["node_to"]) for link in links] == [
        (IO_LINK_PCIE, 2, 0),
        *((IO_LINK_XGMI, 2, other) for other in range(3, 10)),
    ]
    assert {link["max_bandwidth"] for link in links} == {64000}
    caches = [properties(path / "properties") for path in sorted((folders[2] / "caches").iterdir())]
    assert [(cache["level"], cache["size"]) for cache in caches] == [(2, 4 << 10), (3, 256 << 10)]
    far = properties(folders[9] / "io_links" / "0" / "properties")
    assert (far["node_from"], far["node_to"]) == (9, 1), "the last four GPUs hang on the second CPU"
    cpu = properties(folders[0] / "properties")
    assert (cpu["cpu_cores_count"], cpu["simd_count"], cpu["io_links_count"]) == (model.cpu.threads, 0, 4)


def test_a_pair_without_xgmi_is_a_p2p_link(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        extends = "mi300x-8"
        [link.pcie]
        raw_gbps = 32
        usable_gbps = 26
        first_us = 5
        one_way_us = 2
        [links]
        "0-1" = "pcie"
        """,
    )
    nodes = write_topology(load_model(path), tmp_path / "kfd")
    (link,) = [properties(entry / "properties") for entry in (nodes / "2" / "p2p_links").iterdir()]
    assert (link["type"], link["node_to"], link["max_bandwidth"]) == (IO_LINK_PCIE, 3, 32000)
    assert properties(nodes / "2" / "properties")["io_links_count"] == 7


def test_the_hosts_numa_nodes_read_like_the_kernels_with_gaps_and_all(tmp_path: Path) -> None:
    path = write(
        tmp_path, 'extends = "mi300x-8"\n[device]\nnuma_nodes = [3, 3, 3, 3, 0, 0, 0, 0]\n[cpu]\nthreads = 8\n'
    )
    model = load_model(path)
    assert model.numa_nodes == (0, 3)
    folder = write_numa_nodes(model, tmp_path / "sys")
    assert (folder / "has_memory").read_text() == "0,3\n"
    assert [(folder / name / "cpulist").read_text() for name in ("node0", "node3")] == ["0-7\n", "8-15\n"]
    assert numa_nodes(folder, None) == (NumaNode(0, 8), NumaNode(3, 8))

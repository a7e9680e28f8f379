"""What decides whether a read comes over the link: the cache of a physical GPU, lost translations, the units at work.

On a small node like gfx1250 in DPX mode: G0 and G1 are one physical GPU and G2 and G3 another. Every figure is the
model's arithmetic, worked out here a second time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_transferbench.emulator import load_model
from pytest_transferbench.emulator.model import NodeModel
from pytest_transferbench.node import HOST
from tests.emulator.conftest import REPOSITORY
from tests.emulator.small_node import LEG, Leg, allocate, free, prefetch, run

MODEL = """
extends = "gfx1250-dpx"
[device]
count = 4
compute_units = 12
last_level_cache = "4M"
pci = ["0001:04:00.0", "0001:04:00.1", "0001:44:00.0", "0001:44:00.1"]
numa_nodes = [0, 0, 1, 1]
[gfx]
translation_reach = "8M"
"""
CAPACITY, REACH = 4 << 20, 8 << 20
LINE, CHUNK = 128, 64 << 10
"""Lines of one chunk age together."""
MANY = 10_000
"""Blocks enough for every compute unit."""

EXACT = 1e-6
Play = Callable[..., list[float]]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("small") / "small.toml"
    path.write_text(MODEL, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def model(model_file: str) -> NodeModel:
    return load_model(model_file)


@pytest.fixture(scope="module")
def play(model_file: str) -> Iterator[Play]:
    """Play steps on the small node, whose caches are empty at first, and return the seconds of each launch."""
    command = [sys.executable, "-m", "tests.emulator.small_node", model_file]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stderr is not None

        def play(*steps: dict[str, Any]) -> list[float]:
            print(json.dumps(steps), file=node.stdin, flush=True)
            answer = node.stdout.readline()  # type: ignore[union-attr]  # asserted above
            assert answer, node.stderr.read()  # type: ignore[union-attr]
            seconds: list[float] = json.loads(answer)
            return seconds

        yield play
        node.stdin.close()


def moving(nbytes: int, model: NodeModel, link_class: str, units: int = MANY, *, stores: bool = False) -> float:
    """Return the microseconds that bytes take over a link that ``units`` compute units use."""
    gfx, gbps = model.gfx, model.links[link_class].usable_gbps
    of_a_unit = gfx.remote_write_gbps_per_compute_unit if stores else gfx.remote_read_gbps_per_compute_unit
    assert of_a_unit is not None
    if link_class != "local":
        gbps = min(gbps, min(units, model.device.compute_units) * of_a_unit)
    return nbytes / gbps / 1e3


def missed(nbytes: int, model: NodeModel, link_class: str = "on_die", units: int = 8, *, lost: bool = False) -> float:
    """Return the seconds of a launch that only reads, all of it over the link."""
    first = model.links[link_class].first_us + lost * model.gfx.cold_remote_read_us
    return (model.gfx.launch_us + first + moving(nbytes, model, link_class, units)) * 1e-6


def hit(nbytes: int, model: NodeModel) -> float:
    """Return the seconds of a launch that only reads, all of it from the cache."""
    return (model.gfx.launch_us + nbytes / (model.cache_hit_gbps or 0) / 1e3) * 1e-6


def read(name: str, nbytes: int, device: int = 1) -> dict[str, Any]:
    return run(device, Leg(nbytes, name))


@pytest.mark.parametrize("reader", [0, 1])
def test_what_fits_is_answered_by_the_cache(play: Play, model: NodeModel, reader: int) -> None:
    """Whichever partition reads it, and whichever read it before."""
    seconds = play(allocate("a", 0, CAPACITY), read("a", CAPACITY), read("a", CAPACITY, device=reader))
    assert seconds == pytest.approx([missed(CAPACITY, model, lost=True), hit(CAPACITY, model)], rel=EXACT)


def test_of_a_little_more_nothing_is_left_when_it_is_read_again(play: Play, model: NodeModel) -> None:
    more = CAPACITY + CHUNK
    seconds = play(allocate("a", 0, more), *[read("a", more)] * 3)
    again = missed(more, model)
    assert seconds == pytest.approx([missed(more, model, lost=True), again, again], rel=EXACT)


def test_what_is_read_again_is_kept_longer(play: Play, model: NodeModel) -> None:
    half = CAPACITY // 2
    buffers = [allocate(name, 0, half) for name in "abc"]
    seconds = play(*buffers, *[read(name, half) for name in "abacab"])
    cold, warm = missed(half, model, lost=True), hit(half, model)
    assert seconds == pytest.approx([cold, cold, warm, cold, warm, missed(half, model)], rel=EXACT)


def test_a_part_of_what_is_read_may_hit(play: Play, model: NodeModel) -> None:
    third, rest = 1 << 20, 2 << 20
    _, seconds = play(allocate("a", 0, third + rest), read("a", third), read("a", third + rest))
    link_us = moving(rest, model, "on_die", 8)
    expected = model.gfx.launch_us + model.links["on_die"].first_us + link_us
    assert seconds == pytest.approx(expected * 1e-6, rel=EXACT)


def test_only_what_lies_on_the_readers_own_gpu_is_kept(play: Play, model: NodeModel) -> None:
    nbytes = 1 << 20
    away = play(allocate("a", 0, nbytes), *[read("a", nbytes, device=2)] * 3, read("a", nbytes, device=1))
    over = missed(nbytes, model, "ualoe")
    expected = [missed(nbytes, model, "ualoe", lost=True), over, over, missed(nbytes, model, lost=True)]
    assert away == pytest.approx(expected, rel=EXACT)


def test_each_physical_gpu_has_a_cache_of_its_own(play: Play, model: NodeModel) -> None:
    buffers = [allocate("a", 0, CAPACITY), allocate("b", 2, CAPACITY)]
    reads = [read("a", CAPACITY, device=0), read("b", CAPACITY, device=3)]
    assert play(*buffers, *reads, *reads)[2:] == pytest.approx([hit(CAPACITY, model)] * 2, rel=EXACT)


def test_what_was_freed_is_forgotten(play: Play, model: NodeModel) -> None:
    """Its lines and its translation, also where the next buffer lies at the same address."""
    nbytes = 1 << 20
    here = allocate("a", 0, nbytes), read("a", nbytes)
    again = allocate("b", 0, nbytes, where="a"), read("b", nbytes), read("b", nbytes)
    cold = missed(nbytes, model, lost=True)
    assert play(*here, free("a"), *again) == pytest.approx([cold, cold, hit(nbytes, model)], rel=EXACT)


def test_managed_memory_that_moved_is_forgotten(play: Play, model: NodeModel) -> None:
    nbytes = 1 << 20
    seconds = play(
        allocate("a", 0, nbytes, managed=True),
        read("a", nbytes),
        read("a", nbytes),
        prefetch("a", 0),  # it is there
        read("a", nbytes),
        prefetch("a", 2),
        prefetch("a", 0),
        read("a", nbytes),
    )
    cold, warm = missed(nbytes, model, lost=True), hit(nbytes, model)
    assert seconds == pytest.approx([cold, warm, warm, cold], rel=EXACT)


@pytest.mark.parametrize("writer", [0, 1, 2])
def test_a_write_leaves_the_cache_as_it_is(play: Play, model: NodeModel, writer: int) -> None:
    """It brings nothing in, throws nothing out, and a line that it changes stays."""
    half = CAPACITY // 2
    seconds = play(
        allocate("a", 0, half),
        allocate("b", 0, CAPACITY),
        read("a", half),
        run(writer, Leg(CAPACITY, target="b")),
        run(writer, Leg(half, target="a")),
        read("a", half),
        read("b", half),
    )
    assert seconds[3:] == pytest.approx([hit(half, model), missed(half, model, lost=True)], rel=EXACT)


@pytest.mark.parametrize("passes", [1, 2, 5])
@pytest.mark.parametrize("nbytes", [1 << 20, CAPACITY, CAPACITY + CHUNK])
def test_passes_in_one_launch(play: Play, model: NodeModel, nbytes: int, passes: int) -> None:
    """What has room is read over the link once in the first launch and never in the second; else in every pass."""
    seconds = play(allocate("a", 0, nbytes), *[run(1, Leg(nbytes, "a"), passes=passes)] * 2)
    all_us = moving(nbytes * passes, model, "on_die", 8)
    once_us, cached_us = all_us / passes, nbytes * passes / (model.cache_hit_gbps or 0) / 1e3
    set_up = model.gfx.launch_us + model.links["on_die"].first_us
    if nbytes <= CAPACITY:
        expected = [set_up + model.gfx.cold_remote_read_us + max(once_us, cached_us), model.gfx.launch_us + cached_us]
    else:
        expected = [set_up + model.gfx.cold_remote_read_us + all_us, set_up + all_us]
    assert seconds == pytest.approx([us * 1e-6 for us in expected], rel=EXACT)


def test_of_what_one_launch_reads_the_latest_allocation_is_kept(play: Play, model: NodeModel) -> None:
    """Whatever is read first, by whichever thread: figures are repeatable."""
    part = CAPACITY // 4 * 3
    for order in ("ab", "ba"):
        both = run(1, *[Leg(part, name) for name in order])
        seconds = play(allocate("a", 0, part), allocate("b", 0, part), both, read("b", part), both, read("a", part))
        assert (seconds[1], seconds[3]) == pytest.approx((hit(part, model), missed(part, model)), rel=EXACT), order


def test_a_copy_at_home_is_no_slower_where_it_hits(play: Play) -> None:
    copy = run(0, Leg(1 << 20, "a", "b"), passes=8)
    cold, warm = play(allocate("a", 0, 1 << 20), allocate("b", 0, 1 << 20), copy, copy)
    assert warm <= cold


@pytest.mark.parametrize("link_class", ["on_die", "ualoe"])
def test_a_cached_source_speeds_up_a_push_at_home_only(play: Play, model: NodeModel, link_class: str) -> None:
    nbytes, peer = 1 << 20, {"on_die": 1, "ualoe": 2}[link_class]
    push = run(0, Leg(nbytes, "a", "b"))
    cold, warm = play(allocate("a", 0, nbytes), allocate("b", peer, nbytes), push, push)
    local_us = model.links["local"].first_us
    store_us = model.links[link_class].first_store_us
    rest_us = model.gfx.launch_us + moving(nbytes, model, link_class, 8, stores=True)
    assert (cold, warm) == pytest.approx(((rest_us + local_us) * 1e-6, (rest_us + store_us) * 1e-6), rel=EXACT)
    assert (warm < cold) is (link_class == "on_die")


@pytest.mark.parametrize("elsewhere", [1, 0, 2, HOST])
@pytest.mark.parametrize("nbytes", [REACH - LINE, REACH])
def test_a_translation_is_lost_after_as_many_bytes_read_elsewhere(
    play: Play, model: NodeModel, elsewhere: int, nbytes: int
) -> None:
    mine = 1 << 20
    buffers = allocate("a", 2, mine), allocate("b", elsewhere, REACH)
    a = read("a", mine)
    _, kept, _, then = play(*buffers, a, a, read("b", nbytes), a)
    expected = [missed(mine, model, "ualoe", lost=lost) for lost in (False, nbytes >= REACH)]
    assert [kept, then] == pytest.approx(expected, rel=EXACT)


def test_bytes_read_elsewhere_add_up_until_the_next_use(play: Play, model: NodeModel) -> None:
    part = REACH // 2
    buffers = [allocate(name, 2, part) for name in "abc"]
    seconds = play(*buffers, *[read(name, part) for name in "abaca"], read("b", part))
    cold, warm = missed(part, model, "ualoe", lost=True), missed(part, model, "ualoe")
    assert seconds == pytest.approx([cold, cold, warm, cold, warm, cold], rel=EXACT)


def test_another_device_and_writes_cost_no_translation(play: Play, model: NodeModel) -> None:
    mine = 1 << 20
    a = read("a", mine)
    others = run(1, Leg(REACH, target="b")), read("b", REACH, device=0)
    seconds = play(allocate("a", 2, mine), allocate("b", 2, REACH), a, *others, a)
    assert seconds[3] == pytest.approx(missed(mine, model, "ualoe"), rel=EXACT)


def test_host_memory_is_no_peers(play: Play, model: NodeModel) -> None:
    nbytes = 1 << 20
    seconds = play(allocate("a", HOST, nbytes), *[read("a", nbytes)] * 2)
    assert seconds == pytest.approx([missed(nbytes, model, "host")] * 2, rel=EXACT)


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("blocks", [1, 4, 12, 13])
@pytest.mark.parametrize(("link_class", "peer"), [("local", 0), ("on_die", 1), ("ualoe", 2)])
def test_a_link_goes_no_faster_than_the_units_that_use_it(
    play: Play, model: NodeModel, link_class: str, peer: int, blocks: int, stores: bool
) -> None:
    nbytes = 2 << 20
    leg = Leg(nbytes, target="a") if stores else Leg(nbytes, "a")
    (seconds,) = play(allocate("a", peer, nbytes), run(0, leg, blocks=blocks))
    lost_us = 0 if stores or not peer else model.gfx.cold_remote_read_us
    set_up = model.gfx.launch_us + model.links[link_class].first_us + lost_us
    expected = set_up + moving(nbytes, model, link_class, blocks, stores=stores)
    assert seconds == pytest.approx(expected * 1e-6, rel=EXACT)


def test_blocks_on_one_xcc_keep_no_more_units_busy_than_it_has(play: Play, model: NodeModel) -> None:
    """Blocks are dealt out to three XCCs of four units each: 1, 4, 7 ... are all on the second."""
    part = CAPACITY // 8
    buffers = [allocate(f"part{number}", 0, part) for number in range(8)]
    for step, units in ((3, 4), (1, 8)):
        legs = [Leg(part, f"part{number}", first_block=1 + step * number, team=1) for number in range(8)]
        (seconds,) = play(*buffers, run(1, *legs, blocks=24))
        assert seconds == pytest.approx(missed(CAPACITY, model, units=units, lost=True), rel=EXACT)


@pytest.mark.parametrize("in_step", [False, True], ids=["as they come", "all at work at the same time"])
@pytest.mark.parametrize("buffers", [1, 2, 12])
def test_a_block_counts_once_for_an_owner(play: Play, model: NodeModel, buffers: int, in_step: bool) -> None:
    """However many buffers it reads there, more than a processor keeps in mind too, and whoever runs beside it."""
    nbytes, blocks = 96 * CHUNK, 8
    names = [chr(ord("a") + number) for number in range(buffers)]
    legs = [Leg(nbytes // buffers, name) for name in names]
    steps = [allocate(name, 2, nbytes // buffers) for name in names]
    (seconds,) = play(*steps, run(0, *legs, blocks=blocks, in_step=in_step))
    assert seconds == pytest.approx(missed(nbytes, model, "ualoe", blocks, lost=True), rel=EXACT)


@pytest.mark.parametrize("in_step", [False, True], ids=["as they come", "all at work at the same time"])
def test_a_block_counts_for_those_owners_only_that_it_reads_from(play: Play, model: NodeModel, in_step: bool) -> None:
    nbytes = 4 << 20
    shares = Leg(nbytes, "a", first_block=0, team=6), Leg(nbytes, "b", first_block=6, team=2)
    (seconds,) = play(allocate("a", 2, nbytes), allocate("b", 3, nbytes), run(0, *shares, in_step=in_step))
    assert seconds == pytest.approx(missed(nbytes, model, "ualoe", 2, lost=True), rel=EXACT)


@pytest.mark.parametrize("peers", ["12", "21"])
def test_of_ways_that_take_equally_long_the_later_start_decides(play: Play, model: NodeModel, peers: str) -> None:
    """Whichever device has the lower number: G0 reads from G1 and G2, and from G3's side G3 from G2 and G0."""
    nbytes = 1 << 20
    for device, (near, far) in ((0, (1, 2)), (3, (2, 0))):
        owners = {"1": near, "2": far}
        legs = [Leg(nbytes, name, first_block=4 * place, team=4) for place, name in enumerate(peers)]
        (seconds,) = play(*[allocate(name, owners[name], nbytes) for name in peers], run(device, *legs))
        assert seconds == pytest.approx(missed(nbytes, model, "ualoe", 4, lost=True), rel=EXACT)


def test_of_two_ways_the_one_whose_last_data_come_last_decides(play: Play, model: NodeModel) -> None:
    near, far = 2 << 20, 1 << 20
    legs = Leg(near, "a", team=4), Leg(far, "b", first_block=4, team=4)
    (seconds,) = play(allocate("a", 1, near), allocate("b", 2, far), run(0, *legs))
    assert seconds == pytest.approx(missed(near, model, "on_die", 4, lost=True), rel=EXACT)


def test_the_last_bytes_of_a_line_are_that_line(play: Play, model: NodeModel) -> None:
    """A read of part of a line brings in all of it."""
    (_, seconds) = play(allocate("a", 0, LINE), read("a", LEG), read("a", LINE))
    assert seconds == pytest.approx(hit(LINE, model), rel=EXACT)

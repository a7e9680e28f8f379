"""Messages on pytest's surfaces: ids, what selects them, what is refused, rows, JUnit and journal."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_transferbench.journal import read_journal
from tests.plugin.conftest import RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

SUITE = ("--pyargs", "pytest_transferbench.suites.test_ll", "--gpus=0,1")
ONE = (*SUITE, "--sizes=16M", "-k", "push-ll128-sc-G0-G1")


def test_all_protocols_from_8_bytes_to_128_megabytes_both_ways_and_a_ping_pong(run: RunPytest) -> None:
    result = run(*SUITE, "--collect-only", "-q")
    ids = [line.rpartition("[")[2].rstrip("]") for line in result.outlines if "::" in line]
    assert len(ids) == len(set(ids)) == 2 * 10 * 11 + 2
    assert ids[0] == "push-ll-G0-G1-8"
    assert "push-ll128-sc+wb-G1-G0-16M" in ids
    assert "push-ll256-tf-G0-G1-128M" in ids
    assert ids[-1] == "pingpong-ll-G1-G0-8"


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("-k", "pingpong"), 2),
        (("-k", "ll64 and G0-G1"), 33),
        (("-m", "transfer(op='push', exe='ll128-sc+wb', src='G1', size='16M')"), 1),
        (("--transfer-ll-protocols=ll128", "-k", "push"), 66),
        (("--transfer-ll-protocols=ll,ll64-tf", "--sizes=8,119,120,121"), 16 + 2),
        (("--gpus=0", "--transfer-ll-loopback"), 111),
    ],
)
def test_what_selects_them(run: RunPytest, arguments: tuple[str, ...], count: int) -> None:
    result = run(*SUITE, "--collect-only", "-q", *arguments)
    assert len([line for line in result.outlines if "::" in line]) == count


def test_the_seeds_row(run: RunPytest) -> None:
    result = run(*ONE)
    result.assert_outcomes(passed=1, deselected=21)
    result.stdout.fnmatch_lines(
        [
            "messages G0 -> G1 (xGMI), uncached ring: T includes the ACK's way back, median",
            "LL128-sc     16777216 B nlines=139811   nb=64   T(A->B)=    45.20 us BW= 371.200 GB/s [[]OK]",
            "most on the wire: 395.949 GB/s (93.75 % data, 99 % of the ceiling), by LL128-sc 16M",
            "",
            "verdicts: 1 NEW",
        ],
        consecutive=True,
    )


def test_verbose_says_what_went_over_the_wire(run: RunPytest) -> None:
    result = run(*ONE, "-v")
    result.stdout.fnmatch_lines(
        [
            "*PASSED     45.20 us  371.200 GB/s*",
            "*p99 90.39 us, p10 296.960 GB/s, wire 395.949 GB/s (93.75 % data, 99 % of the ceiling), 100 iterations",
        ]
    )


def test_verbose_says_what_the_links_counted(run: RunPytest, machine: FakeMachine) -> None:
    machine.sent = 987
    run(*ONE, "-v").stdout.fnmatch_lines(["*[[]OK] *, links sent 98.7 % of the bytes claimed, 100 iterations"])


def test_data_that_nobody_looked_at_is_not_called_ok(run: RunPytest) -> None:
    run(*ONE, "--transfer-validate=off").stdout.fnmatch_lines(["LL128-sc * [[]NOT CHECKED]"])


def test_a_small_message_has_a_wire_bandwidth_that_can_be_read(run: RunPytest, machine: FakeMachine) -> None:
    machine.gbps = 0.008
    result = run(*SUITE, "--sizes=8", "-k", "push-ll128-sc-G0-G1", "-v")
    result.stdout.fnmatch_lines(["*wire 0.128 GB/s (6.25 % data, 0.032 % of the ceiling), 100 iterations"])


def test_the_row_that_moved_most_is_named_and_no_ceiling_is_made_up(run: RunPytest, machine: FakeMachine) -> None:
    machine.link_gbps = None
    result = run(*SUITE, "--sizes=16M", "-k", "ll64-sc-G0-G1 or ll128-sc-G0-G1 or pingpong-ll-G0-G1")
    assert [line for line in result.outlines if line.startswith("most")] == [
        "most on the wire: 424.230 GB/s (87.5 % data), by LL64-sc 16M"
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "  messages 8 64 512 4K 32K 256K 1M 4M 16M 64M 128M; 100 iterations after 10; nothing rotates"),
        (("--sizes=1..4K", "-k", "push-ll-G0"), "  messages 13 sizes from 1 to 4K; 100 iterations after 10; *"),
        (("--transfer-emulate=x",), "  messages 8 1K 64K 1M; 3 iterations after 1; nothing rotates"),
        (("-k", "pingpong", "--transfer-ll-iterations=7"), "  messages 8; 7 iterations after 10; nothing rotates"),
    ],
)
def test_the_header_says_what_messages_are(
    run: RunPytest, machine: FakeMachine, arguments: tuple[str, ...], says: str
) -> None:
    machine.emulated = "mi300x-8" if "--transfer-emulate=x" in arguments else None
    run(*SUITE, *arguments, "--collect-only").stdout.fnmatch_lines([says, "transferbench: * transfer cases selected*"])


def test_nothing_is_said_of_messages_that_are_none(run: RunPytest) -> None:
    result = run("--pyargs", "pytest_transferbench.suites.test_p2p", "--gpus=0,1", "--collect-only")
    assert not [line for line in result.outlines if line.startswith("  messages")]


def test_nvidia_is_told_what_sc_is_there(run: RunPytest, machine: FakeMachine) -> None:
    machine.runtime = "cuda"
    says = "sc on NVIDIA: the flag is stored with release at system scope, there is no wait for the stores alone"
    assert says in run(*ONE).outlines
    assert says not in run(*SUITE, "--sizes=16M", "-k", "push-ll128-tf-G0-G1").outlines


def test_a_ping_pong_is_labelled_as_half_a_round_trip(
    run: RunPytest, machine: FakeMachine, pytester: pytest.Pytester
) -> None:
    machine.gbps = 0.008
    result = run(*SUITE, "-k", "pingpong-ll-G0-G1", "-v", "--junitxml=j.xml")
    result.stdout.fnmatch_lines(
        [
            "*PASSED      1.00 us half round trip*",
            "ping-pong G0 <-> G1 (xGMI), uncached memory: half of a lap, median",
            "LL                  8 B nlines=1        nb=1    half round trip=     1.00 us [[]OK]*",
        ]
    )
    found = {each.get("name"): each.get("value") for each in ET.parse(pytester.path / "j.xml").iter("property")}
    assert float(str(found["transfer_half_round_trip_seconds"])) == pytest.approx(1e-6)
    assert float(str(found["transfer_half_round_trip_p99_seconds"])) == pytest.approx(2e-6)
    assert not found.keys() & {"transfer_seconds", "transfer_gbps", "transfer_p10_gbps", "transfer_wire_gbps"}


def test_faster_than_the_wire_is_impossible(run: RunPytest, machine: FakeMachine) -> None:
    """400 GB/s of lines of LL are 200 GB/s of data."""
    machine.gbps = 201
    result = run(*SUITE, "--sizes=16M", "-k", "push-ll-G0-G1")
    result.assert_outcomes(failed=1, deselected=21)
    result.stdout.fnmatch_lines(
        [
            "*IMPOSSIBLE: steady 201.0 GB/s is above the ceiling of 200.0 GB/s "
            "(xGMI, a fake table, 50 % of which is data)",
            "LL *[[]OK] IMPOSSIBLE",
        ]
    )


@pytest.mark.parametrize(
    ("changes", "says", "row"),
    [
        ({"wrong_words": 4}, "*CORRUPT: 4 of 279622 words wrong*", "LL128-sc * [[]ERRORS: 4]"),
        ({"wrong_sum": True}, "*CORRUPT: at least 1 of 279622 words wrong*", "LL128-sc * [[]ERRORS: at least 1]"),
        (
            {"fault": "TIMEOUT LL128-sc 16M: block 3"},
            "*TIMEOUT: LL128-sc 16M: block 3",
            "LL128-sc * [[]TIMEOUT]",
        ),
        (
            {"lease_fault": "(9 bytes asked for)"},
            "*DEVICE_ERROR: *(9 bytes asked for)",
            "*[[]DEVICE_ERROR]",
        ),
    ],
)
def test_what_failed_has_no_figure(
    run: RunPytest, machine: FakeMachine, changes: dict[str, object], says: str, row: str
) -> None:
    for name, value in changes.items():
        setattr(machine, name, value)
    result = run(*ONE)
    result.assert_outcomes(failed=1, deselected=21)
    result.stdout.fnmatch_lines([says, row])
    assert not [line for line in result.outlines if "BW=" in line]


def test_junit_and_journal(run: RunPytest, pytester: pytest.Pytester) -> None:
    run(*ONE, "--junitxml=j.xml", "--transfer-journal=j.jsonl").assert_outcomes(passed=1, deselected=21)
    found = {each.get("name"): each.get("value") for each in ET.parse(pytester.path / "j.xml").iter("property")}
    assert found["transfer_key"] == "test_ll/push-ll128-sc-G0-G1-16M"
    assert float(str(found["transfer_gbps"])) == pytest.approx(371.2)
    assert float(str(found["transfer_seconds"])) == pytest.approx(16 * 2**20 / 371.2e9)
    assert float(str(found["transfer_p99_seconds"])) == pytest.approx(2 * 16 * 2**20 / 371.2e9)
    assert float(str(found["transfer_p10_gbps"])) == pytest.approx(371.2 / 1.25)
    assert float(str(found["transfer_wire_gbps"])) == pytest.approx(371.2 * 139811 * 128 / 2**24)
    assert float(str(found["transfer_wire_efficiency"])) == pytest.approx(2**24 / (139811 * 128))
    assert float(str(found["transfer_ceiling_gbps"])) == pytest.approx(375)
    assert found["transfer_protocol"] == "ll128-sc"
    assert (found["transfer_lines"], found["transfer_blocks"]) == ("139811", "64")
    (item,) = read_journal(Path(pytester.path / "j.jsonl")).items
    measurement = item["measurement"]
    assert measurement["transfer"] == "(G0->G1 ll128-sc 16M)"
    assert measurement["protocol"] == "ll128-sc"
    assert len(measurement["arms"][0]["seconds"]) == 100


def test_settings_reach_the_case(run: RunPytest, said: Callable[[str], list[str]]) -> None:
    options = (
        *("--transfer-ll-iterations=5000", "--transfer-ll-blocks=128", "--transfer-ll-memory=fine"),
        *("--transfer-warmups=20", "--transfer-validate=each", "--transfer-ll-timeout=2.5"),
    )
    run(*ONE, *options).assert_outcomes(passed=1, deselected=21)
    run(*ONE).assert_outcomes(passed=1, deselected=21)
    name = "measure push-ll128-sc-G0-G1-16M"
    assert said("measure") == [
        f"{name} 5000 after 20 by 128 in F validate=each timeout=2.5 floor=None control=False",
        f"{name} 100 after 10 by 64 in - validate=end timeout=30 floor=None control=False",
    ]


def test_marks_reach_the_case(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]], machine: FakeMachine
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.transferbench(
            messages="one-way", protocols="ll", sizes="16M", pairs="G0-G1", iterations=7, warmups=5, ll_blocks=9,
            ring_memory="coarse", validate="off", timeout=1.5, floor_gbps=100, control=True, variant="mine",
        )
        def test_all(transfer, transferbench):
            transferbench(transfer)
        """
    )
    run("--gpus=0,1").assert_outcomes(passed=1)
    assert said("measure") == [
        "measure push-ll-G0-G1-16M-mine 7 after 5 by 9 in G validate=off timeout=1.5 floor=100.0 control=True"
    ]


def test_a_users_own_messages(run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine) -> None:
    machine.gbps = 160
    pytester.makepyfile(
        """
        import pytest
        from pytest_transferbench import Message

        @pytest.mark.transferbench(Message.push("ll", 0, 1, "1K"), Message.ping_pong("G1", "G0"))
        def test_given(transfer, transferbench):
            assert transferbench(transfer).seconds > 0

        @pytest.mark.transferbench(messages="one-way", protocols="ll64-sc", sizes="16M", floor_gbps=200, pairs="G1-G0")
        def test_floor(transfer, transferbench):
            transferbench(transfer)

        def test_called(transferbench):
            transferbench(Message.push("ll256-tf", 1, 0, 120))

        def test_data(transferbench):
            transferbench(Message.push("ll256-tf", 1, 0, 120), data=b"")

        @pytest.mark.transferbench(Message.push("ll", 0, 1, 8))
        def test_buffers(transfer, transfer_buffers):
            pass
        """
    )
    result = run("--gpus=0,1", "-v")
    result.assert_outcomes(passed=3, failed=2, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*::test_given[[]push-ll-G0-G1-1K] PASSED*",
            "*::test_given[[]pingpong-ll-G1-G0-8] PASSED*",
            "*::test_floor[[]push-ll64-sc-G1-G0-16M] FAILED*",
            "*SLOW: 160.0 GB/s is 20.0 % under the floor of 200.0 GB/s",
            "*ValueError: data is given for push-ll256-tf-G1-G0-120: a Message brings its own payload, leave data out",
            "*transfer_buffers has the buffers of Transfers; a Message brings its own",
        ]
    )


USAGE = [
    ("--transfer-ll-protocols=ll512-sc", "unknown protocol 'll512-sc': use all, ll, or ll64, ll128, ll256, alone or *"),
    ("--transfer-ll-protocols=ll64,ll64-sc", "protocol 'll64-sc' comes up twice in 'll64,ll64-sc': *"),
    ("--transfer-ll-iterations=0", "bad count '0': use a whole number from 1 to 1000000"),
    ("--transfer-ll-blocks=0", "bad count '0': use a whole number from 1 to 1000000"),
    ("--sizes=0", "bad size '0': there is at least 1 byte to move"),
    ("--transfer-ll-timeout=-1", "bad timeout '-1': use seconds above 0, at most 86400"),
    ("--transfer-ll-timeout=nan", "bad timeout 'nan': use seconds above 0, at most 86400"),
    ("--transfer-ll-memory=slow", "unknown value 'slow': use uncached, fine, coarse"),
]


@pytest.mark.parametrize(("option", "says"), USAGE)
def test_a_bad_option_is_one_line(run: RunPytest, option: str, says: str) -> None:
    result = run(*SUITE, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option}: {says}"])
    assert len([line for line in result.errlines if line]) == 1


REFUSED = [
    (
        ("--transfer-ll-blocks=400", "--sizes=128M"),
        {},
        "test_ll: (G0->G1 ll 128M) by 400 blocks: GPU 0 surely runs 304 of them at the same time, on 304 compute "
        "units; use --transfer-ll-blocks=304 or less",
    ),
    (
        ("--transfer-ll-memory=uncached",),
        {"runtime": "cuda"},
        "test_ll: uncached and fine-grained ring memory are AMD's: use --transfer-ll-memory=coarse on CUDA",
    ),
    (
        ("--transfer-ll-memory=coarse",),
        {"arch": "gfx90a"},
        "test_ll: a coarse ring cannot work on gfx90a: stores to a peer's coarse memory stay in the writer's L2, the "
        "flag never comes; use --transfer-ll-memory=uncached or fine",
    ),
]


@pytest.mark.parametrize(("options", "changes", "says"), REFUSED)
def test_what_cannot_work_here_is_refused_in_one_line(
    run: RunPytest, machine: FakeMachine, options: tuple[str, ...], changes: dict[str, str], says: str
) -> None:
    for name, value in changes.items():
        setattr(machine, name, value)
    result = run(*SUITE, *options)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert says in result.outlines


@pytest.mark.parametrize(
    ("keyword", "does"),
    [
        ("samples", "use iterations"),
        ("subexecutors", "use ll_blocks"),
        ("executors", "use protocols"),
        *((name, f"leave {name} out") for name in ("ops", "sub_iterations", "rotate", "offset", "warm_cold")),
    ],
)
def test_a_mark_that_asks_of_messages_what_they_have_not_is_refused(
    run: RunPytest, pytester: pytest.Pytester, keyword: str, does: str
) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.transferbench(messages="one-way", {keyword}="4")
        def test_it(transfer, transferbench): transferbench(transfer)
        """
    )
    says = f"@pytest.mark.transferbench({keyword}=..., messages=...): messages have no {keyword}, {does}"
    assert f"test_it: {says}" in run("--gpus=0,1").outlines


def test_a_class_may_say_of_its_transfers_what_its_messages_have_not(
    run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine
) -> None:
    machine.gbps = 0.008
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.transferbench(samples=7)
        class TestBoth:
            @pytest.mark.transferbench(messages="ping-pong", pairs="G0-G1")
            def test_it(self, transfer, transferbench): transferbench(transfer)
        """
    )
    run("--gpus=0,1").assert_outcomes(passed=1)


def test_one_gpu_twice_needs_a_loopback(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.transferbench(messages="one-way", protocols="ll", sizes="8", pairs="G0-G0")
        def test_self(transfer, transferbench): transferbench(transfer)
        """
    )
    says = "test_self: (G0->G0 ll 8) goes to the GPU it comes from: name two, or allow it with --transfer-ll-loopback"
    assert says in run("--gpus=0").outlines
    run("--gpus=0", "--transfer-ll-loopback").assert_outcomes(passed=1)


@pytest.mark.parametrize(("gpus", "reason"), [("1", "*messages need 2 GPUs; selected: 1; --transfer-ll-loopback *")])
def test_too_few_gpus_skip_with_the_reason(run: RunPytest, gpus: str, reason: str) -> None:
    result = run(*SUITE, f"--gpus={gpus}", "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines([reason])


def test_no_gpu_skips_with_the_reason(run: RunPytest, machine: FakeMachine) -> None:
    machine.gpus, machine.why_no_gpu = 0, "no driver is loaded"
    result = run(*SUITE[:2], "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED * no driver is loaded"])


def test_a_transfer_moves_whole_words(run: RunPytest) -> None:
    result = run("--pyargs", "pytest_transferbench.suites.test_p2p", "--gpus=0,1", "--sizes=119")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["test_p2p: bad size 119 of *: a Transfer moves a positive multiple of 4 bytes"])

"""A project's own transfer tests: marks, fixtures, floors, and what is said when they are used wrongly."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from pytest_transferbench.journal import read_journal
from tests.plugin.conftest import RunPytest
from tests.plugin.fake_machine import FakeMachine

pytest_plugins = ["pytester"]

USERS_FILE = """
    import pytest

    @pytest.mark.transferbench(ops="push,pull", sizes="64M", executors="gfx")
    def test_links(transfer, transfer_buffers, transferbench):
        assert len(transfer_buffers.slices) == transfer_buffers.plan.slices == 8
        assert transfer_buffers.peer is not None
        m = transferbench(transfer)
        assert m.wrong_words == 0
        assert m.warm_cold < 1.15
        assert m.gbps > {floor}
"""


CASE = "import unittest\nclass TestCase(unittest.TestCase):\n"


def test_a_users_file_passes_in_the_lease_of_its_buffers(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile(USERS_FILE.format(floor=300))
    run("--gpus=0,1").assert_outcomes(passed=4)
    first = "push-gfx-G0-G1-64M"
    assert [line.partition(" data")[0] for line in said("")][2:5] == [
        f"lease {first}",
        f"measure {first}",
        f"release {first}",
    ]
    assert len(said("lease")) == 4


def test_a_floor_that_is_too_high_reads_well(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USERS_FILE.format(floor="500.0"))
    result = run("--gpus=0,1", "-k", "pull and G1-G0")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(["E * assert 371.2 GB/s > 500.0 GB/s"])
    result.stdout.fnmatch_lines(["FAILED *::test_links[[]pull-gfx-G1-G0-64M] - assert 371.2 GB/s > 500.0 GB/s"])


@pytest.mark.parametrize("where", ["mark", "call"])
def test_a_floor_of_the_mark_or_the_call_is_the_verdict_slow(
    run: RunPytest, pytester: pytest.Pytester, where: str
) -> None:
    in_mark, in_call = ("floor_gbps=500, ", "") if where == "mark" else ("", ", floor_gbps=500")
    pytester.makepyfile(
        f"""
        import pytest
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)", {in_mark})
        def test_floor(transfer, transferbench):
            transferbench(transfer{in_call})
        """
    )
    result = run()
    result.assert_outcomes(failed=1)
    # The traceback ends at the user's line.
    result.stdout.fnmatch_lines(
        [">*transferbench(transfer*", "E       SLOW: 371.2 GB/s is 25.8 % under the floor of 500.0 GB/s"]
    )
    result.stdout.no_fnmatch_line("*session/item.py*")


@pytest.mark.parametrize("style", ["auto", "short", "line", "native", "no"])
def test_a_narrow_summary_begins_with_the_verdict(
    run: RunPytest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    for name in ("CI", "BUILD_NUMBER"):  # where one is set pytest cuts nothing off
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    pytester.makepyfile(
        t="""
        def test_mine(transferbench):
            transferbench("(G1->G0->G0 0 64M)", floor_gbps=500)
        """
    )
    result = run("t.py", f"--tb={style}", "--junitxml=out.xml")
    result.assert_outcomes(failed=1)
    assert "FAILED t.py::test_mine - SLOW: 371.2 GB/s is 25.8 % under the floor of 500.0 ..." in result.outlines
    assert 'message="SLOW: 371.2 GB/s is 25.8 % under' in (pytester.path / "out.xml").read_text()
    result.stdout.no_fnmatch_line("*pytest_transferbench.Slow*")


def test_a_verdict_among_other_causes_is_still_the_first_word(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_mine(transferbench):
            try:
                raise KeyError("theirs: mine")
            except KeyError:
                transferbench("(G1->G0->G0 0 64M)", floor_gbps=500)
        """
    )
    result = run()
    result.stdout.fnmatch_lines(["E * KeyError: 'theirs: mine'", "E * SLOW: 371.2*", "FAILED * - SLOW: 371.2*"])


def test_the_calls_floor_replaces_the_marks(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)", floor_gbps=500)
        def test_floor(transfer, transferbench):
            transferbench(transfer, floor_gbps=100)
        """
    )
    run().assert_outcomes(passed=1)


def test_a_failing_verdict_is_an_assertion_of_the_item_itself(
    run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine
) -> None:
    machine.wrong_words = 2055873
    pytester.makepyfile(
        """
        import pytest
        from pytest_transferbench import Corrupt
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_caught(transfer, transferbench):
            with pytest.raises(Corrupt, match="2055873 of 16777216 words wrong .2055873 bytes., first 17") as caught:
                transferbench(transfer)
            assert isinstance(caught.value, AssertionError)
            assert caught.value.measurement.verdicts[0] == caught.value.finding
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_raised(transfer, transferbench):
            transferbench(transfer)
        """
    )
    result = run("-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED *::test_raised[[]pull-gfx-G1-G0-64M] - CORRUPT: *"])


def test_limits_apply_where_the_ratio_means_something(
    run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine
) -> None:
    machine.cold_ratio = 0.8
    pytester.makepyfile(
        """
        import math, pytest
        from pytest_transferbench import Contaminated
        @pytest.mark.transferbench(sizes="64M", executors="gfx")
        def test_limits(transfer, transferbench):
            if transfer.op == "pull":
                with pytest.raises(Contaminated):
                    transferbench(transfer)
                assert transferbench.limits.warm_cold == 1.15
            else:
                assert transferbench(transfer).warm_cold == pytest.approx(1.25)
                assert transferbench.limits.warm_cold == math.inf
        """
    )
    run().assert_outcomes(passed=6)
    run("--transfer-rotate=0", "-k", "pull").assert_outcomes(failed=2, deselected=4)  # the limit there is 1.35
    run("--transfer-warm-cold=1.3", "-k", "pull").assert_outcomes(failed=2, deselected=4)


def test_the_judge_can_be_left_out_and_is_left_in_once(
    run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine
) -> None:
    machine.gbps = 1000.0  # above the link's 400
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_not_judged(transfer, transferbench):
            m = transferbench(transfer, judge=False)
            assert not m.judged
            assert [finding.verdict for finding in m.verdicts] == ["IMPOSSIBLE"] * 3
            assert m.context["ceiling_gbps"] == 400.0
            transferbench(transfer, judge=False)
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_twice(transfer, transferbench):
            for _ in range(2):
                with pytest.raises(AssertionError):
                    transferbench(transfer)
        """
    )
    result = run("-rA")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["not judged: pull-gfx-G1-G0-64M: 1000.0 GB/s*IMPOSSIBLE"] * 2)
    result.stdout.fnmatch_lines(
        ["FAILED *::test_twice* - Failed: this item was judged already: one judged transferbench(...) call an item"]
    )


def test_data_of_the_users_own_and_transfers_named_in_the_test(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile(
        """
        def test_notation(transferbench):
            m = transferbench("(G0->G0->G1 4 8M)", data="mine")
            assert m.key == "test_data_of_the_users_own_and_transfers_named_in_the_test/push-gfx4-G0-G1-8M"
        def test_missing(transferbench):
            transferbench("(G0->G0->G5 4 8M)")
        """
    )
    result = run("-rs", "--transfer-samples=3")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED [[]1[]] test_data_*.py:5: no GPU 5: this node has GPUs 0-1"])
    assert said("measure") == ["measure push-gfx4-G0-G1-8M data='mine' floor=None rotate=None"]


def test_transfers_of_the_users_own_parametrize(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_transferbench import Transfer
        @pytest.mark.parametrize("transfer", [Transfer.push(0, 1, 4096), "(G1->G0->G0 0 4M)"], ids=["a", "b"])
        def test_mine(transfer, transfer_buffers, transferbench):
            assert len(transfer_buffers.slices) == transfer_buffers.plan.slices
            assert transferbench(transfer).wrong_words == 0
        """
    )
    run().assert_outcomes(passed=2)


@pytest.mark.parametrize("fixture", ["@pytest.fixture", "@pytest.fixture(params=['(G0->G0->G1 0 1M)'])"])
def test_a_fixture_of_the_projects_own_that_is_called_transfer_wins(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]], fixture: str
) -> None:
    marked = '@pytest.mark.transferbench("(G1->G0->G0 0 4M)")'
    if "params" in fixture:
        marked = '@pytest.mark.parametrize("transfer", ["(G1->G0->G0 0 4M)"], indirect=True)'
    pytester.makeconftest(
        f"""
        import pytest
        {fixture}
        def transfer(request): return getattr(request, "param", "(G0->G0->G1 0 1M)")
        """
    )
    pytester.makepyfile(
        f"""
        import pytest
        def test_mine(transfer, transferbench):
            transferbench(transfer)
        {marked}
        def test_ours(transfer, transferbench):
            transferbench(transfer)
        @pytest.mark.parametrize("transfer", ["(G1->G0->G0 0 8M)"])
        def test_parametrized(transfer, transferbench):
            transferbench(transfer)
        """
    )
    run().assert_outcomes(passed=3)
    assert [line.split()[1] for line in said("measure")] == [
        "push-gfx-G0-G1-1M",
        "pull-gfx-G1-G0-4M",
        "pull-gfx-G1-G0-8M",
    ]


def test_buffers_are_leased_for_what_a_fixture_of_the_projects_own_gives(
    run: RunPytest, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.fixture(params=["(G0->G0->G1 0 1M)"])
        def transfer(request): return request.param
        def test_mine(transfer, transfer_buffers, transferbench):
            assert transfer_buffers.plan.nbytes == 1 << 20
            transferbench(transfer)
        """
    )
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "@pytest.mark.parametrize('transfer', ['junk'])\ndef test_it(transfer, transferbench): pass",
            "bad Transfer 'junk': it has 1 parts, not 3 or 5; write *",
        ),
        (
            "@pytest.fixture(params=['junk'])\ndef transfer(request): return request.param\n"
            "def test_it(transfer, transfer_buffers): pass",
            "bad Transfer 'junk': it has 1 parts, not 3 or 5; write *",
        ),
        (
            "import unittest\n@pytest.mark.transferbench(sizes='4Q')\nclass TestIt(unittest.TestCase):\n"
            "    @pytest.fixture(autouse=True)\n    def mine(self, transferbench): pass\n"
            "    def test_it(self): pass",
            "@pytest.mark.transferbench(sizes='4Q'): bad size '4Q': *",
        ),
    ],
)
def test_misuse_that_shows_at_setup_is_one_line(
    run: RunPytest, pytester: pytest.Pytester, code: str, says: str
) -> None:
    pytester.makepyfile(f"import pytest\n{code}")
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ERROR at setup of *", says])
    result.stdout.no_fnmatch_line("*plugin.py*")
    result.stdout.no_fnmatch_line("*Error:*")


def test_a_test_of_the_users_own_is_measured_as_a_transfer_is(
    run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine, said: Callable[[str], list[str]]
) -> None:
    machine.gpus = 3
    pytester.makepyfile(
        """
        import math, pytest
        from pytest_transferbench import Test
        pull = Test.pull_from_peers(0, range(3), 64 << 20, 8)
        @pytest.mark.transferbench(pull, "(G0->G0->G1 8 4K) (G0->G0->G2 8 4K)")
        def test_given(transfer, transfer_buffers, transferbench):
            m = transferbench(transfer)
            assert m.nbytes == transfer.nbytes and m.transfer.total_bytes == 2 * transfer.nbytes
            assert m.gbps == pytest.approx(371.2)
            assert math.isnan(m.warm_cold) and transferbench.limits.warm_cold == math.inf
        @pytest.mark.transferbench(pairs="peers", ops="push", sizes="64M", subexecutors=8, rotate=0)
        def test_peers(transfer, transferbench):
            assert transferbench(transfer).method["rotate_bytes"] == 0
        def test_called(transferbench, transfer_node):
            gpus = [device.index for device in transfer_node.devices]
            m = transferbench(Test.push_to_peers(2, gpus, 1 << 20), judge=False)
            assert len(m.transfer.transfers) == 2
        @pytest.mark.parametrize("transfer", [Test.pull_from_peers(1, (0, 1), 4096)], ids=["mine"])
        def test_parametrized(transfer, transfer_buffers, transferbench):
            assert transferbench(transfer).wrong_words == 0
        """
    )
    result = run("-v")
    result.assert_outcomes(passed=7)
    assert [line.split()[1] for line in said("measure")] == [
        "pull-gfx8-peers-G0-64M",
        "push-gfx8-G0-G1+G2-4K",
        *(f"push-gfx8-G{gpu}-peers-64M" for gpu in range(3)),
        "push-gfx-G2-peers-1M",
        "pull-gfx-peers-G1-4K",
    ]
    result.stdout.fnmatch_lines(
        [
            "*::test_given[[]pull-gfx8-peers-G0-64M] PASSED    371.2 GB/s*",
            "pull gfx8 64M x 2 at the same time, GB/s (steady median; rows SRC, columns DST)",
            "rotation K=8 x 64M (pitch 67108864) = 512M; 8 blocks x 256 threads each",
            "SRC?DST     G0",
            "  peers  371.2",
            "push gfx8 64M x 2 at the same time, GB/s*",
            "SRC?DST  peers",
            "     G0  371.2",
            "     G1  371.2",
            "     G2  371.2",
            "pull-gfx8-peers-G0-64M: 371.2 GB/s (p10 371.2; warm/cold -)*",
        ]
    )


def test_a_test_above_the_sum_of_its_ways_is_impossible_and_says_how_that_was_made(
    run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine
) -> None:
    machine.gpus, machine.gbps = 4, 1300.0
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench(pairs="peers-G0", sizes="64M")
        def test_it(transfer, transferbench):
            transferbench(transfer)
        """
    )
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *  IMPOSSIBLE: steady 1300.0 GB/s is above the ceiling of 1200.0 GB/s (3 x 400.0 GB/s xGMI, a fake table)"]
    )


def test_only_whole_tests_are_taken(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench("2 8 (G1->G0->G0)")
        def test_it(transfer, transferbench):
            transferbench(transfer)
        """
    )
    result = run()
    result.stdout.fnmatch_lines(
        ["test_it: bad line '2 8 (G1->G0->G0)': 2 Transfers of 3 parts (SRC EXE DST) have 6 parts, not 3"]
    )


def test_buffers_that_cannot_be_had(run: RunPytest, pytester: pytest.Pytester, machine: FakeMachine) -> None:
    machine.lease_fault = "out of memory"
    pytester.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_measure(transfer, transferbench):
            transferbench(transfer)
        def test_hold(transfer, transfer_buffers):
            pass
        @pytest.fixture
        def first(transfer_buffers):
            return transfer_buffers.slices[0]
        def test_first(transfer, first):
            pass
        def test_late(transfer, transferbench, request):
            request.getfixturevalue("transfer_buffers")
        @pytest.mark.xfail
        def test_expected(transfer, transfer_buffers):
            pass
        """
    )
    result = run("-v", "--junitxml=out.xml")
    result.assert_outcomes(failed=4, xfailed=1)
    assert len(re.findall("<failure message=.DEVICE_ERROR: ", (pytester.path / "out.xml").read_text())) == 4
    says = "E *  DEVICE_ERROR: test_*/pull-gfx-G1-G0-64M: hipMalloc on GPU 0 failed: hipErrorOutOfMemory *"
    result.stdout.fnmatch_lines(
        ["pull-gfx-G1-G0-64M: DEVICE_ERROR", "verdicts: 5 DEVICE_ERROR", "FAILED *test_hold* - DEVICE_ERROR: *"]
    )
    result.stdout.fnmatch_lines(["*_ test_hold*", says, "*_ test_first*", says, "*_ test_late*", ">* request.*", says])
    for ours in ("*plugin.py*", "*contextlib*", "*rotation unknown*", "*entries are hidden*"):
        result.stdout.no_fnmatch_line(ours)


MEASURES_IN_A_FIXTURE = """
    import pytest
    @pytest.fixture
    def in_setup(transferbench):
        transferbench("(G1->G0->G0 0 64M)")
    @pytest.fixture
    def in_teardown(transferbench):
        yield
        transferbench("(G1->G0->G0 0 64M)")
    @pytest.fixture
    def unjudged(transferbench):
        yield
        transferbench("(G1->G0->G0 0 64M)", judge=False)
    def test_setup(in_setup): pass
    def test_teardown(in_teardown): pass
    def test_both(transferbench, unjudged):
        transferbench("(G0->G0->G1 0 64M)", floor_gbps=300)
"""


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "worker"])
def test_what_fixtures_measure_is_reported_whether_it_passes(
    run_apart: RunPytest, pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_mine=MEASURES_IN_A_FIXTURE)
    result = run_apart("--transfer-journal=passes.jsonl", "-v", *workers)
    result.assert_outcomes(passed=3)
    # The call of a test whose fixture measures afterwards has nothing to show yet.
    result.stdout.fnmatch_lines(["verdicts: 3 NEW"])
    assert len([line for line in result.outlines if line.startswith("not judged: pull-gfx-G1-G0-64M")]) == 1
    assert [(item["outcome"], item["verdict"]) for item in read_journal(pytester.path / "passes.jsonl").items] == [
        ("passed", "NEW"),  # test_setup
        ("passed", None),  # test_teardown's call
        ("passed", "NEW"),  # and its teardown
        ("passed", "NEW"),  # test_both's call
        ("passed", "NEW"),  # and its teardown
    ]


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["alone", "worker"])
def test_what_fixtures_measure_is_reported_whether_it_fails(
    run_apart: RunPytest, pytester: pytest.Pytester, machine: FakeMachine, workers: tuple[str, ...]
) -> None:
    machine.wrong_words = 5
    pytester.makepyfile(test_mine=MEASURES_IN_A_FIXTURE)
    result = run_apart("--transfer-journal=fails.jsonl", "--junitxml=out.xml", *workers)
    # As DESIGN 8 has it a verdict fails its item; that of a teardown comes after pytest has said how the test went.
    result.assert_outcomes(failed=2, passed=1, errors=1)
    result.stdout.fnmatch_lines(['>       transferbench("(G1->G0->G0 0 64M)")', "E *CORRUPT: 5 of *"])
    result.stdout.fnmatch_lines(["verdicts: 3 CORRUPT"])
    journalled = [(item["outcome"], item["verdict"]) for item in read_journal(pytester.path / "fails.jsonl").items]
    assert journalled == [
        ("failed", "CORRUPT"),
        ("passed", None),
        ("failed", "CORRUPT"),
        ("failed", "CORRUPT"),
        ("passed", "CORRUPT"),
    ]
    cases = {case.attrib["name"]: case for case in ET.parse(pytester.path / "out.xml").iter("testcase")}
    for name in ("test_setup", "test_teardown", "test_both"):
        found = [p.attrib["value"] for p in cases[name].iter("property") if p.attrib["name"] == "transfer_verdict"]
        assert found == ["CORRUPT"]


def test_gpus_are_looked_at_after_failures_alone(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.fixture
        def breaks(transfer_buffers):
            yield
            raise RuntimeError
        @pytest.mark.transferbench("(G1->G0->G0 0 64M)")
        def test_good(transfer, transfer_buffers): pass
        @pytest.mark.transferbench("(G1->G0->G0 0 32M)")
        def test_bad(transfer, transfer_buffers): assert False
        @pytest.mark.transferbench("(G1->G0->G0 0 16M)")
        def test_skipped(transfer, transfer_buffers): pytest.skip()
        @pytest.mark.transferbench("(G1->G0->G0 0 8M)")
        def test_ends_badly(transfer, breaks): pass
        def test_by_notation(transferbench):
            transferbench("(G1->G0->G0 0 4M)", floor_gbps=500)
        """
    )
    run().assert_outcomes(passed=2, failed=2, skipped=1, errors=1)
    assert said("look") == [
        "look after " + name for name in ("pull-gfx-G1-G0-32M", "pull-gfx-G1-G0-8M", "test_by_notation")
    ]


def test_the_node_is_there_without_a_transfer(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_node(transfer_node): assert len(transfer_node.devices) == 2")
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "@pytest.mark.transferbench(size='4M')\ndef test_it(transfer, transferbench): pass",
            "test_it: @pytest.mark.transferbench has no keyword 'size': use block_threads, config, control, *",
        ),
        (
            "@pytest.mark.transferbench(sizes='4Q')\ndef test_it(transferbench): pass",
            "test_it: @pytest.mark.transferbench(sizes='4Q'): bad size '4Q': *",
        ),
        (
            "@pytest.mark.transferbench('G1->G9')\ndef test_it(transfer, transferbench): pass",
            "test_it: bad Transfer 'G1->G9': *",
        ),
        (
            "@pytest.mark.transfer(op='pull')\ndef test_it(transfer, transferbench): pass",
            "test_it: the mark transfer is set on items by pytest-transferbench itself; say what to measure with "
            "@pytest.mark.transferbench(...)",
        ),
        (
            "@pytest.mark.transferbench(ops='pull')\ndef test_it(): pass",
            "test_it: it has the mark transferbench, but no argument transfer",
        ),
        (
            f"{CASE}    @pytest.mark.transferbench('bogus', nonsense=1, sizes='-4')\n    def test_it(self): pass",
            "TestCase: test_it: it has the mark transferbench, but no argument transfer",
        ),
        (
            CASE.replace("class", "@pytest.mark.transferbench(nonsense=1)\nclass") + "    def test_it(self): pass",
            "TestCase: test_it: it has the mark transferbench, but no argument transfer",
        ),
        (
            f"{CASE}    @pytest.mark.transfer(op='pull')\n    def test_it(self): pass",
            "TestCase: test_it: the mark transfer is set on items by pytest-transferbench itself; *",
        ),
        (
            "@pytest.fixture(params=[1])\ndef transfer(): pass\n"
            "@pytest.mark.transferbench(ops='pull')\ndef test_it(transfer, transferbench): pass",
            "test_it: the mark transferbench and the params of a fixture transfer both say what to measure: give one *",
        ),
    ],
)
def test_misuse_fails_the_collection_in_one_line(
    run: RunPytest, pytester: pytest.Pytester, code: str, says: str
) -> None:
    pytester.makepyfile(f"import pytest\n{code}")
    result = run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([says.replace("[", "[[]")])


def test_a_unittest_beside_marked_functions_is_left_alone(run: RunPytest, pytester: pytest.Pytester) -> None:
    marked = "pytestmark = pytest.mark.transferbench('(G1->G0->G0 0 64M)')"
    pytester.makepyfile(
        f"""import pytest\n{marked}\n{CASE}    def test_it(self): pass\ndef test_mine(transfer, transferbench): pass"""
    )
    run().assert_outcomes(passed=2)


def test_a_unittest_measures_through_a_fixture_of_its_own(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile(
        """
        import pytest, unittest
        @pytest.mark.transferbench(rotate=0)
        class TestCase(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _mine(self, transferbench): self.transferbench = transferbench
            def test_it(self): self.transferbench("(G1->G0->G0 0 64M)")
        """
    )
    run().assert_outcomes(passed=1)
    assert said("measure") == ["measure pull-gfx-G1-G0-64M data=None floor=None rotate=0"]


def test_a_mark_wins_over_the_command_line(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    pytester.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.transferbench(executors="gfx", ops="push", rotate="4M")
        class TestIt:
            @pytest.mark.transferbench(rotate=0)
            def test_it(self, transfer, transferbench):
                transferbench(transfer)
        """
    )
    run("--transfer-rotate=8M", "--ops=pull", "--sizes=1M").assert_outcomes(passed=2)
    assert said("measure") == [
        f"measure push-gfx-{pair}-1M data=None floor=None rotate=0" for pair in ("G0-G1", "G1-G0")
    ]


def test_strict_markers_know_our_marks(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml("[tool.pytest]\nstrict = true")
    pytester.makepyfile(USERS_FILE.format(floor=300))
    run("-m", "transfer(op='pull')").assert_outcomes(passed=2, deselected=2)

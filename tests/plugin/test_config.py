"""Configuration files: given on the command line, in an ini file and by a mark; one item a line."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.plugin.conftest import RunPytest
from tests.plugin.test_bad_input import assert_refused

pytest_plugins = ["pytester"]

SUITE = ("--pyargs", "pytest_transferbench.suites.test_config")
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ builds the emulated node")
EMULATED = ("--transfer-emulate=mi300x-8", "--sizes=64K", "--transfer-rotate=0")


def written(pytester: pytest.Pytester, text: str, name: str = "moves.cfg") -> str:
    (pytester.path / name).write_text(text)
    return name


@NEEDS_COMPILER
@pytest.mark.parametrize("worker", [(), ("-p", "xdist", "-n1")], ids=["one process", "a worker"])
def test_a_file_runs_line_by_line_on_the_emulated_node(
    pytester: pytest.Pytester, run_elsewhere: RunPytest, worker: tuple[str, ...]
) -> None:
    written(
        pytester,
        """\
## Pushed by a kernel
1 4 (G0->G0->G1)

## Two pulls at once, as TransferBench dumps them
-2 (R0G1->R0G0->R0G0 4 65536)(R0G2->R0G0->R0G0 4 65536)
# -1 (G0->G0->G1 8 64M)
-1 (G0->D0->G[1..1] 1 4K)  # by the copy engine
  1 0 (C0->C0->C0)
1 4 (N0->G0->G0)
1 4 (G0->G9->G0)
1 8 G0 G0 G1
-1 (G0 G0 G1 8 0)
""",
    )
    result = run_elsewhere(*SUITE, *EMULATED, *worker, "--transfer-config=moves.cfg", "-v", "-rs")
    result.assert_outcomes(passed=6, skipped=1)
    names = [
        "push-gfx4-G0-G1-64K",
        "pull-gfx4-G1+G2-G0-64K",
        "push-dma-G0-G1-4K",
        "local-cpu-C0-C0-64K",
        "local-gfx4-N-G0-64K",
        "relay-gfx4-G0-G0-64K-at-G9",
        "push-gfx8-G0-G1-64K",
    ]
    shown = [
        line
        for line in result.outlines
        if "test_config.py::test_config[" in line and ("PASS" in line or "SKIP" in line)
    ]
    assert [next(name for name in names if f"[{name}]" in line) for line in shown] == names
    result.stdout.fnmatch_lines(["SKIPPED*no GPU 9: this node has GPUs 0-7"])
    if not worker:
        result.stdout.fnmatch_lines(
            [
                "moves.cfg:1: ## Pushed by a kernel",
                "moves.cfg:4: ## Two pulls at once, as TransferBench dumps them",
                "moves.cfg:12: push-gfx8-G0-G1-64K is in line 11 already, and run once",
            ]
        )


def test_without_a_file_one_item_says_what_to_give(run: RunPytest) -> None:
    result = run(*SUITE, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no configuration file: give one, --transfer-config=FILE"])


def test_every_case_of_a_file_is_measured(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    written(pytester, "2 8 (G0->G0->G1) (G0->G0->U1)\n1 8 (G*->G0->G0)\n")
    run(*SUITE, "--transfer-config=moves.cfg", "--sizes=1M").assert_outcomes(passed=1, skipped=1)
    assert [line.split()[1] for line in said("measure")] == ["push-gfx8-G0-G1+U1-1M"]


REFUSED = [
    ("1 8 (G0->G0->G1)\n\n1 8 (G0->G0->Q1)\n", "moves.cfg:3: bad memory 'Q1': unknown memory kind 'Q': *"),
    ("1 8 (G0->I0.1->G1)\n", "moves.cfg:1: bad executor 'I0.1': a NIC is not measured here; *"),
    ("1 8 (R1G0->G0->G1)\n", "moves.cfg:1: bad memory 'R1G0': rank R1 is another machine, *"),
    ("# nothing\n", "moves.cfg: it has no line with Transfers, *"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_a_bad_line_is_refused_with_its_number(run: RunPytest, pytester: pytest.Pytester, text: str, says: str) -> None:
    written(pytester, text)
    assert_refused(run(*SUITE, "--transfer-config=moves.cfg"), says)


def test_a_bad_line_is_refused_in_front_of_a_worker(run_apart: RunPytest, pytester: pytest.Pytester) -> None:
    text, says = REFUSED[0]
    written(pytester, text)
    assert_refused(run_apart(*SUITE, "--transfer-config=moves.cfg", "-n1"), says)


def test_a_file_that_cannot_be_read(run: RunPytest, pytester: pytest.Pytester) -> None:
    assert_refused(
        run(*SUITE, "--transfer-config=none.cfg"),
        "--transfer-config=none.cfg: it cannot be read: No such file or directory",
    )
    pytester.mkdir("folder.cfg")
    assert_refused(run(*SUITE, "--transfer-config=folder.cfg"), "*it cannot be read: Is a directory")
    (pytester.path / "latin.cfg").write_bytes(b"# caf\xe9\n1 8 (G0->G0->G1)\n")
    assert_refused(run(*SUITE, "--transfer-config=latin.cfg"), "*it cannot be read: it is no text in UTF-8")


def test_the_path_in_an_ini_file_begins_there(
    run: RunPytest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\ntransfer_config = lines/moves.cfg\ntransfer_sizes = 1M\n")
    pytester.mkdir("lines")
    written(pytester, "1 8 (G0->G0->G1)\n", "lines/moves.cfg")
    monkeypatch.chdir(pytester.mkdir("elsewhere"))
    run(*SUITE).assert_outcomes(passed=1)


def test_a_mark_gives_a_function_its_own_file(
    run: RunPytest, pytester: pytest.Pytester, said: Callable[[str], list[str]]
) -> None:
    written(pytester, "1 8 (G0->G0->G1)\n")
    written(pytester, "1 4 (G1->G0->G0)\n", "mine.cfg")
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench(config="mine.cfg")
        def test_mine(transfer, transferbench):
            assert transferbench(transfer).wrong_words == 0
        @pytest.mark.transferbench(pairs="config")
        def test_given(transfer, transferbench):
            assert transferbench(transfer).wrong_words == 0
        @pytest.mark.transferbench("1 2 (G*->G[1]->G1)", executors="gfx")
        def test_line(transfer, transferbench):
            assert len(transfer.transfers) == 2
        """
    )
    run("--transfer-config=moves.cfg", "--sizes=1M").assert_outcomes(passed=2, skipped=1)
    assert [line.split()[1] for line in said("measure")] == ["pull-gfx4-G1-G0-1M", "push-gfx8-G0-G1-1M"]


def test_a_marks_file_that_is_bad_is_refused_at_the_function(run: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.transferbench(config="mine.cfg")
        def test_mine(transfer, transferbench):
            transferbench(transfer)
        """
    )
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["test_mine: @pytest.mark.transferbench(config='mine.cfg'): it cannot be read: No such file or directory"]
    )
    written(pytester, "x\n", "mine.cfg")
    run().stdout.fnmatch_lines(["test_mine: mine.cfg:1: bad line 'x': it begins with its number of Transfers; *"])

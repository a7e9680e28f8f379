"""The pytest hooks and fixtures of pytest-transferbench, and nothing else.

Importing this module imports pytest and the standard library: it is loaded in every project of an environment.
What a run finds out about the machine is found when it is first needed, see :mod:`pytest_transferbench.session`.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_transferbench import options
from pytest_transferbench.isolation import deadlines, xdist
from pytest_transferbench.report import asserts, header, junit, transport
from pytest_transferbench.report.crash import is_verdict, lead_with_verdict
from pytest_transferbench.report.reporter import Reporter
from pytest_transferbench.report.terminal import live_status
from pytest_transferbench.session.item import ItemBench
from pytest_transferbench.session.run import Run
from pytest_transferbench.transfer import AnyCase

if TYPE_CHECKING:
    from pytest_transferbench.engine import Lease
    from pytest_transferbench.measurement import Measurement
    from pytest_transferbench.node import Node

SUITES = Path(__file__).with_name("suites")

_RUN = pytest.StashKey[Run]()
_REPORTER = pytest.StashKey[Reporter]()
_WATCHDOG = pytest.StashKey[deadlines.Watchdog]()
_XDIST = pytest.StashKey[xdist.XdistHooks]()
_HEADER_SHOWN = pytest.StashKey[bool]()
_ITEM_BENCH = pytest.StashKey[ItemBench]()
_ANNOUNCEMENTS = pytest.StashKey[deadlines.Announcements]()
_ASKED = pytest.StashKey[bool]()

# The suites' asserts read as well as a project's own, also where python_files does not name them.
pytest.register_assert_rewrite("pytest_transferbench.suites")


# Options


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the ``--transfer-*`` options, and the short forms at once where a conftest has brought us in."""
    options.add_options(parser)
    if any(name.endswith("conftest.py") for name, _ in pluginmanager.list_name_plugin()):
        # Loaded by a conftest: the hook below has begun without us.
        config: pytest.Config = pluginmanager.get_plugin("pytestconfig")  # type: ignore[assignment]  # always there
        options.add_short_forms(parser, config)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> Generator[None, None, None]:
    """Add the short forms when everybody else has registered: who else wants ``--gpus`` keeps it."""
    yield
    options.add_short_forms(parser, early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; where an option or ini value of ours is set, resolve everything or refuse in one line."""
    config.addinivalue_line(
        "markers",
        "transferbench(*transfers, ops, sizes, executors, pairs, floor_gbps, ...): "
        "the transfers a test function measures, one item each",
    )
    config.addinivalue_line(
        "markers", "transfer(op, exe, src, dst, size): set on each transfer item, for -m \"transfer(op='pull')\""
    )
    if _only_informs(config):
        return
    run = config.stash[_RUN] = Run(config)
    if options.asked(config):
        if run.refusal and options.asked_on_command_line(config):
            raise pytest.UsageError(run.refusal)
        # A worker's failure is told by its items: all its controller would see of it is a worker that does not start.
        if not run.ready() and not xdist.is_worker(config):
            raise pytest.UsageError(run.error)
        xdist.allow_restarts(config)
    if xdist.is_controller(config):
        config.stash[_ANNOUNCEMENTS] = deadlines.Announcements(
            Path(tempfile.gettempdir()) / f"pytest-transferbench-{secrets.token_hex(8)}"
        )
        handed = {**run.for_workers(), "announcements": str(config.stash[_ANNOUNCEMENTS].folder)}
        config.stash[_XDIST] = xdist.XdistHooks(handed)
        config.pluginmanager.register(config.stash[_XDIST], "transferbench-xdist")
    if not xdist.is_worker(config):
        config.stash[_REPORTER] = Reporter(
            config,
            run.settings.journal if run.resolved else None,
            node=lambda: run.node if run.resolved else None,
            collected=lambda: config.stash[_XDIST].collected if _XDIST in config.stash else run.items,
            announced=lambda nodeid: (
                config.stash[_ANNOUNCEMENTS].ends_at(nodeid) if _ANNOUNCEMENTS in config.stash else None
            ),
            worker_error=lambda: config.stash[_XDIST].error if _XDIST in config.stash else None,
            pending_faults=lambda: (
                config.stash[_XDIST].pending_faults if _XDIST in config.stash else run.pending_faults()
            ),
        )
        config.pluginmanager.register(config.stash[_REPORTER], "transferbench-reporter")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the journal, the engine within a deadline of its own, and the watchdog's file."""
    if _REPORTER in config.stash:
        config.stash[_REPORTER].close()
    if _ANNOUNCEMENTS in config.stash:
        config.stash[_ANNOUNCEMENTS].close()
    watchdog = config.stash.get(_WATCHDOG, None)
    if watchdog is not None:
        watchdog.arm(deadlines.CLOSE_SECONDS)
    try:
        if _RUN in config.stash:
            config.stash[_RUN].close()
    finally:
        if watchdog is not None:
            watchdog.close()


# Collection


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
    """Collect our own suites whatever the project's ``python_files`` says, under a name that says whose they are.

    pytest calls a file outside the project by its way from where the command line points, which may be nothing.
    """
    collected = yield
    if file_path.parent == SUITES and file_path.match("test_*.py"):
        outside = not file_path.is_relative_to(parent.config.rootpath)
        name = file_path.relative_to(SUITES.parent.parent).as_posix() if outside else None
        return [pytest.Module.from_parent(parent, path=file_path, nodeid=name)]
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    """Refuse misused marks in a unittest class: pytest generates no tests of its methods."""
    report: pytest.CollectReport = yield
    if isinstance(collector, pytest.Class) and _is_unittest(collector.obj):
        own, items = collector.own_markers, cast("Iterable[pytest.Function]", report.result or ())
        refused = (_misuse(item, [*own, *item.own_markers], item.fixturenames) for item in items)
        line = next(filter(None, refused), None)
        if line is not None:
            report.outcome, report.longrepr, report.result = "failed", f"{collector.name}: {line}", []
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn the argument ``transfer`` of our test functions into cases."""
    run = metafunc.config.stash.get(_RUN, None)
    if run is None or not _is_ours(metafunc.definition, metafunc.fixturenames):
        return
    definition = metafunc.definition
    misuse = _misuse(definition, definition.own_markers, metafunc.fixturenames)
    if misuse:
        pytest.fail(misuse, pytrace=False)
    generates = "transfer" in metafunc.fixturenames and not _parametrizes_itself(metafunc)
    if generates and (own_fixtures := _own_fixtures(definition)):
        # A fixture of the project's own that happens to have this name gives the values, where no mark asks for ours.
        generates = definition.get_closest_marker("transferbench") is not None
        if generates and own_fixtures[-1].params is not None:
            pytest.fail(
                f"{definition.name}: the mark transferbench and the params of a fixture transfer both say what to "
                "measure: give one of the two",
                pytrace=False,
            )
    if not run.ready():
        if generates:
            metafunc.parametrize("transfer", [pytest.param(None, id="not-resolved")])
        return
    refused = None
    try:
        request = run.request(metafunc.definition.iter_markers("transferbench"))
        if generates:
            metafunc.parametrize("transfer", [item.as_param() for item in run.plan(request).items])
    except ValueError as error:
        refused = str(error)
    if refused is not None:
        # Not while the ValueError is handled: pytest would show it too, and the line came twice.
        pytest.fail(f"{metafunc.function.__name__}: {refused}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count the transfer items; in a single process, refuse here what could not be resolved."""
    run = config.stash.get(_RUN, None)
    ours = [item for item in items if _is_ours(item)]
    if run is None or not ours:
        return
    run.items = len(ours)
    if run.blocked() and not xdist.is_worker(config):
        raise pytest.UsageError(run.blocked())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep a way to the real standard error, for the traceback of an item that hangs; any may prove to be ours."""
    if _RUN in session.config.stash:
        session.config.stash[_WATCHDOG] = deadlines.Watchdog()


# Running


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no deadline outlive its item."""
    try:
        return (yield)
    finally:
        watchdog = item.config.stash.get(_WATCHDOG, None)
        if watchdog is not None:
            watchdog.cancel()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a transfer item in one line where nothing can be measured; else set it a deadline.

    Here and not around the whole item: pytest's own ``faulthandler_timeout`` is set there, and the last one counts.
    pytest cancels it for us when somebody enters the debugger.
    """
    if _RUN in item.config.stash and _is_ours(item):
        _set_deadline(item, _unblocked(item.config), _case_of(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what was measured on the report, where it crosses pytest-xdist, and a failing verdict first in its text.

    A verdict in setup, such as that of buffers that cannot be had, fails the item and is no error of its setup. What a
    fixture measures after the call comes with the report of its teardown.
    """
    if (
        call.excinfo is not None
        and not isinstance(call.excinfo.value, pytest.skip.Exception)
        and _ITEM_BENCH in item.stash
    ):
        item.stash[_ITEM_BENCH].look_for_lost(item.name)
    passed_setup = call.when == "setup" and call.excinfo is None
    bench = item.stash.get(_ITEM_BENCH, None)
    nothing_more = call.when == "teardown" and not (bench and bench.measurements)
    if not _is_ours(item) or passed_setup or nothing_more:
        return (yield)
    made: list[Measurement] = []
    if bench:
        made, bench.measurements = bench.measurements, made
    data = transport.carry(made)
    record = transport.headline(data)
    said = call.when == "teardown" and any(name == "transfer_key" for name, _ in item.user_properties)
    if record is not None and not said:
        item.user_properties += junit.properties(record)
    report = yield
    if call.when == "setup" and call.excinfo is not None and is_verdict(call.excinfo.value):
        report.when = "call"
    lead_with_verdict(report.longrepr)
    setattr(report, transport.ATTRIBUTE, data)
    return report


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Write bandwidths with their unit in failed comparisons."""
    return asserts.explain(op, left, right)


# Reporting


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Describe the machine where it is known by now: an option or ini value of ours was set."""
    return _header(config)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Say how much there is to do and about how long it takes; the machine first, if that was not said yet."""
    run = config.stash.get(_RUN, None)
    if run is None or not run.items or run.blocked():
        return []
    selected = [item for item in items if _is_ours(item)]
    to_run = [item for item in selected if not item.get_closest_marker("skip")]
    known = [case for item in to_run if (case := _case_of(item))]
    seconds = run.estimate(known)
    count = f"transferbench: {len(selected)} of {run.items} transfer cases selected, {len(to_run)} to run"
    above = [*_header(config), *header.message_lines(known)] if config.get_verbosity() >= 0 else []
    # Items that name their Transfers only when they run have no estimate.
    return [*above, f"{count}, {_duration(seconds)}" if seconds else count, *run.notes]


def pytest_report_teststatus(report: Any) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Show the bandwidth beside each item with ``-v``."""
    return live_status(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the controller how many transfer items there were, and what kept them; it collects none itself."""
    config = session.config
    if xdist.is_worker(config) and _RUN in config.stash:
        run = config.stash[_RUN]
        said = {"items": run.items, "error": run.error, "pending_faults": run.pending_faults()}
        config.workeroutput[xdist.INPUT] = said  # type: ignore[attr-defined]  # set by xdist


# Fixtures


@pytest.fixture(scope="session")
def transfer_node(pytestconfig: pytest.Config) -> Node:
    """The machine the run is on: its GPUs and the links between them."""
    return _ready(pytestconfig).node


@pytest.fixture
def transferbench(request: pytest.FixtureRequest) -> ItemBench:
    """Measure and judge a transfer: ``m = transferbench(transfer)``. One judged call an item."""
    request.node.stash[_ASKED] = True
    run = _unblocked(request.config)
    with _in_one_line():
        asks = run.request(request.node.iter_markers("transferbench"))
    # A text file of doctests has no module.
    suite = request.module.__name__.rpartition(".")[2] if request.module else request.node.path.stem
    bench = ItemBench(run, suite, _case_of(request.node), asks)
    if bench.case is None and hasattr(request.node, "callspec") and not _own_fixtures(request.node):
        with _in_one_line():
            bench.adopt(request.node.callspec.params.get("transfer"))
    request.node.stash[_ITEM_BENCH] = bench
    if not request.config.stash[_WATCHDOG].armed:
        # Asked for while the test runs: nothing showed before that this is a transfer item.
        _set_deadline(request.node, run, bench.case)
    return bench


@pytest.fixture
def transfer_buffers(request: pytest.FixtureRequest, transferbench: ItemBench) -> Iterator[Lease]:
    """The buffers of this item's ``transfer``: ``.slices``, the filled sources, ``.peer``, the destination, ``.plan``.

    They are given back at the end of the item; ``transferbench(transfer)`` measures in these very buffers.
    """
    __tracebackhide__ = True
    if transferbench.case is None and "transfer" in request.fixturenames:
        given = request.getfixturevalue("transfer")
        with _in_one_line():
            transferbench.adopt(given)
    with ExitStack() as stack:
        yield transferbench.lease(stack)


# What the hooks share


_OUR_FIXTURES = frozenset({"transferbench", "transfer_buffers"})


def _only_informs(config: pytest.Config) -> bool:
    """Whether this run only prints what pytest knows; such a run never fails for what we were asked."""
    names = ("help", "version", "markers", "showfixtures", "show_fixtures_per_test")
    return any(getattr(config.option, name, False) for name in names)


def _is_ours(node: pytest.Item | pytest.Function, fixturenames: list[str] | None = None) -> bool:
    """Whether an item measures transfers: it names one of our fixtures, has got one, or bears our mark."""
    names = getattr(node, "fixturenames", ()) if fixturenames is None else fixturenames
    named = not _OUR_FIXTURES.isdisjoint(names) or node.get_closest_marker("transferbench") is not None
    return named or _ASKED in node.stash


def _is_unittest(found: object) -> bool:
    """Whether a class is unittest's; without importing it, which a project without such classes never does."""
    unittest = sys.modules.get("unittest")
    return unittest is not None and isinstance(found, type) and issubclass(found, unittest.TestCase)


def _misuse(node: Any, own_marks: Iterable[pytest.Mark], fixturenames: Collection[str]) -> str | None:
    """Return, in one line, in which of two wrong ways a function says what it measures; None if in neither."""
    if node.get_closest_marker("transfer"):
        return (
            f"{node.name}: the mark transfer is set on items by pytest-transferbench itself; "
            "say what to measure with @pytest.mark.transferbench(...)"
        )
    marked = any(mark.name == "transferbench" for mark in own_marks)
    if marked and "transfer" not in fixturenames and _OUR_FIXTURES.isdisjoint(fixturenames):
        return f"{node.name}: it has the mark transferbench, but no argument transfer"
    return None


def _parametrizes_itself(metafunc: pytest.Metafunc) -> bool:
    """Whether the function gives ``transfer`` its values through ``parametrize``."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        if "transfer" in (map(str.strip, names.split(",")) if isinstance(names, str) else names):
            return True
    return False


def _own_fixtures(node: pytest.Item) -> Sequence[Any]:
    """The fixtures of the project's own that a function's argument ``transfer`` may mean, the nearest last."""
    fixtures: Any = node.config.pluginmanager.get_plugin("funcmanage")
    return fixtures.getfixturedefs("transfer", node) or ()


def _case_of(item: pytest.Item) -> AnyCase | None:
    """The case an item was made for; None for an item that names its Transfers only when it runs."""
    mark = item.get_closest_marker("transfer")
    return mark.args[0] if mark else None


def _ready(config: pytest.Config) -> Run:
    run = config.stash[_RUN]
    if not run.ready():
        pytest.fail(str(run.error), pytrace=False)
    return run


def _unblocked(config: pytest.Config) -> Run:
    run = config.stash[_RUN]
    if run.blocked():
        pytest.fail(str(run.blocked()), pytrace=False)
    return run


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Fail an item with the line of a ``ValueError`` alone: what a mark or an argument says is not a fault of ours."""
    refused = None
    try:
        yield
    except ValueError as error:
        refused = str(error)
    if refused is not None:
        pytest.fail(refused, pytrace=False)


def _set_deadline(item: pytest.Item, run: Run, case: AnyCase | None) -> None:
    seconds = deadlines.deadline_seconds(case, run.node, first=not run.opened)
    item.config.stash[_WATCHDOG].arm(seconds)
    announcements = xdist.received(item.config).get("announcements")
    if announcements is not None:
        worker: str = item.config.workerinput["workerid"]  # type: ignore[attr-defined]  # set by xdist
        deadlines.Announcements(Path(announcements)).announce(worker, item.nodeid, time.time() + seconds)


def _header(config: pytest.Config) -> list[str]:
    """The header, once a run, as soon as the machine is known."""
    run = config.stash.get(_RUN, None)
    if run is None or not run.resolved or config.stash.get(_HEADER_SHOWN, False):
        return []
    config.stash[_HEADER_SHOWN] = True
    lines = header.header_lines(
        run.settings, run.node, run.gpus, run.sizes, os.environ, options.short_forms_taken(config)
    )
    return header.wrapped(lines, config.get_terminal_writer().fullwidth)


def _duration(seconds: float) -> str:
    """Return ``seconds`` in words, at least one."""
    seconds = max(seconds, 1.0)
    for unit, length, below in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800), ("days", 86_400, 31_536_000)):
        if seconds < below:
            return f"about {seconds / length:.0f} {unit}"
    return "more than a year"

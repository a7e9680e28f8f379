"""Settings and a node become cases: what one test function runs on this machine, with ids, order and skips."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_transferbench.node import Node
from pytest_transferbench.options import (
    DEFAULT_EXECUTORS,
    DEFAULT_OPS,
    TABLES,
    Settings,
    mark_text,
    with_defaults,
    with_mark,
)
from pytest_transferbench.transfer import (
    LL,
    AnyCase,
    AnyTransfer,
    Case,
    Config,
    Executor,
    Memory,
    Message,
    MessageCase,
    Places,
    Test,
    Transfer,
    TransferOrTest,
    executor_kind,
    format_size,
    parse_config,
    parse_memory,
    parse_transfers,
    together,
)
from pytest_transferbench.transfer.case import can_be_searched
from pytest_transferbench.transfer.pairs import WORDS, Names, pairs_named
from pytest_transferbench.transfer.sizes import shortened, shown

REAL_SIZES = (4 << 20, 64 << 20, 256 << 20)
EMULATED_SIZES = (1 << 20, 4 << 20, 16 << 20)
EMULATED_SAMPLES, EMULATED_WARMUPS = 1, 1
HOST_SIZES = (1 << 20, 16 << 20, 64 << 20)
MESSAGE_SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20)
EMULATED_MESSAGE_SIZES = (8, 1 << 10, 64 << 10, 1 << 20)
EMULATED_ITERATIONS, MESSAGE_WARMUPS = 3, 10
CASE_LIMIT = 5000
"""Above this many cases of one function, one pair for each link class of each device is enough to start with."""

_NAMED_PAIRS = ("gpu", "host", "all", "peers")
_GPUS_FOR_GPU_PAIRS = {"push": 2, "pull": 2, "local": 1, "relay": 3}
_GPUS_FOR_HOST_PAIRS = {"push": 1, "pull": 1, "local": 0, "relay": 0}

CONFIG = "config"
"""What pairs are called where the lines of a configuration file stand in their place."""
PEERS = "peers"
"""Stands for all the other selected GPUs at the far end of a pair."""
ONE_WAY, PING_PONG = "one-way", "ping-pong"
LOCAL = "local"
"""Stands for the first GPU with itself, where somebody asks for local copies."""

_NOT_OF_MESSAGES = {
    "samples": "iterations",
    "subexecutors": "ll_blocks",
    "block_threads": "",
    "unroll": "",
    "table": "",
    "ops": "",
    "executors": "protocols",
    "sub_iterations": "",
    "rotate": "",
    "offset": "",
    "warm_cold": "",
}
"""Keywords of a mark that say nothing about messages, and what says it of them."""

Unsupported = Callable[[AnyCase, Node], str | None]


@dataclass(frozen=True)
class Request:
    """What one test function asks for: settings with its marks applied, and what only a mark can say.

    ``pairs`` is ``gpu``, ``host``, ``all`` or a comma-separated list such as ``G0-G1,C0-G0``; ``peers``, or a list such
    as ``peers-G0,G0-peers``, asks for Tests of one GPU with all the others, and ``config`` for the lines of the
    settings' configuration file; ops and executors do not matter then. With ``transfers`` given, those alone are
    run, and pairs, ops and executors do not matter. ``messages`` is ``one-way`` or ``ping-pong`` where Messages are
    asked for, between the GPUs of every pair, and empty elsewhere. ``table`` is the shape of these cases in the
    summary, empty for matrices.
    """

    settings: Settings
    pairs: str = "gpu"
    floor_gbps: float | None = None
    transfers: tuple[AnyTransfer | str, ...] = ()
    control: bool = False
    variant: str = ""
    messages: str = ""
    table: str = ""


@dataclass(frozen=True)
class Planned:
    """One item to be: its id, its case, and why it is skipped, if it is. Without a case there is always a reason."""

    name: str
    case: AnyCase | None
    skip: str | None = None

    def as_param(self) -> Any:
        """Return what ``parametrize`` takes: what is moved, with its id and marks."""
        marks: list[Any] = []
        if self.case is not None:
            marks.append(transfer_mark(self.case))
        if self.skip is not None:
            marks.append(pytest.mark.skip(reason=self.skip))
        return pytest.param(self.case.transfer if self.case else None, id=self.name, marks=marks)


@dataclass(frozen=True)
class Plan:
    """The cases of one function, in the order they run, and lines about those that were left out."""

    items: tuple[Planned, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Route:
    """A Transfer without its size: all that ids, links and skips depend on."""

    op: str
    sources: tuple[Memory, ...]
    executor: Executor
    destinations: tuple[Memory, ...]

    def sized(self, sizes: Sequence[int], subexecutors: Iterable[int]) -> Iterator[Transfer]:
        for count in subexecutors:
            for nbytes in sizes:
                yield Transfer(self.sources, self.executor, self.destinations, nbytes, count)

    @property
    def ends(self) -> tuple[Memory, Memory]:
        """The first source and the first destination."""
        return self.sources[0], self.destinations[0]


@dataclass
class _Skips:
    """Why cases are skipped on a node; asked once a route, not once a size."""

    node: Node
    gpus: tuple[int, ...]
    unsupported: Unsupported
    known: dict[tuple[Any, ...], str | None] = field(default_factory=dict)

    def reason(self, case: AnyCase) -> str | None:
        transfer = case.transfer
        # A message's blocks follow from its size, and a Test's sizes may differ from each other.
        if isinstance(transfer, Message | Test):
            return missing(transfer, self.node, self.gpus) or self.unsupported(case, self.node)
        route = (transfer.sources, transfer.executor, transfer.destinations, transfer.subexecutors)
        if route not in self.known:
            self.known[route] = missing(transfer, self.node, self.gpus) or self.unsupported(case, self.node)
        return self.known[route]


def request_from_marks(settings: Settings, marks: Iterable[pytest.Mark], *, emulated: bool = False) -> Request:
    """Return what a function asks for through its ``transferbench`` marks, the nearest given first.

    ``emulated`` tells that the node is, which may have defaults of its own. Raises ``ValueError`` in one line for an
    unknown keyword, a value its option would refuse, and anything given as a Transfer that is none.
    """
    keywords: dict[str, object] = {}
    transfers: tuple[AnyTransfer | str, ...] = ()
    for mark in marks:
        _refuse_what_messages_ignore(mark.kwargs)
        keywords = {**mark.kwargs, **keywords}
        transfers = transfers or mark.args
    for transfer in transfers:
        if not isinstance(transfer, AnyTransfer | str):
            raise ValueError(
                f"@pytest.mark.transferbench({shown(transfer)}): give Transfers, Tests or their notation, such as "
                "'G1->G0->G0', or Messages"
            )
    control = keywords.get("control", False)
    if not isinstance(control, bool):
        raise ValueError(f"@pytest.mark.transferbench(control={shown(control)}): use True or False")
    messages = mark_text("messages", keywords.get("messages", ""))
    if messages not in ("", ONE_WAY, PING_PONG):
        raise ValueError(f"@pytest.mark.transferbench(messages={shown(messages)}): use {ONE_WAY} or {PING_PONG}")
    table = mark_text("table", keywords.get("table", ""))
    if table not in ("", *TABLES):
        raise ValueError(f"@pytest.mark.transferbench(table={shown(table)}): use {', '.join(TABLES)}")
    settings = with_mark(settings, keywords)
    for name in (*(["emulated_defaults"] if emulated else []), "defaults"):
        settings = with_defaults(settings, keywords.get(name, {}), name)
    return Request(
        settings,
        mark_text("pairs", keywords.get("pairs", CONFIG if "config" in keywords else "gpu")),
        _floor(keywords.get("floor_gbps")),
        transfers,
        control,
        mark_text("variant", keywords.get("variant", "")),
        messages,
        table,
    )


def _refuse_what_messages_ignore(keywords: Mapping[str, object]) -> None:
    """Refuse a mark that asks for messages and in the same breath for what only Transfers have."""
    given = next((name for name in keywords if name in _NOT_OF_MESSAGES), None)
    if given is not None and keywords.get("messages"):
        instead = _NOT_OF_MESSAGES[given]
        raise ValueError(
            f"@pytest.mark.transferbench({given}=..., messages=...): messages have no {given}, "
            + (f"use {instead}" if instead else f"leave {given} out")
        )


def build_cases(
    request: Request, node: Node, gpus: tuple[int, ...], unsupported: Unsupported, config: Config | None = None
) -> Plan:
    """Return the cases of ``request`` on ``node``, restricted to the selected ``gpus``.

    The sizes of one route follow each other, the largest first: that one can stand in for a link rate nobody knows.
    ``unsupported`` tells why a case cannot be run on the node, or None. ``config`` is what the settings' configuration
    file asks for, where the request asks for it. Where nothing is left, one skipped item for
    each op and executor says why. Raises ``ValueError`` in one line for pairs and notations that make no Transfer, and
    for Messages that nobody could send on this node as asked.
    """
    settings, places = request.settings, places_of(node, gpus)
    skips = _Skips(node, gpus, unsupported)
    if request.messages:
        return _message_plan(request, node, gpus, skips)
    sizes = tuple(sorted(settings.sizes or default_sizes(node), reverse=True))
    if request.transfers:
        given_transfers = [
            t for given in request.transfers for t in _given_transfers(given, sizes, settings.subexecutors, places)
        ]
        return Plan(tuple(_planned(given_transfers, request, skips)))
    if request.pairs == CONFIG:
        if config is None:
            return Plan((Planned("no-config-file", None, "no configuration file: give one, --transfer-config=FILE"),))
        return Plan(tuple(_planned(config.tests, request, skips)), config.notes)
    of_each_route = len(sizes) * len(settings.subexecutors) * len(settings.block_threads) * len(settings.unroll)
    routes, notes = _within_limit(list(_routes(request, node, gpus)), of_each_route, settings, node)
    transfers = [
        transfer for route in routes for transfer in route.sized(sizes, _blocks(route.executor, settings.subexecutors))
    ]
    tests = _tests_with_peers(request, gpus, sizes)
    items = [*_planned([*transfers, *tests], request, skips)]
    made = {(route.op, route.executor.word) for route in routes} | {(test.op, test.by) for test in tests}
    items += _nothing_to_run(request, node, gpus, made)
    return Plan(tuple(items), notes)


def places_of(node: Node, gpus: tuple[int, ...]) -> Places:
    """Return what wildcards stand for on ``node``: the selected ``gpus``, and the NUMA nodes there are."""
    selected = [device for device in node.devices if device.index in gpus]
    return Places(
        gpus=tuple(device.index for device in selected),
        numa_nodes=tuple(numa_node.index for numa_node in node.numa_nodes),
        xccs={device.index: device.xccs for device in selected},
        copy_engines={d.index: d.copy_engines for d in selected if d.copy_engines is not None},
    )


def read_config(text: str, settings: Settings, node: Node, gpus: tuple[int, ...]) -> Config:
    """Return what the ``text`` of the settings' configuration file asks for.

    Of the default sizes, lines that leave their bytes open take the largest alone: as in TransferBench, each is one
    case. Raises ``ValueError`` in one line with the file's name and the line's number.
    """
    sizes = sorted(settings.sizes or {max(default_sizes(node))}, reverse=True)
    name = str(settings.config) if str(settings.config).isprintable() else repr(str(settings.config))
    return parse_config(text, name, sizes, places_of(node, gpus), lambda each: _finished(each, settings.subexecutors))


def default_sizes(node: Node) -> tuple[int, ...]:
    """Return the sizes in bytes that are run where none were asked for."""
    if node.emulated:
        return EMULATED_SIZES
    return REAL_SIZES if node.devices else HOST_SIZES


def default_message_sizes(node: Node) -> tuple[int, ...]:
    """Return the sizes in bytes of the messages that are sent where none were asked for."""
    return EMULATED_MESSAGE_SIZES if node.emulated else MESSAGE_SIZES


def for_node(settings: Settings, node: Node) -> Settings:
    """Return ``settings`` with the fewer samples and warm-ups that an emulated node needs, where none were asked for.

    Its virtual clock gives the same figure every time, while its copies are really made, by a CPU.
    """
    if not node.emulated:
        return settings
    return replace(
        settings,
        samples=settings.samples if settings.given("samples") else EMULATED_SAMPLES,
        warmups=settings.warmups if settings.given("warmups") else EMULATED_WARMUPS,
        ll_iterations=settings.ll_iterations if settings.given("ll_iterations") else EMULATED_ITERATIONS,
    )


def selected_gpus(settings: Settings, node: Node) -> tuple[int, ...]:
    """Return the GPUs to use, in ascending order; raises ``ValueError`` in one line for one that is not there."""
    there = tuple(device.index for device in node.devices)
    why = f": {node.why_no_gpu}" if node.why_no_gpu else ""
    spelling = settings.sources.get("gpus", "--gpus")
    if settings.all_gpus and not there:
        raise ValueError(f"{spelling}=all: this node has no GPU{why}")
    asked = settings.gpus if settings.gpus is not None else there
    missing_gpus = [index for index in asked if index not in there]
    if missing_gpus:
        given = shortened(",".join(map(str, asked)))
        absent = shortened(", ".join(map(str, missing_gpus)))
        raise ValueError(f"{spelling}={given}: no GPU {absent}; this node has {node.describe_indices()}{why}")
    return tuple(sorted(asked))


def missing(transfer: AnyTransfer, node: Node, gpus: tuple[int, ...]) -> str | None:
    """Return why ``transfer`` names a GPU that is not there or not selected, or None."""
    there = {device.index for device in node.devices}
    for index in sorted(index for index in transfer.owners if index >= 0):
        if index not in there:
            return f"no GPU {index}: " + (_no_gpu(node) if not there else f"this node has {node.describe_indices()}")
        if index not in gpus:
            return f"GPU {index} is not selected: --gpus names {', '.join(map(str, gpus))}"
    return None


def transfer_mark(case: AnyCase) -> pytest.MarkDecorator:
    """Return the mark an item carries for ``-m "transfer(op='pull', size='64M')"``; its argument is the case."""
    transfer = case.transfer
    source, destination = transfer.end_names
    return pytest.mark.transfer.with_args(
        case,
        op=transfer.op,
        exe=transfer.by,
        src=source,
        dst=destination,
        size=format_size(transfer.nbytes),
    )


def cases_of(transfer: AnyTransfer, request: Request, node: Node) -> tuple[AnyCase, ...]:
    """Return ``transfer`` as a case for each shape of a kernel that ``request`` asks for, as :func:`case_of` does."""
    settings = request.settings
    if isinstance(transfer, Message) or not _by_kernel(transfer):
        return (case_of(transfer, request, node),)
    shapes = itertools.product(settings.block_threads, settings.unroll)
    return tuple(case_of(transfer, request, node, shape) for shape in shapes)


def case_of(transfer: AnyTransfer, request: Request, node: Node, shape: tuple[int, int] | None = None) -> AnyCase:
    """Return ``transfer`` as a case measured as ``request`` says.

    ``shape`` is a kernel's threads a block and its unroll; without it, it is the one that ``request`` asks for. Raises
    ``ValueError`` for a Message within one GPU, and where several shapes are asked for.
    """
    settings = request.settings
    if isinstance(transfer, Message):
        return _message_case(transfer, request, node)
    block_threads, unroll = (0, 0) if not _by_kernel(transfer) else shape or _only_shape(transfer, settings)
    return Case(
        transfer,
        samples=settings.samples,
        sub_iterations=settings.sub_iterations,
        warmups=settings.warmups,
        rotate_bytes=settings.rotate_bytes,
        byte_offset=settings.byte_offset,
        validate=settings.validate,
        variant=request.variant,
        control=request.control,
        floor_gbps=request.floor_gbps,
        warm_cold_limit=settings.warm_cold if settings.given("warm_cold") else None,
        block_threads=block_threads,
        unroll=unroll,
        best=settings.best_subexecutors and can_be_searched(transfer),
    )


def _by_kernel(transfer: TransferOrTest) -> bool:
    """Whether a kernel takes part: what else there is has no shape."""
    return any(executor.kind == "G" for executor in transfer.executors)


def _only_shape(transfer: TransferOrTest, settings: Settings) -> tuple[int, int]:
    if len(settings.block_threads) > 1 or len(settings.unroll) > 1:
        raise ValueError(
            f"{transfer.notation()} is one case, and block_threads or unroll ask for several: give one of each"
        )
    return settings.block_threads[0], settings.unroll[0]


def _message_case(message: Message, request: Request, node: Node) -> MessageCase:
    settings = request.settings
    if message.loopback and not settings.ll_loopback:
        raise ValueError(
            f"{message.notation()} goes to the GPU it comes from: name two, or allow it with --transfer-ll-loopback"
        )
    return MessageCase(
        message,
        samples=settings.ll_iterations,
        warmups=settings.warmups if settings.given("warmups") or node.emulated else MESSAGE_WARMUPS,
        most_blocks=settings.ll_blocks,
        ring_kind=settings.ll_memory,
        timeout_seconds=settings.ll_timeout_seconds,
        validate=settings.validate,
        variant=request.variant,
        floor_gbps=request.floor_gbps,
        control=request.control,
    )


def read_transfer(text: str, nbytes: int | None, subexecutors: Sequence[int], places: Places) -> TransferOrTest:
    """Return the Transfer, or the Test, that ``text`` names; ``places`` are what its wildcards stand for.

    Bytes, and a kernel's blocks, are those given where it names none. Raises ``ValueError`` in one line, also where it
    names no blocks and several numbers of them are given.
    """
    return together(tuple(_finished(each, subexecutors) for each in parse_transfers(text, nbytes, places=places)))


def _finished(transfer: Transfer, subexecutors: Sequence[int]) -> Transfer:
    """Return ``transfer`` with the blocks that are set for kernels, where it leaves its own open."""
    if transfer.subexecutors:
        return transfer
    count, *others = _blocks(transfer.executor, subexecutors)
    if others:
        given = shortened(",".join(map(str, subexecutors)))
        raise ValueError(f"{transfer.notation()} leaves its SubExecutors open, which are {given}: give one number")
    return replace(transfer, subexecutors=count)


def link_class_of(transfer: AnyTransfer, node: Node) -> str:
    """Return the class of the link between the ends of ``transfer``, ``local`` or ``host`` where there is none.

    Where there are several, of several ends or of the Transfers of a Test, classes are joined by ``+``.
    """
    classes = [
        _link_class(node, each.owner_of(source), each.owner_of(destination))
        for each in transfer.transfers
        for source in each.sources
        for destination in each.destinations
    ]
    return "+".join(dict.fromkeys(classes))


def _blocks(executor: Executor, subexecutors: Sequence[int]) -> Sequence[int]:
    """The setting is for kernels and batches: one copy shares no work, host threads have a default of their own."""
    return subexecutors if executor.word in ("gfx", "batch") else (0,)


def _planned(transfers: Iterable[AnyTransfer], request: Request, skips: _Skips) -> Iterator[Planned]:
    for transfer in dict.fromkeys(transfers):
        for case in cases_of(transfer, request, skips.node):
            yield Planned(case.name, case, skips.reason(case))


def _message_plan(request: Request, node: Node, gpus: tuple[int, ...], skips: _Skips) -> Plan:
    """The Messages between the GPUs of every pair: protocol by protocol, the smallest first."""
    settings = request.settings
    sizes = sorted(settings.sizes or default_message_sizes(node))
    one_way = [(protocol, size) for protocol in settings.ll_protocols for size in sizes]
    round_trips = [protocol for protocol in settings.ll_protocols if protocol == LL]
    of_each_pair = len(one_way if request.messages == ONE_WAY else round_trips)
    routes = [
        _Route("push", sources, Executor("G", sources[0].index), destinations)
        for sources, destinations in _pairs(request, node, gpus)
        if request.pairs not in _NAMED_PAIRS or settings.ll_loopback or sources != destinations
    ]
    routes, notes = _within_limit(routes, of_each_pair, settings, node)
    ends = [route.ends for route in routes]
    if request.messages == ONE_WAY:
        messages = [Message(protocol, *pair, size) for pair in ends for protocol, size in one_way]
    else:
        messages = [Message.ping_pong(*pair) for pair in ends for _ in round_trips]
    items = [*_planned(messages, request, skips)]
    if not items:
        items.append(Planned(f"{request.messages}-no-message", None, _why_no_message(request, node, gpus)))
    return Plan(tuple(items), notes)


def _why_no_message(request: Request, node: Node, gpus: tuple[int, ...]) -> str:
    if not node.devices:
        return _no_gpu(node)
    if request.messages == PING_PONG and LL not in request.settings.ll_protocols:
        return "a ping-pong is a line of ll, which --transfer-ll-protocols leaves out"
    selected = ", ".join(map(str, gpus))
    return f"messages need 2 GPUs; selected: {selected}; --transfer-ll-loopback sends them within one"


def _within_limit(
    routes: list[_Route], cases_of_each: int, settings: Settings, node: Node
) -> tuple[list[_Route], tuple[str, ...]]:
    """Keep all routes, or one pair for each link class of each device where that makes too many cases; and say so."""
    asked = len(routes) * cases_of_each
    if asked <= CASE_LIMIT or settings.all_pairs:
        return routes, ()
    kept = _one_pair_per_link_class(routes, node)
    return kept, (
        f"{asked} cases are more than {CASE_LIMIT}: one pair for each link class of each device is run, "
        f"{len(kept) * cases_of_each} cases; --transfer-all-pairs runs them all",
    )


def _routes(request: Request, node: Node, gpus: tuple[int, ...]) -> Iterator[_Route]:
    settings = request.settings
    pairs = _pairs(request, node, gpus)
    for op in settings.ops or DEFAULT_OPS:
        for word in settings.executors or DEFAULT_EXECUTORS:
            for sources, destinations in pairs:
                for executor in _executors(op, word, sources, destinations, gpus):
                    yield _Route(op, sources, executor, destinations)


def _pairs(request: Request, node: Node, gpus: tuple[int, ...]) -> list[tuple[tuple[Memory, ...], tuple[Memory, ...]]]:
    host, devices = Memory("C", node.numa_nodes[0].index), [Memory("G", index) for index in gpus]
    gpu_pairs = [(source, destination) for source in devices for destination in devices]
    host_pairs = [(host, host), *((host, d) for d in devices), *((d, host) for d in devices)]
    named = dict(zip(_NAMED_PAIRS, (gpu_pairs, host_pairs, gpu_pairs + host_pairs, []), strict=True))
    if request.pairs in named:
        return [((source,), (destination,)) for source, destination in named[request.pairs]]
    listed = [ends for ends in _listed_pairs(request, gpus) if (PEERS,) not in ends]
    return [(tuple(map(parse_memory, sources)), tuple(map(parse_memory, targets))) for sources, targets in listed]


def _listed_pairs(request: Request, gpus: tuple[int, ...]) -> Iterator[tuple[Names, Names]]:
    """The ends of every pair in a list of them, as written, each of its words replaced by GPUs."""
    settings = request.settings
    for token in (part.strip() for part in request.pairs.split(",")):
        if token == LOCAL:
            token = "first-first"
            if not settings.local_copies:
                continue
        yield from pairs_named(token, gpus, named=settings.given("gpus"))


def _tests_with_peers(request: Request, gpus: tuple[int, ...], sizes: Sequence[int]) -> list[Test]:
    """The Tests of one GPU with all the other selected ones; none where there is no other."""
    settings, make = request.settings, {"push": Test.push_to_peers, "pull": Test.pull_from_peers}
    homes = [
        (op, home)
        for op, home in _homes_of_peers(request, gpus)
        if op in (settings.ops or DEFAULT_OPS) and {*gpus} - {home}
    ]
    if "gfx" not in (settings.executors or DEFAULT_EXECUTORS):
        return []
    counts = settings.subexecutors
    return [make[op](home, gpus, size, count) for op, home in homes for count in counts for size in sizes]


def _homes_of_peers(request: Request, gpus: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """The GPUs that ``pairs`` wants to push to, or pull from, all the others."""
    if request.pairs == PEERS:
        yield from ((op, gpu) for op in ("push", "pull") for gpu in gpus)
    elif PEERS in request.pairs:
        for source, destination in _listed_pairs(request, gpus):
            if (PEERS,) not in (source, destination):
                continue
            op, names = ("pull", destination) if source == (PEERS,) else ("push", source)
            home = None if len(names) > 1 or names == (PEERS,) else parse_memory(names[0])
            if home is None or home.kind != "G":
                given = f"{'+'.join(source)}-{'+'.join(destination)}"
                raise ValueError(f"bad pair {given}: peers are a GPU's, as in peers-G0 or G0-peers")
            yield op, home.index


def _executors(
    op: str, word: str, sources: tuple[Memory, ...], destinations: tuple[Memory, ...], gpus: tuple[int, ...]
) -> Iterator[Executor]:
    """The places where an executor makes ``op`` of a pair: beside one end, or for a relay beside neither."""
    kind, ends = executor_kind(word), (*sources, *destinations)
    if (
        (len(sources) > 1 and not kind.many_sources)
        or (len(destinations) > 1 and not kind.many_destinations)
        or (not kind.reaches_null and any(memory.on == "none" for memory in ends))
    ):
        return
    if op == "relay":
        if kind.relays and all(memory.on == "device" for memory in ends) and not {*sources} & {*destinations}:
            places = gpus if kind.on == "device" else (0,)
            taken = {memory.index for memory in ends} if kind.on == "device" else set()
            yield from (Executor(kind.letter, place) for place in places if place not in taken)
        return
    at_home = {"push": sources, "pull": destinations, "local": ends}[op]
    home = next((memory for memory in at_home if memory.on != "none"), None)
    if (
        home is not None
        and home.on == kind.on
        and home.beside is not None
        and _op_at(home, sources, destinations) == op
    ):
        yield Executor(kind.letter, home.beside)


def _op_at(home: Memory, sources: tuple[Memory, ...], destinations: tuple[Memory, ...]) -> str:
    """What a Transfer is whose executor sits beside ``home``; null memory counts as the executor's."""
    reads_at_home, writes_at_home = (
        all(memory.on == "none" or (memory.on, memory.index) == (home.on, home.index) for memory in memories)
        for memories in (sources, destinations)
    )
    if reads_at_home:
        return "local" if writes_at_home else "push"
    return "pull" if writes_at_home else "relay"


def _given_transfers(
    given: AnyTransfer | str, sizes: Sequence[int], subexecutors: Sequence[int], places: Places
) -> Iterator[AnyTransfer]:
    """What is given, as it is; a notation for each size, which gives equal Transfers where it names its own."""
    if isinstance(given, str):
        yield from (read_transfer(given, size, [count], places) for count in subexecutors for size in sizes)
    else:
        yield given


def _one_pair_per_link_class(routes: Sequence[_Route], node: Node) -> list[_Route]:
    devices = max(1, len(node.devices))
    chosen: dict[tuple[str, str, int, str], _Route] = {}
    # Nearest index upwards first, so that the pairs kept spread over the node instead of all ending at GPU 0.
    for route in sorted(routes, key=lambda route: (route.ends[1].index - route.ends[0].index) % devices):
        source, destination = (route.executor.owner if end.on == "none" else end.owner for end in route.ends)
        link_class = _link_class(node, source, destination)
        chosen.setdefault((route.op, route.executor.word, route.executor.owner, link_class), route)
    kept = set(chosen.values())
    return [route for route in routes if route in kept]


def _link_class(node: Node, source: int, destination: int) -> str:
    try:
        return str(node.link(source, destination).link_class)
    except KeyError:
        return "local" if source == destination >= 0 else "host" if min(source, destination) < 0 else "PCIe"


def _nothing_to_run(
    request: Request, node: Node, gpus: tuple[int, ...], made: set[tuple[str, str]]
) -> Iterator[Planned]:
    """One skipped item for every op and GPU executor that lacks the GPUs for a case, so that ``-k pull`` says why."""
    ops, words = request.settings.ops or DEFAULT_OPS, request.settings.executors or DEFAULT_EXECUTORS
    lacking, with_peers = False, PEERS in request.pairs
    by_place = any(word in request.pairs for word in WORDS)
    for op in ops:
        needs = _GPUS_FOR_HOST_PAIRS[op] if request.pairs == "host" else _GPUS_FOR_GPU_PAIRS[op]
        if len(gpus) >= needs or not (with_peers or by_place or request.pairs in ("gpu", "host", "all")):
            continue
        for kind in map(executor_kind, words):
            if (op, kind.word) in made or kind.on == "host" or (op == "relay" and not kind.relays):
                continue
            if with_peers and (kind.word != "gfx" or op not in ("pull", "push")):
                continue
            lacking = True
            if node.devices:
                reason = f"{op} needs {needs} GPUs; selected: {', '.join(map(str, gpus))}"
                yield Planned(f"{op}-{kind.word}-too-few-gpus", None, reason)
            else:
                yield Planned(f"{op}-{kind.word}-no-gpu", None, _no_gpu(node))
    if not made and not lacking:
        asked = f"pairs={request.pairs}, ops={','.join(ops)}, executors={','.join(words)}"
        yield Planned("no-such-transfer", None, f"no Transfer is all of this: {asked}")


def _no_gpu(node: Node) -> str:
    return node.why_no_gpu or "this node has no GPU"


def _floor(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"@pytest.mark.transferbench(floor_gbps={shown(value)}): use a positive number of GB/s")
    return float(value)

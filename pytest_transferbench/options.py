"""What a run was asked to do: command line, ini file, environment and marks become one frozen Settings.

:data:`OPTIONS` is the only list of options: the command line, the ini names, ``--help``, the settings and
``docs/options.md`` all come from it. The nearest source wins: mark, command line, environment, ini file, default.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_transferbench.transfer import (
    EXECUTORS,
    PROTOCOLS,
    Protocol,
    executor_kind,
    parse_size,
    parse_sizes,
    protocols,
)
from pytest_transferbench.transfer.case import (
    LONGEST_WAIT_SECONDS,
    MAX_BLOCK_THREADS,
    MAX_UNROLL,
    THREADS_STEP,
    check_block_threads,
    check_unroll,
)
from pytest_transferbench.transfer.sizes import shortened, shown
from pytest_transferbench.transfer.transfer import MAX_SUBEXECUTORS

OPS = ("push", "pull", "local", "relay")
"""The kinds of Transfer that can be asked for."""
DEFAULT_OPS = ("push", "pull", "local")
DEFAULT_EXECUTORS = ("gfx", "dma", "cpu")
RUNTIMES = ("auto", "rocm", "cuda", "emulator")
MAX_COUNT = 1_000_000
"""The most samples, sub-iterations, warm-ups, blocks or iterations one may ask for."""
MAX_COUNTS = 1024
"""The most counts of one list."""
RING_KINDS = {"uncached": "U", "fine": "F", "coarse": "G"}
"""Memory that an LL ring may lie in, and its letter."""
MARK = "the mark"
"""What :attr:`Settings.sources` says of a value that a mark gave."""
MARK_DEFAULT = "the mark's defaults"
"""What it says of a value that a mark gave for where nobody else does."""
TABLES = ("bmasweep", "gfxsweep", "hbm", "healthcheck", "scaling", "smoketest")
"""Shapes that the summary may have in the place of source x destination matrices."""

Validate = Literal["end", "each", "off"]


@dataclass(frozen=True)
class Settings:
    """What was asked for, parsed; nothing here depends on the machine.

    ``gpus`` holds GPU indices in the order given and is ``None`` when none were named; ``all_gpus`` is ``--gpus=all``.
    ``sizes`` are bytes. ``sizes``, ``executors`` and ``ops`` are ``None`` where nothing was asked: what is then run
    depends on the node. ``rotate_bytes`` is the rotation budget, ``None`` to let the caches decide, 0 for off.
    ``subexecutors``, ``block_threads`` and ``unroll`` have a case each; 0 leaves it to the engine.
    ``ll_memory`` is the letter of the memory that an LL ring lies in, empty to leave it to the GPU.
    ``sources`` tells for every setting that was given where it came from, such as ``--gpus`` or ``NUM_WARMUPS``.
    """

    runtime: str = "auto"
    emulate: str | None = None
    gpus: tuple[int, ...] | None = None
    all_gpus: bool = False
    sizes: tuple[int, ...] | None = None
    executors: tuple[str, ...] | None = None
    ops: tuple[str, ...] | None = None
    rotate_bytes: int | None = None
    samples: int = 25
    sub_iterations: int = 1
    warmups: int = 3
    subexecutors: tuple[int, ...] = (0,)
    best_subexecutors: bool = False
    block_threads: tuple[int, ...] = (0,)
    unroll: tuple[int, ...] = (0,)
    local_copies: bool = False
    byte_offset: int = 0
    validate: Validate = "end"
    warm_cold: float = 1.15
    all_pairs: bool = False
    config: Path | None = None
    ll_protocols: tuple[Protocol, ...] = PROTOCOLS
    ll_iterations: int = 100
    ll_blocks: int = 64
    ll_timeout_seconds: float = 30.0
    ll_memory: str = ""
    ll_loopback: bool = False
    journal: Path | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    def given(self, name: str) -> bool:
        """Tell whether the option called ``name`` was set anywhere."""
        return name in self.sources


@dataclass(frozen=True)
class Option:
    """One row of the table: an option with every name it goes by.

    ``parse`` turns its text into fields of :class:`Settings`, or raises ``ValueError`` in one line. ``environment``
    is the name under which TransferBench reads the same thing, and ``translate`` turns TransferBench's value into
    ours. ``mark`` is the keyword of ``@pytest.mark.transferbench``. A ``flag`` takes no value on the command line. A
    path of an ini file that is not absolute is one ``beside_ini``, or else from the working directory.
    """

    name: str
    metavar: str
    default: str
    help: str
    parse: Callable[[str], Mapping[str, Any]]
    short: str | None = None
    environment: str | None = None
    translate: Callable[[str], str] = str
    mark: str | None = None
    flag: bool = False
    beside_ini: bool = False

    @property
    def option(self) -> str:
        """The spelling that no other plugin can take."""
        return f"--transfer-{self.name.replace('_', '-')}"

    def spelling(self, short_forms_taken: Collection[str] = ()) -> str:
        """Return the shortest spelling that is ours in this run."""
        return self.short if self.short and self.short not in short_forms_taken else self.option

    @property
    def ini(self) -> str:
        """The name in the ini file, and of the attribute in pytest's own option namespace."""
        return f"transfer_{self.name}"

    def describe(self) -> str:
        """Return the text for ``--help``: what it does, its default and its other names."""
        names = [f"default: {self.default}", f"ini: {self.ini}"]
        if self.environment:
            names.append(f"environment: {self.environment}")
        if self.mark:
            names.append(f"mark: {self.mark}")
        return f"{self.help} ({'; '.join(names)})"


def _words(text: str, what: str, allowed: Collection[str]) -> tuple[str, ...]:
    words: list[str] = []
    for word in (token.strip().casefold() for token in text.split(",")):
        if word not in allowed:
            raise ValueError(f"unknown {what} {shown(word)}: use {', '.join(allowed)}")
        if word in words:
            raise ValueError(f"{what} {shown(word)} comes up twice: give every one once")
        words.append(word)
    return tuple(words)


def _gpus(text: str) -> Mapping[str, Any]:
    if text.strip().casefold() == "all":
        return {"gpus": None, "all_gpus": True}
    indices: list[int] = []
    for token in (part.strip() for part in text.split(",")):
        if not (token.isascii() and token.isdigit() and len(token) <= 4):
            raise ValueError(f"bad GPU index {shown(token)}: give indices such as 0,1, or all")
        if int(token) in indices:
            raise ValueError(f"GPU {int(token)} is named twice: give every index once")
        indices.append(int(token))
    return {"gpus": tuple(indices), "all_gpus": False}


def _executors(text: str) -> Mapping[str, Any]:
    words = ",".join(executor_kind(token.strip()).word for token in text.split(","))
    return {"executors": _words(words, "executor", [row.word for row in EXECUTORS])}


def _choice(text: str, name: str, allowed: Collection[str]) -> Mapping[str, Any]:
    if text not in allowed:
        raise ValueError(f"unknown value {shown(text)}: use {', '.join(allowed)}")
    return {name: text}


def _emulate(text: str) -> Mapping[str, Any]:
    if not text.strip():
        raise ValueError("no node model given: name one, such as mi300x-8, or a .toml file")
    return {"emulate": _without_nul(text)}


def _rotate(text: str) -> Mapping[str, Any]:
    return {"rotate_bytes": None if text.strip().casefold() == "auto" else parse_size(text)}


def _count(text: str, name: str, least: int, most: int = MAX_COUNT) -> Mapping[str, Any]:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 7 and least <= int(digits) <= most):
        raise ValueError(f"bad count {shown(text)}: use a whole number from {least} to {most}")
    return {name: int(digits)}


_COUNTS = re.compile(r"([0-9]{1,7})\s*(?:\.\.\s*([0-9]{1,7})\s*(?::\s*([0-9]{1,7}))?)?")


def _counts(text: str, name: str, check: Callable[[int], None]) -> Mapping[str, Any]:
    """Read ``1,2,4``, ``1..32`` (every one) and ``1..32:2`` (times 2)."""
    counts: list[int] = []
    for token in (part.strip() for part in text.split(",")):
        found = _COUNTS.fullmatch(token)
        if found is None:
            raise ValueError(f"bad count {shown(token)}: use whole numbers, such as 1,2,4 or 1..32 or 1..32:2")
        start, end, factor = (None if part is None else int(part) for part in found.groups())
        assert start is not None
        if end is not None and (end < start or factor in (0, 1) or (factor and not start)):
            raise ValueError(f"bad range {shown(token)}: write the smaller count first, and a factor of 2 or more")
        for count in _range(start, start if end is None else end, factor):
            check(count)
            if count in counts:
                raise ValueError(f"count {count} comes up twice: give every one once")
            counts.append(count)
            if len(counts) > MAX_COUNTS:
                raise ValueError(f"more than {MAX_COUNTS} counts: give fewer")
    return {name: tuple(counts)}


def _range(start: int, end: int, factor: int | None) -> Iterator[int]:
    while start <= end:
        yield start
        start = start + 1 if factor is None else start * factor


def _subexecutors(text: str) -> Mapping[str, Any]:
    if text.strip().casefold() == "best":
        return {"subexecutors": (0,), "best_subexecutors": True}

    def check(count: int) -> None:
        if count > MAX_SUBEXECUTORS:
            raise ValueError(f"bad count {count}: use whole numbers from 0 to {MAX_SUBEXECUTORS}, or best")

    return {**_counts(text, "subexecutors", check), "best_subexecutors": False}


def _yes_no(text: str) -> str:
    """TransferBench: 0 is no, everything else yes."""
    try:
        return "yes" if int(text) else "no"
    except ValueError:
        raise ValueError("use 0 (no) or 1 (yes)") from None


def _offset(text: str) -> Mapping[str, Any]:
    offset = parse_size(text)
    if offset % 4:
        raise ValueError(f"bad offset {shown(text)}: use a multiple of 4 bytes")
    return {"byte_offset": offset}


def _limit(text: str) -> Mapping[str, Any]:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 1 < limit < math.inf:
        raise ValueError(f"bad ratio {shown(text)}: use a number above 1, such as 1.15")
    return {"warm_cold": limit}


def _timeout(text: str) -> Mapping[str, Any]:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_WAIT_SECONDS:
        raise ValueError(f"bad timeout {shown(text)}: use seconds above 0, at most {LONGEST_WAIT_SECONDS}")
    return {"ll_timeout_seconds": seconds}


def _ring_memory(text: str) -> Mapping[str, Any]:
    return {"ll_memory": RING_KINDS[_choice(text, "ll_memory", RING_KINDS)["ll_memory"]]}


def _flag(text: str, name: str) -> Mapping[str, Any]:
    return {name: _choice(text, name, ("yes", "no"))[name] == "yes"}


def _journal(text: str) -> Mapping[str, Any]:
    if not text.strip():
        raise ValueError("no path given: name the file to write")
    return {"journal": Path(_without_nul(text))}


def _config(text: str) -> Mapping[str, Any]:
    if not text.strip():
        raise ValueError("no path given: name the file to read")
    return {"config": Path(_without_nul(text))}


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path holds no NUL character: give the name of a file")
    return text


def _always_validate(text: str) -> str:
    """TransferBench: below 0 never, 0 after all iterations, above 0 after each."""
    try:
        level = int(text)
    except ValueError:
        raise ValueError("use -1 (off), 0 (at the end) or 1 (each)") from None
    return "end" if level == 0 else "each" if level > 0 else "off"


OPTIONS = (
    Option(
        "gpus", "LIST", "every GPU, if there is any", "GPUs to use, by index in the visible set, such as 0,1; or all",
        _gpus, short="--gpus",
    ),
    Option(
        "sizes", "SIZES",
        "4M,64M,256M; emulated 1M,4M,16M; host only 1M,16M,64M; messages 8 to 128M, emulated 8,1K,64K,1M",
        "bytes to move: a list of sizes and ranges, such as 4M,64M or 8M..512M or 1K..512M:4",
        lambda text: {"sizes": parse_sizes(text)}, short="--sizes", mark="sizes",
    ),
    Option(
        "executors", "LIST", ",".join(DEFAULT_EXECUTORS),
        "who moves the bytes, by word or letter: " + ", ".join(f"{row.word} ({row.letter})" for row in EXECUTORS),
        _executors, short="--executors", mark="executors",
    ),
    Option(
        "ops", "LIST", ",".join(DEFAULT_OPS), "kinds of Transfer: " + ", ".join(OPS),
        lambda text: {"ops": _words(text, "op", OPS)}, short="--ops", mark="ops",
    ),
    Option(
        "emulate", "MODEL", "none", "run on an emulated node: the name of a node model, or a .toml file", _emulate
    ),
    Option(
        "runtime", "NAME", "auto: a ROCm device, else a CUDA device, else the host alone",
        f"GPU runtime: {', '.join(RUNTIMES)}", lambda text: _choice(text, "runtime", RUNTIMES),
    ),
    Option(
        "rotate", "BYTES", "auto: the larger of 256M and twice the larger last-level cache of the two ends",
        "memory over which a source in GPU memory that a GPU reads rotates, so that no cache holds it; less "
        "than twice the caches does not count as rotation; 0 turns it off",
        _rotate, environment="SRC_ROTATE_BYTES", mark="rotate",
    ),
    Option(
        "samples", "N", "25; emulated 1",
        "timed samples of the steady figure; the cold and warm ones have as many, but at most 9",
        lambda text: _count(text, "samples", 1), environment="NUM_ITERATIONS", mark="samples",
    ),
    Option(
        "sub_iterations", "N", "1", "passes over the bytes inside one copy",
        lambda text: _count(text, "sub_iterations", 1), environment="NUM_SUBITERATIONS", mark="sub_iterations",
    ),
    Option(
        "warmups", "N", "3; messages 10; emulated 1",
        "least number of untimed copies before a sample, and of untimed messages before the timed ones",
        lambda text: _count(text, "warmups", 0), environment="NUM_WARMUPS", mark="warmups",
    ),
    Option(
        "subexecutors", "COUNTS", "0: chosen for the architecture",
        "blocks of a gfx kernel, pieces of a batch: a case for each of 1,2,4 or 1..32 or 1..32:2; or best: a kernel's "
        "number is searched for and named", _subexecutors, environment="NUM_GPU_SE", mark="subexecutors",
    ),
    Option(
        "block_threads", "COUNTS", "0: chosen for the architecture",
        f"threads of a gfx kernel's block, multiples of {THREADS_STEP} up to {MAX_BLOCK_THREADS}, a case for each",
        lambda text: _counts(text, "block_threads", check_block_threads), environment="GFX_BLOCK_SIZE",
        mark="block_threads",
    ),
    Option(
        "unroll", "COUNTS", "0: chosen for the architecture",
        f"16-byte loads that a thread of a gfx kernel keeps in flight, 1 to {MAX_UNROLL}, a case for each",
        lambda text: _counts(text, "unroll", check_unroll), environment="GFX_UNROLL", mark="unroll",
    ),
    Option(
        "local_copies", "yes|no", "no", "copy within the first GPU, too, where a suite leaves that to choice: local in "
        "its pairs", lambda text: _flag(text, "local_copies"), environment="LOCAL_COPY", translate=_yes_no, flag=True,
    ),
    Option(
        "offset", "BYTES", "0", "bytes that every buffer starts after its allocation, a multiple of 4", _offset,
        environment="BYTE_OFFSET", mark="offset",
    ),
    Option(
        "validate", "WHEN", "end", "look at every word of the data at the end, after each sample, or not at all: "
        "end, each, off", lambda text: _choice(text, "validate", ("end", "each", "off")),
        environment="ALWAYS_VALIDATE", translate=_always_validate, mark="validate",
    ),
    Option(
        "warm_cold", "RATIO", "1.15; 1.35 where nothing rotates, or less than caches hold",
        "warm over cold bandwidth above which a pull is CONTAMINATED", _limit, mark="warm_cold",
    ),
    Option(
        "all_pairs", "yes|no", "no", "run every pair even above 5000 cases", lambda text: _flag(text, "all_pairs"),
        flag=True,
    ),
    Option(
        "config", "FILE", "none", "TransferBench's configuration file, one item a line, for suites/test_config.py and "
        'functions marked pairs="config"; in an ini file, its path begins there', _config, mark="config",
        beside_ini=True,
    ),
    Option(
        "ll_protocols", "LIST", "all",
        "LL flag protocols that carry messages: all, ll, and ll64, ll128 or ll256, alone or with -sc, -sc+wb or -tf",
        lambda text: {"ll_protocols": protocols(text)}, mark="protocols",
    ),
    Option(
        "ll_iterations", "N", "100; emulated 3", "timed messages, one after the other",
        lambda text: _count(text, "ll_iterations", 1), mark="iterations",
    ),
    Option(
        "ll_blocks", "N", "64, as RCCL's llx_latency_bench", "most blocks that send a message, and as many receive it",
        lambda text: _count(text, "ll_blocks", 1), mark="ll_blocks",
    ),
    Option(
        "ll_timeout", "SECONDS", "30", "longest that a kernel waits for a flag or an ACK before it is a TIMEOUT",
        _timeout, mark="timeout",
    ),
    Option(
        "ll_memory", "KIND", "uncached on AMD, coarse on NVIDIA",
        "memory of the ring that flags are polled in, and of the ACK: " + ", ".join(RING_KINDS),
        _ring_memory, mark="ring_memory",
    ),
    Option(
        "ll_loopback", "yes|no", "no", "send messages within one GPU, too", lambda text: _flag(text, "ll_loopback"),
        flag=True, mark="loopback",
    ),
    Option(
        "journal", "PATH", "transferbench/<time>.jsonl in pytest's cache",
        "file for the results, one JSON line an item", _journal,
    ),
)  # fmt: skip

MARK_ONLY = {
    "pairs": "which ends: gpu (GPU pairs and GPUs with themselves, the default), host, all, or a list such as "
    "G0-G1,C0-G0 (source-destination); peers, or peers-G0 and G0-peers in a list: one GPU with all the others at the "
    "same time; first and second in a list stand for the first two GPUs selected; config: the lines of a configuration "
    "file, and the default where the keyword config names one. In a list each is every GPU selected; itself, next "
    "and others are seen from the GPU at the other end (each-next, first-others; others is the next one alone where "
    "--gpus names none); + joins memories of one end (first-itself+next); local is the first GPU with itself where "
    "--transfer-local-copies asks for it",
    "messages": "one-way or ping-pong: the argument transfer is a Message, sent by LL flag protocols between the GPUs "
    "of every pair; ops, executors, subexecutors, samples, sub_iterations, rotate, offset and warm_cold do not matter "
    "then",
    "control": "True for a case that shows an artefact on purpose: it is measured and never judged or a baseline",
    "variant": "a word at the end of the ids, to tell two functions' cases of one Transfer apart",
    "floor_gbps": "bandwidth in GB/s (1e9 bytes a second) below which the item fails as SLOW",
    "table": f"shape of these items in the summary: {', '.join(TABLES)}; a source x destination matrix without it",
    "defaults": "a dict of keywords that options have, with values for where neither command line, environment nor "
    "ini file gives any",
    "emulated_defaults": "the same, before defaults, on an emulated node",
}
"""Keywords of ``@pytest.mark.transferbench`` that no option has, and what they mean."""

EQUIVALENTS = {
    "BLOCK_ORDER": "none",
    "BLOCKSIZES": "--transfer-block-threads",
    "BLOCK_BYTES": "none: chosen for the architecture",
    "COMBINE_TIMING": "none: timing is always event, kernel and host clock",
    "CONTINUE_ON_ERROR": "pytest -x stops at the first failure; without it the run goes on",
    "CU_MASK": "none",
    "EXE_INDEX": "--gpus: a suite that has one home takes the first",
    "FILL_COMPRESS": "the data argument of transferbench(...)",
    "FILL_PATTERN": "the data argument of transferbench(...)",
    "GFX_BLOCK_ORDER": "none",
    "GPU_KERNEL": "none: there is one copy kernel",
    "HIDE_ENV": "pytest -q",
    "NUM_CPU_DEVICES": "none",
    "NUM_CPU_PER_TRANSFER": "none: subexecutors of a cpu Transfer, as in (C0->C0->C0 4 64M)",
    "NUM_CPU_SE": "none: subexecutors of a cpu Transfer, as in (C0->C0->C0 4 64M)",
    "MAX_VAR_SUBEXEC": "none: --transfer-subexecutors=best tries up to all compute units",
    "MIN_VAR_SUBEXEC": "none: --transfer-subexecutors=best begins with 1",
    "NUM_GPU_DEVICES": "--gpus",
    "NUM_SUB_EXECS": "--transfer-subexecutors",
    "OUTPUT_TO_CSV": "--junitxml, or --transfer-journal for JSON lines",
    "P2P_MODE": "none: pairs run in one direction at a time",
    "SAMPLING_FACTOR": "--sizes=START..END:FACTOR",
    "SHOW_ITERATIONS": "--transfer-journal keeps every sample",
    "SHOW_PERCENTILES": "--transfer-journal keeps every sample",
    "SIZE_LIST": "--sizes",
    "SWEEP_MAX": "--transfer-subexecutors=1..32",
    "SWEEP_MIN": "--transfer-subexecutors=1..32",
    "UNROLLS": "--transfer-unroll",
    "USE_FINE_GRAIN": 'memory letter F, as in pairs="F0-G1"',
    "USE_GPU_DMA": "--executors=dma",
    "USE_HIP_CALL": "--executors=dma",
    "USE_HIP_EVENTS": "none: event, kernel and host clock are always kept",
    "USE_INTERACTIVE": "pytest --pdb",
    "USE_MEMSET": "a Transfer from null memory, as in N->G0->G1",
    "USE_PCIE_INDEX": "none: indices are the runtime's, PCI ids are printed beside them",
    "USE_PREP_KERNEL": "none: sources are always filled by a kernel",
    "USE_REMOTE_READ": "--ops=pull for 1, --ops=push for 0",
    "USE_SINGLE_STREAM": "none: one stream a device",
    "USE_SINGLE_SYNC": "none: one synchronisation a sample",
    "VALIDATE_DIRECT": "none: data is validated on the device",
    "VALIDATE_SOURCE": "none: the source is checked by its checksum",
}
"""TransferBench's own names, today's and retired ones, that are not honoured here, with what does the same."""


def resolve(
    command_line: Mapping[str, str | None],
    environment: Mapping[str, str],
    ini: Mapping[str, str | None],
    short_forms_taken: Collection[str] = (),
) -> Settings:
    """Return the settings; each mapping holds the text given there, the first and the last by :attr:`Option.name`.

    ``short_forms_taken`` are spellings that mean something else in this run: no message then uses them. Raises
    ``ValueError`` in one line that says which text, given where, is refused, and what is allowed.
    """
    fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for row in OPTIONS:
        given = (
            (row.spelling(short_forms_taken), command_line.get(row.name), str),
            (row.environment or "", environment.get(row.environment or "") or None, row.translate),
            (row.ini, ini.get(row.name), str),
        )
        for where, text, translate in given:
            if text is None:
                continue
            try:
                fields.update(row.parse(translate(text)))
            except ValueError as error:
                raise ValueError(f"{where}={one_line(text)}: {error}") from None
            sources[row.name] = where
            break
    settings = Settings(**fields, sources=sources)
    if settings.emulate and settings.runtime not in ("auto", "emulator"):
        raise ValueError(
            f"{sources['emulate']}={one_line(settings.emulate)} needs the emulator, but "
            f"{sources['runtime']}={settings.runtime} was asked for too: give one of the two"
        )
    return dataclasses.replace(settings, runtime="emulator") if settings.emulate else settings


def one_line(text: str) -> str:
    """Return ``text`` as it was given, or so that a message stays one readable line."""
    return shortened(text if text.isprintable() else repr(text))


def with_mark(settings: Settings, keywords: Mapping[str, object]) -> Settings:
    """Return ``settings`` with the keywords of ``@pytest.mark.transferbench`` in the place of what was there.

    Keywords of :data:`MARK_ONLY` are left to the caller. Raises ``ValueError`` in one line for an unknown keyword
    and for a value that its option would refuse.
    """
    rows = {row.mark: row for row in OPTIONS if row.mark}
    fields: dict[str, Any] = {}
    sources = dict(settings.sources)
    for keyword, value in keywords.items():
        if keyword in MARK_ONLY:
            continue
        if keyword not in rows:
            allowed = ", ".join(sorted([*rows, *MARK_ONLY]))
            raise ValueError(f"@pytest.mark.transferbench has no keyword {shown(keyword)}: use {allowed}")
        text = mark_text(keyword, value)
        try:
            fields.update(rows[keyword].parse(text))
        except ValueError as error:
            raise ValueError(f"@pytest.mark.transferbench({keyword}={shown(value)}): {error}") from None
        sources[rows[keyword].name] = MARK
    return dataclasses.replace(settings, **fields, sources=sources)


def with_defaults(settings: Settings, given: object, keyword: str) -> Settings:
    """Return ``settings`` with what a mark's ``defaults`` say where nothing else was given.

    Raises ``ValueError`` in one line for what is no dict, an unknown keyword and a value that its option would refuse.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"@pytest.mark.transferbench({keyword}={shown(given)}): give a dict, such as dict(sizes='4M')")
    rows = {row.mark: row.name for row in OPTIONS if row.mark}
    unknown = next((name for name in given if name not in rows), None)
    if unknown is not None:
        raise ValueError(
            f"@pytest.mark.transferbench({keyword}=...) has no keyword {shown(unknown)}: use {', '.join(sorted(rows))}"
        )
    left_open = {name: value for name, value in given.items() if not settings.given(rows[name])}
    settings = with_mark(settings, left_open)
    sources = {**settings.sources, **{rows[name]: MARK_DEFAULT for name in left_open}}
    return dataclasses.replace(settings, sources=sources)


def mark_text(keyword: str, value: object) -> str:
    """Return a mark's value as the text an option would have: lists are joined by commas.

    Raises ``ValueError`` in one line for None, whose text would be taken for one.
    """
    if value is None:
        raise ValueError(f"@pytest.mark.transferbench({keyword}=None): give a value, or leave {keyword} out")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def environment_lines(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """Return the header's lines about TransferBench's environment names: those used, and those that do nothing."""
    used = [
        f"{row.environment}={environment[row.environment]}"
        for row in OPTIONS
        if row.environment and settings.sources.get(row.name) == row.environment
    ]
    lines = [f"from the environment: {' '.join(used)}"] if used else []
    lines += [
        f"{name} is not honoured; today's equivalent: {EQUIVALENTS[name]}"
        for name in sorted(EQUIVALENTS)
        if environment.get(name)
    ]
    return lines


# What pytest has to know.

_INI_TYPE: Any = str | int | float if pytest.version_tuple >= (9, 2) else "string"
"""Numbers may stand in a native TOML table as such where pytest can be told so; lists it takes beside no other type."""

_TAKEN = pytest.StashKey[tuple[str, ...]]()


def add_options(parser: pytest.Parser) -> None:
    """Register every ``--transfer-*`` option and ini name."""
    group = _group(parser)
    for row in OPTIONS:
        _add(group, row, row.option, row.describe())
        if row.flag:
            parser.addini(row.ini, f"as {row.option}", type="bool", default=None)
        else:
            parser.addini(row.ini, f"as {row.option}", type=_INI_TYPE, default=None)


def add_short_forms(parser: pytest.Parser, config: pytest.Config) -> None:
    """Register the short forms that nobody else has taken.

    To be called when all other plugins and the initial conftests have registered theirs.
    """
    group = _group(parser)
    taken: list[str] = []
    for row in OPTIONS:
        if row.short:
            try:
                _add(group, row, row.short, f"same as {row.option}")
            except (ValueError, argparse.ArgumentError):  # pytest's, or argparse's, for a name already registered
                taken.append(row.short)
    config.stash[_TAKEN] = tuple(taken)


def short_forms_taken(config: pytest.Config) -> tuple[str, ...]:
    """Return our short forms that mean something else in this run."""
    none: tuple[str, ...] = ()
    return config.stash.get(_TAKEN, none)


def asked_on_command_line(config: pytest.Config) -> tuple[str, ...]:
    """Return the options of ours that the command line sets, in their table's order."""
    taken = short_forms_taken(config)
    return tuple(row.spelling(taken) for row in OPTIONS if _on_command_line(config, row) is not None)


def asked(config: pytest.Config) -> bool:
    """Tell whether the command line or the ini file sets anything of ours."""
    return bool(asked_on_command_line(config)) or any(_in_ini(config, row) is not None for row in OPTIONS)


def settings_of(config: pytest.Config, environment: Mapping[str, str]) -> Settings:
    """Return the settings of a pytest run; raises ``ValueError`` in one line, see :func:`resolve`."""
    return resolve(
        {row.name: _on_command_line(config, row) for row in OPTIONS},
        environment,
        {row.name: _in_ini(config, row) for row in OPTIONS},
        short_forms_taken(config),
    )


def _group(parser: pytest.Parser) -> Any:
    return parser.getgroup("transferbench", "GPU data-transfer benchmarks")


def _add(group: Any, row: Option, spelling: str, text: str) -> None:
    # No argparse type: what it raises is printed with the whole usage around it, and a refusal is one line here.
    how = {"action": "store_const", "const": "yes"} if row.flag else {"metavar": row.metavar}
    group.addoption(spelling, dest=row.ini, default=None, help=text.replace("%", "%%"), **how)


def _on_command_line(config: pytest.Config, row: Option) -> str | None:
    value: str | None = getattr(config.option, row.ini, None)
    return value


def _in_ini(config: pytest.Config, row: Option) -> str | None:
    try:
        value = config.getini(row.ini)
    except (TypeError, ValueError, pytest.UsageError) as error:
        # pytest names the option for a wrong type, but not for a text that is no truth value.
        where = "" if row.ini in str(error) else f"{row.ini} in the ini file: "
        use = ": use true or false" if row.flag else f"; give it as one text, as after {row.option}="
        raise pytest.UsageError(f"{where}{error}{use}") from None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if row.beside_ini and value and config.inipath:
        return str(config.inipath.parent / str(value))
    return None if value is None else str(value)


# The reference page.


def options_page() -> str:
    """Return ``docs/options.md``: every option under every name it goes by."""
    rows = [
        ("option", "short", "ini", "environment", "mark", "default", "meaning"),
        *(
            (
                f"`{row.option}{'' if row.flag else '=' + row.metavar}`",
                _code(row.short),
                _code(row.ini),
                _code(row.environment),
                _code(row.mark),
                row.default,
                row.help,
            )
            for row in OPTIONS
        ),
    ]
    marks = [("mark", "meaning"), *((f"`{name}`", meaning) for name, meaning in MARK_ONLY.items())]
    names = [
        ("TransferBench's name", "today's equivalent"),
        *((f"`{name}`", EQUIVALENTS[name]) for name in EQUIVALENTS),
    ]
    return "\n".join(
        [
            "# Options",
            "",
            "Made from the table in `pytest_transferbench/options.py` by `python -m pytest_transferbench.options`.",
            "",
            "The nearest source wins: mark, command line, environment, ini file, default. A short form gives way when"
            " another plugin or a conftest has taken it; the header then says so and the long form does the same.",
            "",
            'An ini value is a text, lists included: `transfer_sizes = "64K,1M"`. In a native `[tool.pytest]` table a'
            " number may stand as such from pytest 9.2 on: `transfer_samples = 3`.",
            "",
            *_table(rows),
            "",
            "Keywords of `@pytest.mark.transferbench(...)` that are not options; Transfers, Tests or their notation, "
            'such as `"G1->G0->G0"`, are given before them:',
            "",
            *_table(marks),
            "",
            "Environment names of TransferBench that are not honoured; one that is set gets a line in the header:",
            "",
            *_table(names),
            "",
        ]
    )


def _code(name: str | None) -> str:
    return f"`{name}`" if name else ""


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    columns = lines[0].count(" | ") + 1
    return [lines[0], "|" + " --- |" * columns, *lines[1:]]


if __name__ == "__main__":
    print(options_page(), end="")

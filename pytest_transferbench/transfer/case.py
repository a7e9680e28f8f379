"""A case: a Transfer, a Test or a Message, and how it is to be measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_transferbench.transfer.message import Message
from pytest_transferbench.transfer.sizes import shown, whole
from pytest_transferbench.transfer.test import TransferOrTest

NOMINAL_GBPS: Mapping[str, int] = {
    "local": 1500,
    "on-die": 1000,
    "xGMI": 50,
    "NVLink": 400,
    "PCIe": 50,
    "UALoE": 800,
    "host": 50,
}
"""About what a link class carries one way, in GB/s. It only sizes samples: it is never a ceiling or a floor."""

LONGEST_WAIT_SECONDS = 86400
"""No wait is worth more than a day."""

THREADS_STEP, MAX_BLOCK_THREADS = 64, 1024
MAX_UNROLL = 32
"""TransferBench's bounds of GFX_BLOCK_SIZE and GFX_UNROLL."""

MIN_COPIES = 4
MAX_COPIES = 250
"""With the gate, stamps and events a stream then holds at most 256 operations."""
VIRTUAL_MIN_COPIES, VIRTUAL_MAX_COPIES = 2, 16
VIRTUAL_SAMPLE_BYTES = 2 << 30


def copies_per_sample(nbytes: int, link_class: str, *, virtual_clock: bool = False) -> int:
    """Return how many copies of ``nbytes`` bytes one sample holds: about 1 ms of them, 4 to 250.

    A pure function, so that every process measures alike and the count can be part of the digest. A virtual clock
    has no noise to average, while its copies are really made, by a CPU: there a sample holds about 2 GiB, 2 to 16
    copies, enough for its first copy, which hides nothing behind another, not to weigh much. Raises ``ValueError``
    for a size below 1 and for a link class that :data:`NOMINAL_GBPS` does not know.
    """
    if nbytes < 1:
        raise ValueError(f"bad size {nbytes}: a copy has at least 1 byte")
    if link_class not in NOMINAL_GBPS:
        raise ValueError(f"unknown link class {shown(link_class)}: use {', '.join(NOMINAL_GBPS)}")
    if virtual_clock:
        return min(VIRTUAL_MAX_COPIES, max(VIRTUAL_MIN_COPIES, -(-VIRTUAL_SAMPLE_BYTES // nbytes)))
    bytes_per_millisecond = NOMINAL_GBPS[link_class] * 10**6
    return min(MAX_COPIES, max(MIN_COPIES, -(-bytes_per_millisecond // nbytes)))


@dataclass(frozen=True, slots=True)
class Case:
    """One Transfer or Test and how to measure it: what one test item runs.

    ``samples`` are timed; a copy passes ``sub_iterations`` times over the bytes inside one launch or call;
    ``warmups`` is the least number of untimed copies. ``rotate_bytes`` is the rotation budget in bytes, ``None``
    chosen by the caches, 0 off; ``byte_offset`` moves every buffer's start. ``validate`` looks at the data at the
    ``end``, after ``each`` sample, or not at all (``off``). ``floor_gbps`` and ``warm_cold_limit`` replace the limits
    of the judge; ``floor_source`` says in words where the floor comes from. A ``control`` shows an artefact on purpose
    and never becomes a baseline. ``block_threads`` and ``unroll`` shape a kernel: threads of a block, and 16-byte loads
    that each keeps in flight; 0 leaves them to the architecture. With ``best`` the number of SubExecutors is searched
    for first. Raises ``ValueError`` in one line.
    """

    transfer: TransferOrTest
    samples: int = 25
    sub_iterations: int = 1
    warmups: int = 3
    rotate_bytes: int | None = None
    byte_offset: int = 0
    validate: str = "end"
    variant: str = ""
    floor_gbps: float | None = None
    warm_cold_limit: float | None = None
    control: bool = False
    block_threads: int = 0
    unroll: int = 0
    best: bool = False
    floor_source: str = ""

    def __post_init__(self) -> None:
        for name, least in (("samples", 1), ("sub_iterations", 1), ("warmups", 0), ("byte_offset", 0)):
            _check_count(self, name, least)
        if self.byte_offset % 4:
            raise ValueError(f"bad byte_offset {self.byte_offset}: use a multiple of 4")
        for name, check in (("block_threads", check_block_threads), ("unroll", check_unroll)):
            _check_count(self, name, 0)
            check(getattr(self, name))
        if self.best and not can_be_searched(self.transfer):
            raise ValueError(
                f"best of {self.transfer.notation()}: the best number of SubExecutors is searched for where all is gfx "
                "and leaves it open (0)"
            )
        if self.rotate_bytes is not None:
            _check_count(self, "rotate_bytes", 0, "0 (off) or more, or None to let the caches decide")
        _check_judging(self.validate, floor_gbps=self.floor_gbps, warm_cold_limit=self.warm_cold_limit)
        if self.variant != "":
            self.transfer.case_name(self.variant)  # refuses one that makes no name

    @property
    def name(self) -> str:
        """The case's id: :meth:`Transfer.case_name` with a kernel's shape, ``b512-u8``, ``best``, and this variant."""
        if not (self.block_threads or self.unroll or self.best):
            return self.transfer.case_name(self.variant)
        shape = [f"{letter}{count}" for letter, count in (("b", self.block_threads), ("u", self.unroll)) if count]
        return self.transfer.case_name(
            "-".join([*shape, *(["best"] if self.best else []), *filter(None, [self.variant])])
        )


@dataclass(frozen=True, slots=True)
class MessageCase:
    """One Message and how to measure it: what one test item runs.

    ``samples`` iterations are timed, after ``warmups``. ``most_blocks`` caps the blocks of each side.
    ``ring_kind`` is the letter of the memory that ring and ACK lie in: ``U`` uncached, ``F`` fine-grained, ``G``
    plain, empty for what suits the GPU. No wait inside a kernel takes longer than ``timeout_seconds``. ``validate``
    compares every word of a message before the timed ones (``end``), of each timed one (``each``), or none
    (``off``). Raises ``ValueError`` in one line.
    """

    transfer: Message
    samples: int = 100
    warmups: int = 10
    most_blocks: int = 64
    ring_kind: str = ""
    timeout_seconds: float = 30.0
    validate: str = "end"
    variant: str = ""
    floor_gbps: float | None = None
    control: bool = False

    def __post_init__(self) -> None:
        for name, least in (("samples", 1), ("warmups", 0), ("most_blocks", 1)):
            _check_count(self, name, least)
        seconds = self.timeout_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_WAIT_SECONDS:
            raise ValueError(
                f"bad timeout_seconds {shown(seconds)}: use a number above 0, at most {LONGEST_WAIT_SECONDS}"
            )
        if self.ring_kind not in ("", "U", "F", "G"):
            raise ValueError(f"bad ring_kind {shown(self.ring_kind)}: use U, F or G, or nothing to leave it to the GPU")
        _check_judging(self.validate, floor_gbps=self.floor_gbps)
        if self.variant != "":
            self.transfer.case_name(self.variant)  # refuses one that makes no name

    @property
    def name(self) -> str:
        """The case's id: :meth:`Message.case_name` with this variant."""
        return self.transfer.case_name(self.variant)

    @property
    def blocks(self) -> int:
        """Blocks of each side."""
        return self.transfer.protocol.blocks(self.transfer.nbytes, self.most_blocks)


def can_be_searched(transfer: TransferOrTest) -> bool:
    """Tell whether the best number of SubExecutors of ``transfer`` can be searched for."""
    return all(each.executor.kind == "G" and not each.subexecutors for each in transfer.transfers)


def candidate_subexecutors(most: int) -> tuple[int, ...]:
    """Return the numbers of SubExecutors that a search tries: two in every doubling, and ``most``."""
    powers = [1 << shift for shift in range(most.bit_length())]
    tried = {most, *powers, *(3 * power // 2 for power in powers[1:])}
    return tuple(sorted(count for count in tried if count <= most))


def check_block_threads(count: int) -> None:
    """Raise ``ValueError`` in one line for threads that no block may have; 0 is the architecture's own."""
    if count % THREADS_STEP or not 0 <= count <= MAX_BLOCK_THREADS:
        raise ValueError(
            f"bad block_threads {count}: use a multiple of {THREADS_STEP} up to {MAX_BLOCK_THREADS}, or 0 (chosen)"
        )


def check_unroll(count: int) -> None:
    """Raise ``ValueError`` in one line for more loads in flight than a thread keeps; 0 is the architecture's own."""
    if not 0 <= count <= MAX_UNROLL:
        raise ValueError(f"bad unroll {count}: use 1 to {MAX_UNROLL}, or 0 (chosen)")


AnyCase = Case | MessageCase
"""What one test item runs."""


def _check_count(case: object, name: str, least: int, allowed: str = "") -> None:
    """Refuse what is no whole number from ``least`` on; put a plain one in the place of another library's."""
    given = getattr(case, name)
    count = whole(given)
    if count is None or count < least:
        raise ValueError(f"bad {name} {shown(given)}: use {allowed or f'{least} or more'}")
    object.__setattr__(case, name, count)


def _check_judging(validate: str, **limits: float | None) -> None:
    if validate not in ("end", "each", "off"):
        raise ValueError(f"bad validate {shown(validate)}: use end, each or off")
    for name, limit in limits.items():
        if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
            raise ValueError(f"bad {name} {shown(limit)}: use a positive number")

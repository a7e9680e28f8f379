"""One Transfer as text, in TransferBench's order: source, executor, destination, and perhaps SubExecutors and bytes."""

from __future__ import annotations

import re

from pytest_transferbench.transfer.letters import executor_kind, memory_kind
from pytest_transferbench.transfer.sizes import parse_size
from pytest_transferbench.transfer.transfer import Executor, Memory, Transfer

_PLACE = re.compile(r"([A-Za-z]+)([0-9]{0,4})")
_COUNT = re.compile(r"[0-9]{1,6}")
_BRACKETED = re.compile(r"\((.*)\)|([^()]*)", re.DOTALL)
_FORM = "write SRC->EXE->DST or (SRC->EXE->DST subexecutors bytes), such as G1->G0->G0 or (G1->G0->G0 8 64M)"


def parse_transfer(text: str, nbytes: int | None = None, subexecutors: int = 0) -> Transfer:
    """Return the Transfer that ``text`` names: ``G1->G0->G0``, ``G1 gfx0 G0``, ``(G1->G0->G0 8 64M)``.

    Arrows and blanks separate alike; letters and words are read in either case. ``nbytes`` and ``subexecutors`` serve
    where the text gives none; bytes written as 0 mean ``nbytes``, as in TransferBench. Raises ``ValueError`` in one
    line that names the first token that cannot be read.
    """
    tokens = _tokens(text)
    source, executor = parse_memory(tokens[0]), parse_executor(tokens[1])
    destination = parse_memory(tokens[2])
    if len(tokens) == 5:
        subexecutors = _count(tokens[3])
        nbytes = parse_size(tokens[4]) or nbytes
    if nbytes is None:
        raise ValueError(f"no size in {text!r}: {_FORM}")
    return Transfer((source,), executor, (destination,), nbytes, subexecutors)


def parse_memory(text: str) -> Memory:
    """Return the memory called ``text``, such as ``G0``, ``device0`` or ``N``; raises ``ValueError`` naming it."""
    name, index = _place(text, "memory", "G0 or C0")
    try:
        kind = memory_kind(name)
    except ValueError as error:
        raise ValueError(f"bad memory {text!r}: {error}") from None
    if kind.on == "none":
        return Memory(kind.letter)  # an index after N means nothing, as in TransferBench
    if not index:
        raise ValueError(f"bad memory {text!r}: an index is missing, such as {text}0")
    return Memory(kind.letter, int(index))


def parse_executor(text: str) -> Executor:
    """Return the executor called ``text``, such as ``G0`` or ``gfx0``; raises ``ValueError`` naming it."""
    name, index = _place(text, "executor", "G0 or dma1")
    try:
        kind = executor_kind(name)
    except ValueError as error:
        raise ValueError(f"bad executor {text!r}: {error}") from None
    if not index:
        raise ValueError(f"bad executor {text!r}: an index is missing, such as {text}0")
    return Executor(kind.letter, int(index))


def _tokens(text: str) -> list[str]:
    bracketed = _BRACKETED.fullmatch(text.strip())
    if bracketed is None:
        raise ValueError(f"bad Transfer {text!r}: its brackets do not match; {_FORM}")
    tokens = (bracketed[1] or bracketed[2] or "").replace("->", " ").split()
    if len(tokens) not in (3, 5):
        raise ValueError(f"bad Transfer {text!r}: it has {len(tokens)} parts, not 3 or 5; {_FORM}")
    return tokens


def _place(text: str, what: str, example: str) -> tuple[str, str]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError(f"bad {what} {text!r}: write a letter or word and an index, such as {example}")
    return match[1], match[2]


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError(f"bad subexecutors {text!r}: write a whole number, 0 to let the engine choose")
    return int(text)

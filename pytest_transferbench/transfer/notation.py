"""Transfers as text, in TransferBench's order: source, executor, destination, perhaps SubExecutors and bytes."""

from __future__ import annotations

import re

from pytest_transferbench.transfer.ends import parse_executor, parse_memory
from pytest_transferbench.transfer.sizes import parse_size, shown
from pytest_transferbench.transfer.transfer import Transfer

_COUNT = re.compile(r"[0-9]{1,6}")
_SEVERAL = re.compile(r"(\s*\([^()]*\)\s*){2,}")
_BRACKETED = re.compile(r"\(([^()]*)\)|([^()]*)")
_FORM = "write SRC->EXE->DST or (SRC->EXE->DST subexecutors bytes), such as G1->G0->G0 or (G1->G0->G0 8 64M)"


def parse_transfer(text: str, nbytes: int | None = None, subexecutors: int = 0) -> Transfer:
    """Return the Transfer that ``text`` names: ``G1->G0->G0``, ``G1 gfx0 G0``, ``(G1->G0->G0 8 64M)``.

    Arrows and blanks separate alike; letters and words are read in either case. ``nbytes`` and ``subexecutors`` serve
    where the text gives none; bytes written as 0 mean ``nbytes``, as in TransferBench. Raises ``ValueError`` in one
    line that names the first token that cannot be read, and for a Transfer that cannot be run.
    """
    if not isinstance(text, str):
        raise ValueError(f"bad Transfer {shown(text)}: {_FORM}")
    bracketed = _BRACKETED.fullmatch(text.strip())
    if bracketed is None:
        raise ValueError(f"bad Transfer {shown(text)}: one pair of brackets, if any, goes around all of it; {_FORM}")
    tokens = (bracketed[1] or bracketed[2] or "").replace("->", " ").split()
    if len(tokens) not in (3, 5):
        raise ValueError(f"bad Transfer {shown(text)}: it has {len(tokens)} parts, not 3 or 5; {_FORM}")
    source, executor, destination = parse_memory(tokens[0]), parse_executor(tokens[1]), parse_memory(tokens[2])
    if len(tokens) == 5:
        subexecutors = _count(tokens[3])
        nbytes = parse_size(tokens[4]) or nbytes
    if nbytes is None:
        raise ValueError(f"no bytes in Transfer {shown(text)}, and no size to use instead; {_FORM}")
    return Transfer((source,), executor, (destination,), nbytes, subexecutors)


def parse_transfers(text: str, nbytes: int | None = None, subexecutors: int = 0) -> tuple[Transfer, ...]:
    """Return the Transfers that ``text`` names: one as :func:`parse_transfer` reads it, or several, a bracket each.

    ``(G1->G0->G0 8 64M) (G2->G0->G0 8 64M)`` are two. Raises ``ValueError`` as :func:`parse_transfer` does.
    """
    several = isinstance(text, str) and _SEVERAL.fullmatch(text)
    single = [f"({part})" for part in re.findall(r"\(([^()]*)\)", text)] if several else [text]
    return tuple(parse_transfer(part, nbytes, subexecutors) for part in single)


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError(
            f"bad subexecutors {shown(text)}: write a whole number up to 999999, 0 to let the engine choose"
        )
    return int(text)

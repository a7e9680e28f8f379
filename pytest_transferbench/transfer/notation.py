"""Transfers as text, in TransferBench's order: source, executor, destination, perhaps SubExecutors and bytes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence

from pytest_transferbench.transfer.ends import Places, executors_named, memories_named
from pytest_transferbench.transfer.sizes import parse_size, shown
from pytest_transferbench.transfer.transfer import Transfer

MOST_TRANSFERS = 4096
"""The most Transfers that one line may stand for."""

_COUNT = re.compile(r"[0-9]{1,6}")
_SEVERAL = re.compile(r"(\s*\([^()]*\)\s*){2,}")
_BRACKETED = re.compile(r"\(([^()]*)\)|([^()]*)")
_LINE = re.compile(r"\s*(-?)([0-9]+)(?![^\s():>-])(.*)", re.DOTALL)
_SIGNED = re.compile(r"(?:^|[\s(])(-[0-9][^\s()]*)")
_DECORATION = str.maketrans("()->:", "     ")
_FORM = "write SRC->EXE->DST or (SRC->EXE->DST subexecutors bytes), such as G1->G0->G0 or (G1->G0->G0 8 64M)"
_LINE_FORM = "write 2 8 (G0->G0->G1) (G1->G1->G0), or -2 (G0->G0->G1 8 64M) (G1->G1->G0 4 1M)"


def parse_transfer(
    text: str, nbytes: int | None = None, subexecutors: int = 0, places: Places | None = None
) -> Transfer:
    """Return the one Transfer that ``text`` names, as :func:`parse_transfers` reads it; ``ValueError`` for several."""
    transfers = parse_transfers(text, nbytes, subexecutors, places)
    if len(transfers) > 1:
        raise ValueError(f"bad Transfer {shown(text)}: it names {len(transfers)} Transfers, give one")
    return transfers[0]


def parse_transfers(
    text: str, nbytes: int | None = None, subexecutors: int = 0, places: Places | None = None
) -> tuple[Transfer, ...]:
    """Return the Transfers that ``text`` names.

    That is one, ``G1->G0->G0``, ``G1 gfx0 G0`` or ``(G1->G0->G0 8 64M)``; several, a bracket each; or a line of
    TransferBench's, ``2 8 (G0->G0->G1) (G1->G1->G0)`` with its number of Transfers and their SubExecutors, or
    ``-2 (G0->G0->G1 8 64M) (G1->G1->G0 4 1M)`` with both of each. Arrows and blanks separate alike; letters and words
    are read in either case; what stands behind ``#`` is a comment. Memories are written back to back, ``G0G1``; a
    wildcard, ``*``, ``[0,2,5]`` or ``[1..3]``, in the place of an index or a sub-index makes one Transfer of every
    combination, and ``*`` needs ``places``. ``nbytes`` and ``subexecutors`` serve where the text gives none; bytes
    written as 0 mean ``nbytes``, as in TransferBench. Raises ``ValueError`` in one line that names the first token
    that cannot be read, and for a Transfer that cannot be run.
    """
    if not isinstance(text, str):
        raise ValueError(f"bad Transfer {shown(text)}: {_FORM}")
    bare = text.partition("#")[0]
    line = _LINE.fullmatch(bare)
    if line is not None:
        rows = _rows_of_line(text, *line.groups())
    else:
        several = _SEVERAL.fullmatch(bare)
        parts = [f"({part})" for part in re.findall(r"\(([^()]*)\)", bare)] if several else [bare]
        rows = [_row(part) for part in parts]
    transfers = tuple(itertools.chain(*(_transfers(row, text, nbytes, subexecutors, places) for row in rows)))
    if len(transfers) > MOST_TRANSFERS:
        raise ValueError(_too_many(text, len(transfers)))
    if not transfers:
        raise ValueError(f"bad Transfer {shown(text)}: it names none on this machine, which has nothing '*' stands for")
    return transfers


def parse_line(text: str, nbytes: int | None = None, places: Places | None = None) -> tuple[Transfer, ...]:
    """Return the Transfers of one line of a TransferBench configuration file; none for a comment or a blank line.

    Raises ``ValueError`` in one line, for a line without its number of Transfers, too.
    """
    bare = text.partition("#")[0]
    if not bare.strip():
        return ()
    if not _LINE.fullmatch(bare):
        raise ValueError(f"bad line {shown(text.strip())}: it begins with its number of Transfers; {_LINE_FORM}")
    return parse_transfers(text, nbytes, 0, places)


def _rows_of_line(text: str, minus: str, count_text: str, rest: str) -> list[Sequence[str]]:
    """Return the parts of each Transfer of a line: source, executor, destination, SubExecutors, and bytes if any."""
    signed = _SIGNED.search(rest)
    if signed:
        raise ValueError(f"bad number {shown(signed[1])}: nothing in a line is negative but its number of Transfers")
    tokens = rest.translate(_DECORATION).split()
    count = int(count_text) if len(count_text) <= len(str(MOST_TRANSFERS)) else MOST_TRANSFERS + 1
    if not 0 < count <= MOST_TRANSFERS:
        raise ValueError(f"bad line {shown(text.strip())}: {shown(minus + count_text)} Transfers; {_LINE_FORM}")
    if minus:
        width, parts = 5, "SRC EXE DST SubExecutors bytes"
    else:
        width, parts = 3, "SRC EXE DST"
        if not tokens:
            raise ValueError(f"bad line {shown(text.strip())}: SubExecutors are missing; {_LINE_FORM}")
        common = tokens.pop(0)
    if len(tokens) != count * width:
        raise ValueError(
            f"bad line {shown(text.strip())}: {count} Transfers of {width} parts ({parts}) have {count * width} parts, "
            f"not {len(tokens)}"
        )
    rows = zip(*[iter(tokens)] * width, strict=True)
    return [row if minus else (*row, common) for row in rows]


def _row(text: str) -> Sequence[str]:
    """Return the parts of a Transfer written by itself: 3, or 5."""
    bracketed = _BRACKETED.fullmatch(text.strip())
    if bracketed is None:
        raise ValueError(f"bad Transfer {shown(text)}: one pair of brackets, if any, goes around all of it; {_FORM}")
    parts = (bracketed[1] or bracketed[2] or "").replace("->", " ").split()
    if len(parts) not in (3, 5):
        raise ValueError(f"bad Transfer {shown(text)}: it has {len(parts)} parts, not 3 or 5; {_FORM}")
    return parts


def _transfers(
    row: Sequence[str], text: str, nbytes: int | None, subexecutors: int, places: Places | None
) -> Iterator[Transfer]:
    """Yield a Transfer for every combination of what the wildcards of a row stand for, the last varying fastest."""
    sources, executors = memories_named(row[0], places), executors_named(row[1], places)
    destinations = memories_named(row[2], places)
    count = len(executors) * math.prod(len(alternatives) for alternatives in (*sources, *destinations))
    if count > MOST_TRANSFERS:
        raise ValueError(_too_many(text, count))
    if len(row) > 3:
        subexecutors = _count(row[3])
    if len(row) > 4:
        nbytes = parse_size(row[4]) or nbytes
    if nbytes is None:
        raise ValueError(f"no bytes in Transfer {shown(text)}, and no size to use instead; {_FORM}")
    for combination in itertools.product(*sources, *destinations):
        for executor in executors:
            ends = combination[: len(sources)], combination[len(sources) :]
            yield Transfer(ends[0], executor, ends[1], nbytes, subexecutors)


def _too_many(text: str, count: int) -> str:
    return f"bad Transfer {shown(text)}: it names {count} Transfers, at most {MOST_TRANSFERS} run at the same time"


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise ValueError(
            f"bad subexecutors {shown(text)}: write a whole number up to 999999, 0 to let the engine choose"
        )
    return int(text)

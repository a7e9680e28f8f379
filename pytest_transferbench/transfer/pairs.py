"""Pairs of ends as a mark lists them: ``G0-G1,first-others,each-N``; words stand for the selected GPUs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from pytest_transferbench.transfer.sizes import shown

PLACES = ("first", "second")
"""What the first two selected GPUs are called."""
EACH = "each"
"""Stands for every selected GPU, one after the other."""
_RELATIVE = ("itself", "next", "others")
"""Words for GPUs as seen from the one at the other end."""
WORDS = (*PLACES, EACH, *_RELATIVE)

Names = tuple[str, ...]
"""Memories at one end, as written: ``("G0", "G1")``."""

_GPU = re.compile(r"[GFUM]([0-9]{1,4})")


def pairs_named(text: str, gpus: Sequence[int], *, named: bool) -> Iterator[tuple[Names, Names]]:
    """Yield the ends of every pair that ``text``, such as ``first-others`` or ``each-itself+next``, stands for.

    ``gpus`` are the selected ones, ``named`` tells whether somebody chose them. ``each`` is every one of them;
    ``itself``, ``next`` (the one after it, the first after the last) and ``others`` are seen from the GPU at the other
    end. Where nobody chose any, ``others`` is the next one alone. ``+`` joins memories at one end. A pair that needs a
    GPU which is not there is left out. Raises ``ValueError`` in one line for what names no pair.
    """
    source, dash, destination = text.partition("-")
    if not dash:
        raise ValueError(
            f"bad pair {shown(text)}: use gpu, host, all, peers, config, local, or SOURCE-DESTINATION such as "
            "G0-G1,C0-G0,peers-G0,first-others"
        )
    sides = source.split("+"), destination.split("+")
    for home in _homes(text, sides, gpus):
        choices = [[_meant(word, home, gpus, named) for word in side] for side in sides]
        yield from itertools.product(*(itertools.product(*side) for side in choices))


def _homes(text: str, sides: Sequence[Sequence[str]], gpus: Sequence[int]) -> Sequence[int]:
    """Return the GPUs that words are seen from, one after the other; any one where no word is."""
    relative = [any(word in _RELATIVE for word in side) for side in sides]
    if any(EACH in side for side in sides):
        return gpus
    if not any(relative):
        return (0,)
    seen_from = [word for side, is_relative in zip(sides, relative, strict=True) if not is_relative for word in side]
    homes = [_home(word, gpus) for word in seen_from]
    if None in homes or not homes:
        raise ValueError(
            f"bad pair {shown(text)}: {', '.join(_RELATIVE)} are seen from the GPU at the other end, as in first-others"
        )
    return [home for home in homes[:1] if home is not None and home >= 0]


def _home(word: str, gpus: Sequence[int]) -> int | None:
    """Return the GPU that ``word`` names, -1 for one that is not there, None for what is no GPU."""
    if word in PLACES:
        place = PLACES.index(word)
        return gpus[place] if place < len(gpus) else -1
    found = _GPU.fullmatch(word)
    return int(found[1]) if found else None


def _meant(word: str, home: int, gpus: Sequence[int], named: bool) -> list[str]:
    """Return the memories that ``word`` may stand for, none where there is no such GPU."""
    if word in PLACES:
        return [f"G{gpus[place]}" for place in (PLACES.index(word),) if place < len(gpus)]
    if word in (EACH, "itself"):
        return [f"G{home}"]
    if word == "next" or (word == "others" and not named):
        after = [*(gpu for gpu in gpus if gpu > home), *(gpu for gpu in gpus if gpu < home)]
        return [f"G{gpu}" for gpu in after[:1]]
    if word == "others":
        return [f"G{gpu}" for gpu in gpus if gpu != home]
    return [word]

"""Byte counts as people write them: ``4M``, ``4096``, ``8M..512M``, ``1K..512M:4``.

K, M and G are binary. A value is never negative and fits a signed 64-bit integer, which every language between
here and the copy engine can hold.
"""

from __future__ import annotations

import operator
import re

MAX_BYTES = 2**63 - 1
"""The largest byte count any of these functions accepts."""
WORD_BYTES = 4
"""Data is written, moved and checked in words of this size."""

_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = re.compile(r"([0-9]+)([KMG]?)", re.IGNORECASE)
_FACTOR = re.compile(r"[0-9]{1,9}")


def shown(value: object, longest: int = 60) -> str:
    """Return ``value`` as a refusal shows it: one readable line, however long it is."""
    try:
        return shortened(repr(value), longest)
    except ValueError:  # Python's own, for a number of thousands of digits
        return "a huge number"


def shortened(text: str, longest: int = 60) -> str:
    """Return the beginning of ``text`` where it is longer than can be read."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def whole(value: object) -> int | None:
    """Return ``value`` as an int where it is a whole number, of whatever library; None for others, True and 1.0 too."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # what it is asked for
    except TypeError:
        return None


def parse_size(text: str) -> int:
    """Return the bytes that ``text`` stands for: digits and at most one of the suffixes K, M and G, in either case.

    Raises ``ValueError`` in one line for a sign, an exponent, a fraction, blanks between the characters, any other
    suffix, nothing at all, and values above 2**63 - 1. Zero is a size: whether it makes sense is the caller's matter.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"bad size {shown(text)}: write digits and at most one suffix K, M or G (binary), such as 4M or 4096"
        )
    digits, suffix = match.groups()
    # Counted before it is converted: Python itself refuses to read numbers of several thousand digits.
    value = int(digits) * _SUFFIXES[suffix.upper()] if len(digits.lstrip("0")) <= len(str(MAX_BYTES)) else MAX_BYTES + 1
    if value > MAX_BYTES:
        raise ValueError(f"size {shown(text)} is too large: at most {MAX_BYTES} bytes (just under 8589934592G)")
    return value


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes in a comma-separated list of sizes and ranges, in the order written.

    ``8M..512M`` doubles from 8M; ``1K..512M:4`` multiplies by 4. The last value of a range is the largest one that
    does not pass its end. Raises ``ValueError`` in one line for anything :func:`parse_size` refuses, for 0, for a
    range whose end is below its start, for a factor below 2, and for a size that comes up twice. What moves may ask for
    more: a Transfer moves whole 32-bit words.
    """
    sizes: list[int] = []
    for token in text.split(","):
        for size in _range(token.strip()) if ".." in token else (_positive_size(token),):
            if size in sizes:
                raise ValueError(f"size {format_size(size)} comes up twice in {shown(text)}: give every size once")
            sizes.append(size)
    return tuple(sizes)


def format_size(nbytes: int) -> str:
    """Return the shortest exact spelling that :func:`parse_size` reads back: ``64M``, ``4K``, ``1000``."""
    if nbytes < 0:
        raise ValueError(f"bad size {nbytes}: a byte count is not negative")
    for suffix in ("G", "M", "K"):
        if nbytes and nbytes % _SUFFIXES[suffix] == 0:
            return f"{nbytes // _SUFFIXES[suffix]}{suffix}"
    return str(nbytes)


def _range(token: str) -> tuple[int, ...]:
    bounds, colon, factor_text = token.partition(":")
    if colon and not _FACTOR.fullmatch(factor_text):
        raise ValueError(
            f"bad factor {shown(factor_text)} in range {shown(token)}: write a whole number, such as 1K..512M:4"
        )
    factor = int(factor_text) if colon else 2
    if factor < 2:
        raise ValueError(f"bad factor {factor} in range {shown(token)}: it has to be at least 2")
    start_text, _, end_text = bounds.partition("..")
    size, end = _positive_size(start_text), _positive_size(end_text)
    if end < size:
        raise ValueError(f"bad range {shown(token)}: its end is below its start; write the smaller size first")
    sizes: list[int] = []
    while size <= end:
        sizes.append(size)
        size *= factor
    return tuple(sizes)


def _positive_size(text: str) -> int:
    size = parse_size(text)
    if size == 0:
        raise ValueError(f"bad size {text.strip()!r}: there is at least 1 byte to move")
    return size

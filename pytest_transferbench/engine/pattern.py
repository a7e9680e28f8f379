"""The words a source holds, computed on the host: the same arithmetic as ``tb_hash`` and ``tb_key`` in portability.h.

Word ``i`` of a buffer is ``hash(i) ^ key``. Every slice and every nonce has its own key, so one wrong word tells
where it came from. Sources that are added up hold numbers: the low 21 bits of that, as float32. What a destination
must hold is told by the keys of its sources: one, or several whose numbers are added. Used to name what a failed check
found, and to fill and check host memory where there is no GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pytest_transferbench.measurement import Check

Keys = tuple[int, ...]
"""Keys of the sources whose data is meant, one or several."""
Words = npt.NDArray[np.uint32]
Index = npt.NDArray[np.int64]

GOLDEN = 0x9E3779B1
NUMBER_MASK = 0x1FFFFF
"""Eight numbers of so many bits add up to less than 2**24: float32 holds every sum of them exactly."""
_MASK = 0xFFFFFFFF
_UNDO_FIRST, _UNDO_SECOND = pow(0x7FEB352D, -1, 2**32), pow(0x846CA68B, -1, 2**32)
_CHUNK_WORDS = 1 << 18
"""Small enough for a core's cache, with the temporaries of hashing it."""
_MAX_THREADS = 16
_T = TypeVar("_T")


def hash_word(index: int) -> int:
    """Return the 32-bit hash of a word's index ("lowbias32" of the public-domain hash prospector)."""
    x = (index & _MASK) ^ ((index >> 32) * GOLDEN & _MASK)
    x ^= x >> 16
    x = x * 0x7FEB352D & _MASK
    x ^= x >> 15
    x = x * 0x846CA68B & _MASK
    return x ^ (x >> 16)


def index_of(hashed: int) -> int:
    """Return the index below 2**32 whose hash is ``hashed``: :func:`hash_word` backwards."""
    x = hashed ^ (hashed >> 16)
    x = x * _UNDO_SECOND & _MASK
    x ^= (x >> 15) ^ (x >> 30)
    x = x * _UNDO_FIRST & _MASK
    return x ^ (x >> 16)


def key_of(slice_index: int, nonce: int) -> int:
    """Return the 32-bit key of one slice under one nonce; distinct slices have distinct keys."""
    return hash_word((slice_index + nonce * GOLDEN) & _MASK)


WRITE_KEY = key_of(0, 0x5752)
"""The key of what a write-only transfer writes."""


def words_at(index: Index, key: int) -> Words:
    """Return the words at the given indices in the pattern of ``key``."""
    low = index.astype(np.uint32)
    x = low ^ ((index >> 32).astype(np.uint32) * np.uint32(GOLDEN))
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x ^ np.uint32(key)


def expected(index: Index, keys: Keys) -> Words:
    """Return the words at the given indices in what sources with these keys give."""
    if len(keys) == 1:
        return words_at(index, keys[0])
    numbers = (numbers_at(index, key).view(np.float32) for key in keys)
    return functools.reduce(np.add, numbers).view(np.uint32)


def numbers_at(index: Index, key: int) -> Words:
    """Return the float32 numbers at the given indices in the pattern of ``key``, as their bits."""
    return (words_at(index, key) & np.uint32(NUMBER_MASK)).astype(np.float32).view(np.uint32)


def view(pointer: int, nbytes: int) -> Words:
    """Return host memory at ``pointer`` as 32-bit words, without copying; ``nbytes`` is a multiple of 4."""
    return np.ctypeslib.as_array((ctypes.c_uint32 * (nbytes // 4)).from_address(pointer))


def fill(words: Words, key: int, *, numbers: bool = False) -> None:
    """Write the pattern of ``key`` over host memory, as numbers if so asked."""
    pattern = numbers_at if numbers else words_at

    def write(index: Index) -> None:
        words[index[0] : index[-1] + 1] = pattern(index, key)

    _each(write, sampled(words.size, 1))


def poison(words: Words, stride: int, keys: Keys, reference: Words | None = None) -> None:
    """Complement what every ``stride``-th word and the last one must become."""

    def write(index: Index) -> None:
        words[index] = ~_expected(index, keys, reference)

    _each(write, sampled(words.size, stride))


def check(what: str, words: Words, stride: int, keys: Keys, reference: Words | None = None) -> Check:
    """Compare host memory with what ``keys`` mean, or with ``reference``, as ``tb_check`` does on a device."""

    def compare(index: Index) -> Check:
        differs = words[index] ^ _expected(index, keys, reference)
        where = np.flatnonzero(differs)
        if not where.size:
            return Check(what, index.size)
        return Check(
            what,
            index.size,
            wrong_words=where.size,
            wrong_bytes=int(np.count_nonzero(differs.view(np.uint8))),
            first=int(index[where[0]]),
            last=int(index[where[-1]]),
            xor_mask=int(np.bitwise_or.reduce(differs)),
        )

    seen = [part for part in _each(compare, sampled(words.size, stride)) if part.wrong_words]
    if not seen:
        return Check(what, words.size)
    return Check(
        what,
        words.size,
        wrong_words=sum(part.wrong_words for part in seen),
        wrong_bytes=sum(part.wrong_bytes for part in seen),
        first=seen[0].first,
        last=seen[-1].last,
        xor_mask=int(np.bitwise_or.reduce([part.xor_mask for part in seen])),
    )


def _each(work: Callable[[Index], _T], chunks: Iterable[Index]) -> list[_T]:
    """Do ``work`` on all chunks, on all cores: NumPy lets go of the interpreter while it computes."""
    threads = min(_MAX_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, chunks))


def sampled(count: int, stride: int) -> list[Index]:
    """Return, in chunks, the indices of every ``stride``-th word of ``count`` and of the last one."""
    chunk = _CHUNK_WORDS * stride
    starts = range(0, count, chunk)
    chunks = [np.arange(start, min(start + chunk, count), stride, dtype=np.int64) for start in starts]
    if (count - 1) % stride:
        chunks.append(np.array([count - 1]))
    return chunks


def _expected(index: Index, keys: Keys, reference: Words | None) -> Words:
    return expected(index, keys) if reference is None else reference[index]

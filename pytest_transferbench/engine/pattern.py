"""The words a source holds, computed on the host: the same arithmetic as ``tb_hash`` and ``tb_key`` in portability.h.

Word ``i`` of a buffer is ``hash(i) ^ key``. Every slice and every nonce has its own key, so one wrong word tells
where it came from. Used to name what a failed check found, and to fill and check host memory where there is no GPU.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from pytest_transferbench.measurement import Check

Words = npt.NDArray[np.uint32]

GOLDEN = 0x9E3779B1
_MASK = 0xFFFFFFFF
_CHUNK_WORDS = 1 << 20


def hash_word(index: int) -> int:
    """Return the 32-bit hash of a word's index ("lowbias32" of the public-domain hash prospector)."""
    x = (index & _MASK) ^ ((index >> 32) * GOLDEN & _MASK)
    x ^= x >> 16
    x = x * 0x7FEB352D & _MASK
    x ^= x >> 15
    x = x * 0x846CA68B & _MASK
    return x ^ (x >> 16)


def key_of(slice_index: int, nonce: int) -> int:
    """Return the 32-bit key of one slice under one nonce; distinct slices have distinct keys."""
    return hash_word((slice_index + nonce * GOLDEN) & _MASK)


def words_at(index: npt.NDArray[np.int64], key: int) -> Words:
    """Return the words at the given indices in the pattern of ``key``."""
    low = index.astype(np.uint32)
    x = low ^ ((index >> 32).astype(np.uint32) * np.uint32(GOLDEN))
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x ^ np.uint32(key)


def view(pointer: int, nbytes: int) -> Words:
    """Return host memory at ``pointer`` as 32-bit words, without copying; ``nbytes`` is a multiple of 4."""
    return np.ctypeslib.as_array((ctypes.c_uint32 * (nbytes // 4)).from_address(pointer))


def fill(words: Words, key: int) -> None:
    """Write the pattern of ``key`` over host memory."""
    for index in sampled(words.size, 1):
        words[index[0] : index[-1] + 1] = words_at(index, key)


def poison(words: Words, stride: int, key: int, reference: Words | None = None) -> None:
    """Complement what every ``stride``-th word and the last one must become."""
    for index in sampled(words.size, stride):
        words[index] = ~_expected(index, key, reference)


def check(what: str, words: Words, stride: int, key: int, reference: Words | None = None) -> Check:
    """Compare host memory with the pattern of ``key``, or with ``reference``, as ``tb_check`` does on a device."""
    wrong, first, last, mask = 0, -1, -1, 0
    for index in sampled(words.size, stride):
        differs = words[index] ^ _expected(index, key, reference)
        where = np.flatnonzero(differs)
        if where.size:
            wrong += int(where.size)
            first = int(index[where[0]]) if first < 0 else first
            last = int(index[where[-1]])
            mask |= int(np.bitwise_or.reduce(differs))
    return Check(what, words.size, wrong, first, last, mask)


def sampled(count: int, stride: int) -> list[npt.NDArray[np.int64]]:
    """Return, in chunks, the indices of every ``stride``-th word of ``count`` and of the last one."""
    chunk = _CHUNK_WORDS * stride
    chunks = [np.arange(start, min(start + chunk, count), stride) for start in range(0, count, chunk)]
    if (count - 1) % stride:
        chunks.append(np.array([count - 1]))
    return chunks


def _expected(index: npt.NDArray[np.int64], key: int, reference: Words | None) -> Words:
    return words_at(index, key) if reference is None else reference[index]

"""The pattern of the sources, and the host's own check."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_transferbench.engine import pattern

KEYS = st.integers(0, 2**32 - 1)


@given(index=st.integers(0, 2**40), key=KEYS)
def test_arrays_and_single_words_agree(index: int, key: int) -> None:
    word = pattern.words_at(np.array([index], dtype=np.int64), key)[0]
    assert int(word) == pattern.hash_word(index) ^ key


def test_known_words() -> None:
    """Frozen: with other words, host and device, or two versions, would no longer mean the same pattern."""
    known = {0: 0x00000000, 1: 0x688990C0, 2: 0xD1132181, 2**32: 0x6D523710, 123456789: 0xA8F1DB88}
    assert {index: pattern.hash_word(index) for index in known} == known


@given(index=st.integers(0, 2**32 - 1))
def test_a_hash_tells_its_index(index: int) -> None:
    assert pattern.index_of(pattern.hash_word(index)) == index


def test_every_bit_depends_on_the_address() -> None:
    words = pattern.words_at(np.arange(1 << 16, dtype=np.int64), 0)
    share_of_ones = [float(np.mean(words >> np.uint32(bit) & np.uint32(1))) for bit in range(32)]
    assert all(0.49 < share < 0.51 for share in share_of_ones)
    assert len(np.unique(words)) == words.size


@given(nonce=st.integers(0, 2**16), slices=st.integers(2, 4096))
def test_slices_of_one_nonce_have_distinct_keys(nonce: int, slices: int) -> None:
    assert len({pattern.key_of(index, nonce) for index in range(slices)}) == slices


@settings(deadline=None)
@given(count=st.integers(1, 5000), stride=st.integers(1, 2000))
def test_sampling_meets_the_first_and_the_last_word_once(count: int, stride: int) -> None:
    indices = np.concatenate(pattern.sampled(count, stride))
    assert indices[0] == 0
    assert indices[-1] == count - 1
    assert len(np.unique(indices)) == indices.size
    assert indices.size == -(-count // stride) + ((count - 1) % stride != 0)


@settings(deadline=None)
@given(count=st.integers(1, 4000), key=KEYS, data=st.data())
def test_check_finds_exactly_what_is_wrong(count: int, key: int, data: st.DataObject) -> None:
    words = np.zeros(count, dtype=np.uint32)
    pattern.fill(words, key)
    assert pattern.check("x", words, 1, (key,)).passed
    wrong = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5)))
    mask = data.draw(st.integers(1, 2**32 - 1))
    words[wrong] ^= np.uint32(mask)
    seen = pattern.check("x", words, 1, (key,))
    assert (seen.wrong_words, seen.first, seen.last, seen.xor_mask) == (len(wrong), wrong[0], wrong[-1], mask)
    assert seen.wrong_bytes == len(wrong) * sum(byte != 0 for byte in mask.to_bytes(4, "little"))


@pytest.mark.parametrize("own", [False, True])
def test_poison_is_wrong_in_all_bits_where_it_is_laid(own: bool) -> None:
    reference = np.arange(10_000, dtype=np.uint32) if own else None
    words = np.zeros(10_000, dtype=np.uint32)
    if reference is None:
        pattern.fill(words, 7)
    else:
        words[:] = reference
    pattern.poison(words, 1024, (7,), reference)
    seen = pattern.check("x", words, 1, (7,), reference)
    assert (seen.wrong_words, seen.first, seen.last, seen.xor_mask) == (11, 0, 9999, 0xFFFFFFFF)


def test_host_memory_is_seen_without_a_copy() -> None:
    backing = np.zeros(16, dtype=np.uint32)
    pattern.view(backing.ctypes.data, backing.nbytes)[3] = 5
    assert backing[3] == 5

"""The device's own check and poison are the host's, word for word."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_transferbench.engine import Bench, pattern
from pytest_transferbench.engine.validation import Region, fill_slices
from pytest_transferbench.transfer import Memory, RotationPlan

NONCE = 77
STRIDES = st.sampled_from([1, 7, 1024])
KEYS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8).map(tuple)


def filled(bench: Bench, words: int) -> Region:
    """Words on GPU 0 that are right."""
    context = bench.device(0)
    region = Region(bench.arena.take("words", Memory("G", 0), 4 * words).pointer, 4 * words, context)
    fill_slices(region, RotationPlan.make(4 * words, 0, memory_bytes=4 * words), NONCE)
    context.synchronize()
    return region


def read(bench: Bench, region: Region) -> pattern.Words:
    return np.frombuffer(bench.runtime.read(region.pointer, region.nbytes, 0), dtype=np.uint32).copy()


@settings(deadline=None, max_examples=40)
@given(count=st.integers(1, 9000), stride=STRIDES, keys=KEYS, data=st.data())
def test_device_and_host_find_the_same(
    bench: Bench, count: int, stride: int, keys: pattern.Keys, data: st.DataObject
) -> None:
    region = filled(bench, count)
    words = pattern.expected(np.arange(count), keys)
    places = [0, count - 1, *data.draw(st.lists(st.integers(0, count - 1), max_size=6))]
    for place in data.draw(st.sets(st.sampled_from(places))):
        words[place] ^= np.uint32(data.draw(st.integers(1, 2**32 - 1)))
    bench.runtime.write(region.pointer, words.tobytes(), 0)
    assert region.check("x", keys, stride) == pattern.check("x", words, stride, keys)


@settings(deadline=None, max_examples=20)
@given(count=st.integers(1, 9000), stride=STRIDES, keys=KEYS)
def test_device_and_host_poison_the_same(bench: Bench, count: int, stride: int, keys: pattern.Keys) -> None:
    region = filled(bench, count)
    words = read(bench, region)
    pattern.poison(words, stride, keys)
    region.poison(keys, stride)
    bench.device(0).synchronize()
    assert np.array_equal(read(bench, region), words)

"""Proof that the timed copies moved the data: fill, poison, check, and the name of whatever was found instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_transferbench.engine import pattern
from pytest_transferbench.engine.device import DeviceContext
from pytest_transferbench.engine.pattern import Keys
from pytest_transferbench.measurement import Check
from pytest_transferbench.runtime import Allocation, Runtime
from pytest_transferbench.transfer import MAX_ENDS, RotationPlan

GUARD_BYTES = 4096
POISON_STRIDE_WORDS = 1024
"""One word in every 4 KiB is poisoned before a sample and looked at after it."""
_GUARD_NONCE = 0xA5A5
_KEYS = np.dtype([("count", np.uint32), ("key", np.uint32, MAX_ENDS)])
"""``tb_keys`` of check.hip."""
_NOTHING = (0, 0, 2**64 - 1, 0, 0)


@dataclasses.dataclass(frozen=True)
class Region:
    """Words at ``pointer``, and the device that fills and checks them; ``None`` means the host does."""

    pointer: int
    nbytes: int
    agent: DeviceContext | None

    @property
    def words(self) -> int:
        return self.nbytes // 4

    def check(self, what: str, keys: Keys, stride: int = 1, reference: int = 0) -> Check:
        """Compare with what ``keys`` mean, or with the words at ``reference``, at every ``stride``-th word."""
        if self.agent is None:
            known = pattern.view(reference, self.nbytes) if reference else None
            return pattern.check(what, pattern.view(self.pointer, self.nbytes), stride, keys, known)
        found = self.agent.results.pointer
        self.agent.write_words(found, _NOTHING)
        args = (*self._sampled(stride, reference, keys), np.uint64(found))
        self.agent.prepare("tb_check", args, -(-self.words // stride))
        self.agent.synchronize()
        wrong, wrong_bytes, first, last, mask = map(int, self.agent.read_words(found, len(_NOTHING)))
        return Check(what, self.words, wrong, wrong_bytes, first, last, mask) if wrong else Check(what, self.words)

    def poison(self, keys: Keys, stride: int = 1, reference: int = 0) -> None:
        """Queue the complement of what every ``stride``-th word must become."""
        if self.agent is None:
            known = pattern.view(reference, self.nbytes) if reference else None
            pattern.poison(pattern.view(self.pointer, self.nbytes), stride, keys, known)
        else:
            self.agent.prepare("tb_poison", self._sampled(stride, reference, keys), -(-self.words // stride))

    def _sampled(self, stride: int, reference: int, keys: Keys) -> tuple[Any, ...]:
        known = np.zeros((), _KEYS)
        known["count"], known["key"][: len(keys)] = len(keys), keys
        return (np.uint64(self.pointer), np.uint64(self.words), np.uint64(stride), np.uint64(reference), known)


def fill_slices(source: Region, plan: RotationPlan, nonce: int, *, numbers: bool = False) -> None:
    """Queue the pattern of every slice, as numbers if so asked, all in one launch. ``source`` starts at slice 0."""
    if source.agent is None:
        for index in range(plan.slices):
            start = source.pointer + index * plan.pitch
            pattern.fill(pattern.view(start, plan.nbytes), pattern.key_of(index, nonce), numbers=numbers)
        return
    blocks = 4 * source.agent.device.compute_units
    team = max(1, min(blocks, plan.nbytes // (16 * 256)))
    args = (
        np.uint64(source.pointer),
        np.uint64(plan.nbytes),
        np.uint64(plan.pitch),
        np.uint64(plan.slices),
        np.uint32(nonce),
        np.uint32(team),
        np.uint32(numbers),
    )
    teams = min(plan.slices, max(1, blocks // team))
    source.agent.prepare_grid("tb_fill", args, team * teams)


class Destination:
    """The memory a case writes: the bytes themselves and a guard zone on either side."""

    def __init__(self, allocation: Allocation, byte_offset: int, nbytes: int, agent: DeviceContext | None) -> None:
        start = allocation.pointer + GUARD_BYTES + byte_offset
        self.owner = allocation.owner
        self.data = Region(start, nbytes, agent)
        self.guards = (
            Region(allocation.pointer, GUARD_BYTES + byte_offset, agent),
            Region(start + nbytes, GUARD_BYTES, agent),
        )

    @staticmethod
    def allocation_bytes(nbytes: int, byte_offset: int) -> int:
        """Return how much to allocate for a destination of ``nbytes``."""
        return byte_offset + nbytes + 2 * GUARD_BYTES

    def prepare_guards(self) -> None:
        """Queue the guard pattern; whatever a copy writes beyond its bytes destroys it."""
        for index, guard in enumerate(self.guards):
            guard.poison((guard_key(index) ^ 0xFFFFFFFF,))

    def check_guards(self) -> tuple[Check, Check]:
        """Look at every word of the guard zones: that before the data, then that behind it."""
        before, behind = self.guards
        return before.check("before", (guard_key(0),)), behind.check("behind", (guard_key(1),))


def guard_key(index: int) -> int:
    """Return the key of what the guard zone before the data (0) or behind it (1) holds."""
    return pattern.key_of(index, _GUARD_NONCE)


class Prover:
    """Knows what one destination must hold after each sample, and says what it holds instead.

    ``reference`` is the address of the user's own data beside the destination, 0 where the data is ours.
    """

    def __init__(self, runtime: Runtime, destination: Destination, plan: RotationPlan, reference: int = 0) -> None:
        self._runtime = runtime
        self._destination = destination
        self._plan = plan
        self._reference = reference

    def poison(self, keys: Keys, *, everywhere: bool = False) -> None:
        """Queue the complement of what the coming copies must leave, everywhere or once per 4 KiB."""
        self._destination.data.poison(keys, 1 if everywhere else POISON_STRIDE_WORDS, self._reference)

    def glance(self, what: str, keys: Keys) -> bool:
        """Look at the poisoned words only; True when all were overwritten with the right ones."""
        return self._destination.data.check(what, keys, POISON_STRIDE_WORDS, self._reference).passed

    def check(self, what: str, keys: Keys, slice_index: int, origins: Sequence[tuple[int, str]]) -> Check:
        """Look at every word and both guards. What is wrong is named and looked at again through a DMA read-back.

        ``origins`` are nonces of sources that wrong data may come from, its own first, and in words whose they are.
        """
        seen = self._destination.data.check(what, keys, 1, self._reference)
        guards = self._destination.check_guards()
        if seen.passed and all(guard.passed for guard in guards):
            return seen
        return dataclasses.replace(
            seen,
            found="" if seen.passed else self._name(seen, keys, slice_index, origins),
            guard_words=sum(guard.wrong_words for guard in guards),
            guard_bytes=sum(guard.wrong_bytes for guard in guards),
            guard_found=self._place_of(*guards),
            reread_agrees=self._reread(seen, guards, keys),
        )

    def _name(self, seen: Check, keys: Keys, slice_index: int, origins: Sequence[tuple[int, str]]) -> str:
        """Say where the first wrong word came from, and how many of the wrong words came from there too."""
        if self._reference:
            return "not the caller's data"
        if len(keys) > 1:
            return self._name_sum(seen.first, keys, slice_index, origins[0][0])
        (key,) = keys
        region = self._destination.data
        raw = self._runtime.read(region.pointer + 4 * seen.first, 4, self._destination.owner)
        found = int(np.frombuffer(raw, dtype=np.uint32)[0]) ^ pattern.hash_word(seen.first)
        origin = self._origin(found, key, slice_index, origins)
        if origin is None:
            moved = self._moved(seen, key)
            if moved is not None:
                return f"words of slice {slice_index} in the wrong place: word {moved} at {seen.first}"
            return f"neither poison nor any slice; the first wrong word is 0x{int.from_bytes(raw, 'little'):08x}"
        same = region.words - region.check("origin", (found,)).wrong_words
        return f"{origin} in {same} words"

    def _origin(self, found: int, key: int, slice_index: int, origins: Sequence[tuple[int, str]]) -> str | None:
        if found == key ^ 0xFFFFFFFF:
            return "poison (nothing was written)"
        for nonce, whose in origins:
            slices = np.arange(self._plan.slices, dtype=np.int64) + nonce * pattern.GOLDEN
            hits = np.flatnonzero(pattern.words_at(slices & 0xFFFFFFFF, 0) == np.uint32(found))
            if hits.size:
                return f"slice {int(hits[0])}{whose} instead of slice {slice_index}"
        return None

    def _moved(self, seen: Check, key: int) -> int | None:
        """Return where in the slice the first wrong word belongs, ``None`` where it does not come from there.

        One word may look so by chance; that its neighbour comes from the neighbouring place as well is none.
        """
        words = self._read(self._destination.data.pointer + 4 * seen.first, min(2, seen.last + 1 - seen.first))
        places = [pattern.index_of(int(word) ^ key) for word in words]
        if len(places) < 2 or places[1] != places[0] + 1 or places[1] >= seen.words:
            return None
        return places[0]

    def _name_sum(self, at: int, keys: Keys, slice_index: int, nonce: int) -> str:
        """Say what the first wrong word is instead of the sum of all sources; ``nonce`` is the first one's."""
        word = int(self._read(self._destination.data.pointer + 4 * at, 1)[0])
        index = np.array([at], dtype=np.int64)
        if word == int(~pattern.expected(index, keys)[0]):
            return "poison (nothing was written)"
        numbers = [float(pattern.numbers_at(index, key).view(np.float32)[0]) for key in keys]
        found = float(np.uint32(word).view(np.float32))
        for source, number in enumerate(numbers, 1):
            if found == sum(numbers) - number:
                return f"the sum without source {source} of {len(keys)}"
        for other in range(self._plan.slices):
            theirs = tuple(pattern.key_of(other, nonce + source) for source in range(len(keys)))
            if word == int(pattern.expected(index, theirs)[0]):
                return f"slice {other} of all sources instead of slice {slice_index}"
        return f"neither poison nor any sum of the sources; the first wrong word is 0x{word:08x}"

    def _place_of(self, before: Check, behind: Check) -> str:
        """Say where the guard zones are broken, in words from the start of the destination."""
        starts = -self._destination.guards[0].words, self._destination.data.words
        places = (
            f"{zone.what} the data: first {zone.first + start}, last {zone.last + start}, mask 0x{zone.xor_mask:08x}"
            for zone, start in zip((before, behind), starts, strict=True)
            if not zone.passed
        )
        return ", ".join(places)

    def _reread(self, seen: Check, guards: tuple[Check, Check], keys: Keys) -> bool:
        """Say whether the host sees the same in what the copy engine brings it."""
        region = self._destination.data
        reference = self._read(self._reference, region.words) if self._reference else None
        looks = [(region, seen, keys, reference)]
        looks += [(self._destination.guards[i], guard, (guard_key(i),), None) for i, guard in enumerate(guards)]
        return all(
            pattern.check(before.what, self._read(zone.pointer, zone.words), 1, expected, known) == before
            for zone, before, expected, known in looks
        )

    def _read(self, pointer: int, words: int) -> pattern.Words:
        return np.frombuffer(self._runtime.read(pointer, 4 * words, self._destination.owner), dtype=np.uint32)

"""The LL flag protocols: how a line of a message tells that it has arrived, and what of it is data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_transferbench.transfer.sizes import shown

Order = Literal["packed", "drained", "written back", "fenced"]
"""What makes data arrive before its flag, see :class:`Protocol`."""

BLOCK_THREADS = 256
_WORD_BYTES = 8
_LINE_SIZES = (64, 128, 256)
_SUFFIXES: dict[str, Order] = {"sc": "drained", "sc+wb": "written back", "tf": "fenced"}


@dataclass(frozen=True, slots=True)
class Protocol:
    """One LL flag protocol; a message is a row of lines of ``line_bytes`` bytes each.

    ``packed`` (LL): every 8-byte word is half data, half flag, and the receiver checks both flags of a line; a word
    arrives whole, so nothing needs an order. In all others a line ends with one 8-byte flag. ``drained`` (sc): the
    wavefront's data stores are acknowledged before the flag is stored; NVIDIA has no such wait, there the flag's
    store is a release at system scope. ``written back`` (sc+wb): with a system fence for every line besides.
    ``fenced`` (tf): all data of the message, one system fence, all flags.
    """

    name: str
    line_bytes: int
    order: Order

    @property
    def data_bytes(self) -> int:
        """Bytes of a line that are data."""
        return self.line_bytes // 2 if self.order == "packed" else self.line_bytes - _WORD_BYTES

    @property
    def wire_efficiency(self) -> float:
        """The share of the bytes on the wire that is data."""
        return self.data_bytes / self.line_bytes

    @property
    def title(self) -> str:
        """The name as tables write it: ``LL128-sc``."""
        return self.name.replace("ll", "LL", 1)

    def lines(self, nbytes: int) -> int:
        """Return how many lines a message of ``nbytes`` bytes takes; the last one is filled up."""
        return -(-nbytes // self.data_bytes)

    def blocks(self, nbytes: int, most: int) -> int:
        """Return how many blocks send a message and as many receive it: one for every turn's lines, 1 to ``most``.

        The rule of RCCL's llx_latency_bench, so that figures can be compared.
        """
        lines_at_a_time = BLOCK_THREADS // (1 if self.order == "packed" else self.line_bytes // _WORD_BYTES)
        return min(most, max(1, self.lines(nbytes) // lines_at_a_time))


LL = Protocol("ll", 16, "packed")
PROTOCOLS = (
    LL,
    *(Protocol(f"ll{size}-{suffix}", size, order) for size in _LINE_SIZES for suffix, order in _SUFFIXES.items()),
)
"""All protocols there are."""


def protocols(text: str) -> tuple[Protocol, ...]:
    """Return the protocols in a comma-separated list of names: ``ll``, ``ll128-sc``, ``ll128`` for three, ``all``.

    Raises ``ValueError``, in one line, for a name that means none and for a protocol that comes up twice.
    """
    found: list[Protocol] = []
    for name in (part.strip().casefold() for part in text.split(",")):
        named = [each for each in PROTOCOLS if name in ("all", each.name, each.name.partition("-")[0])]
        if not named:
            lines, endings = ", ".join(f"ll{size}" for size in _LINE_SIZES), ", ".join(f"-{end}" for end in _SUFFIXES)
            raise ValueError(f"unknown protocol {shown(name)}: use all, ll, or {lines}, alone or with {endings} behind")
        for each in named:
            if each in found:
                raise ValueError(f"protocol {shown(each.name)} comes up twice in {shown(text)}: give every one once")
        found += named
    return tuple(found)

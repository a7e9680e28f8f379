"""A Message: bytes that one GPU sends to another through an LL flag protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_transferbench.transfer.ends import Executor, Memory
from pytest_transferbench.transfer.protocol import LL, PROTOCOLS, Protocol, protocols
from pytest_transferbench.transfer.sizes import MAX_BYTES, format_size, parse_size, shown, whole
from pytest_transferbench.transfer.transfer import End, as_memory, case_name


@dataclass(frozen=True, repr=False, slots=True)
class Message:
    """``nbytes`` bytes from GPU ``source`` to GPU ``destination``, which polls for them.

    One way the destination answers with one 8-byte ACK, and a message's time includes it: it ends when the source has
    the ACK. A ``round_trip`` is one line of LL to and fro, and its time is half of that. Both ends may be one GPU, a
    loopback. Raises ``ValueError``, in one line, for whatever cannot be sent.
    """

    protocol: Protocol
    source: Memory
    destination: Memory
    nbytes: int
    round_trip: bool = False

    def __post_init__(self) -> None:
        ends = f"{self.source}->{self.destination}"
        for memory in (self.source, self.destination):
            if not isinstance(memory, Memory) or memory.kind != "G":
                raise ValueError(f"bad end {memory} of message {ends}: messages go between GPUs, such as G0 and G1")
        if self.protocol not in PROTOCOLS:
            names = ", ".join(protocol.name for protocol in PROTOCOLS)
            raise ValueError(f"bad protocol {shown(self.protocol)} of message {ends}: use Message.push with {names}")
        nbytes = whole(self.nbytes)
        if nbytes is None or not 0 < nbytes <= MAX_BYTES:
            raise ValueError(f"bad size {shown(self.nbytes)} of message {ends}: use 1 to {MAX_BYTES} bytes")
        object.__setattr__(self, "nbytes", nbytes)
        if self.round_trip and (self.protocol != LL or self.nbytes > LL.data_bytes):
            raise ValueError(
                f"bad round trip of {self.nbytes} bytes by {self.protocol.name}: it is one line of ll, "
                f"at most {LL.data_bytes} bytes"
            )

    def __repr__(self) -> str:
        return f"<Message {self.notation()}>"

    @classmethod
    def push(cls, protocol: Protocol | str, source: End, destination: End, nbytes: int | str) -> Message:
        """Return a one-way message: ``Message.push("ll128-sc", 0, 1, "16M")``; raises ``ValueError`` in one line."""
        return cls(_one(protocol), as_memory(source), as_memory(destination), _bytes(nbytes))

    @classmethod
    def ping_pong(cls, source: End, destination: End) -> Message:
        """Return one line of LL to and fro; raises ``ValueError`` in one line."""
        return cls(LL, as_memory(source), as_memory(destination), LL.data_bytes, round_trip=True)

    @property
    def op(self) -> Literal["push", "pingpong"]:
        """``push``: the sender writes across the link. ``pingpong``: both sides do, in turn."""
        return "pingpong" if self.round_trip else "push"

    @property
    def sources(self) -> tuple[Memory, ...]:
        """Where the message comes from."""
        return (self.source,)

    @property
    def destinations(self) -> tuple[Memory, ...]:
        """Where it goes."""
        return (self.destination,)

    @property
    def executor(self) -> Executor:
        """Who sends."""
        return Executor("G", self.source.index)

    @property
    def executors(self) -> tuple[Executor, ...]:
        """Who runs it, as of a Test: the sender, whose kernel waits for the receiver's."""
        return (self.executor,)

    @property
    def owners(self) -> frozenset[int]:
        """The GPUs that take part."""
        return frozenset((self.source.owner, self.destination.owner))

    @property
    def by(self) -> str:
        """What carries it, as names have it: the protocol."""
        return self.protocol.name

    @property
    def by_in_name(self) -> str:
        """What carries it, as names have it: the protocol."""
        return self.by

    @property
    def subexecutors(self) -> int:
        """0: blocks follow from the size."""
        return 0

    @property
    def transfers(self) -> tuple[Message, ...]:
        """This message alone: what runs at the same time, as in a Test."""
        return (self,)

    @property
    def total_bytes(self) -> int:
        """Bytes of data."""
        return self.nbytes

    @property
    def loopback(self) -> bool:
        """Whether both ends are one GPU."""
        return self.source == self.destination

    @property
    def end_names(self) -> tuple[str, str]:
        """Source and destination as names have them."""
        return str(self.source), str(self.destination)

    def owner_of(self, memory: Memory) -> int:
        """Return the GPU that homes ``memory``."""
        return memory.owner

    def notation(self) -> str:
        """Return the message as text: ``(G0->G1 ll128-sc 16M)``, ``(G0<->G1 ll 8)``."""
        arrow = "<->" if self.round_trip else "->"
        return f"({self.source}{arrow}{self.destination} {self.protocol.name} {format_size(self.nbytes)})"

    def case_name(self, variant: str = "") -> str:
        """Return the id: ``push-ll128-sc-G0-G1-16M[-<variant>]``; raises ``ValueError`` as :func:`case_name`."""
        return case_name(self, variant)

    def place_in_name(self) -> str:
        """Return nothing: a message's ends tell who sends it."""
        return ""


def _one(protocol: Protocol | str) -> Protocol:
    if isinstance(protocol, Protocol):
        return protocol
    if not isinstance(protocol, str):
        raise ValueError(f"bad protocol {shown(protocol)}: name one, such as {LL.name}")
    found = protocols(protocol)
    if len(found) != 1:
        raise ValueError(f"{shown(protocol)} stands for {len(found)} protocols: name one, such as {found[0].name}")
    return found[0]


def _bytes(nbytes: int | str) -> int:
    return parse_size(nbytes) if isinstance(nbytes, str) else nbytes

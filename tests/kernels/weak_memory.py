"""Builds ``ll.hip`` for the machine in ``weak_memory.cpp`` and lets two sides exchange messages on it."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import numpy as np

import pytest_transferbench.emulator

HERE = Path(__file__).parent
FIBRES = Path(pytest_transferbench.emulator.__file__).parent / "native"
COMPILE = ("g++", "-std=c++17", "-fPIC", "-fvisibility=hidden")
THREADS_A_BLOCK = 256
NEVER = 2**64 - 1
LEADERS_SEED = 12345


class Model(IntEnum):
    STRONG = 0
    AMD = 1
    NVIDIA = 2


@dataclass(frozen=True)
class Machine:
    model: Model
    lanes_a_wave: int
    words_a_lane: int


STRONG = Machine(Model.STRONG, 64, 1)
AMD = Machine(Model.AMD, 64, 1)
NVIDIA = Machine(Model.NVIDIA, 32, 2)


@dataclass(frozen=True)
class Protocol:
    """``order`` is the TB_ORDER of ``ll.hip``: 0 packed, 1 sc, 2 sc+wb, 3 tf."""

    order: int
    line_bytes: int

    @property
    def kind(self) -> str:
        return ("LL", "sc", "sc+wb", "tf")[self.order]

    def __str__(self) -> str:
        return self.kind if self.order == 0 else f"LL{self.line_bytes}-{self.kind}"

    @property
    def words_a_line(self) -> int:
        """Words of the message in one line."""
        return 1 if self.order == 0 else self.line_bytes // 8 - 1

    def lines(self, nbytes: int) -> int:
        return -(-nbytes // (8 * self.words_a_line))

    def blocks(self, nbytes: int) -> int:
        return min(64, max(1, self.lines(nbytes) // self.lines_a_set(1)))

    def lines_a_set(self, words_a_lane: int) -> int:
        """Lines that a block moves side by side; the sets go to the blocks in turn."""
        return THREADS_A_BLOCK if self.order == 0 else THREADS_A_BLOCK * 8 * words_a_lane // self.line_bytes

    def flag_word(self, line: int) -> int:
        """Which word of the ring says that a line has come."""
        return (line + 1) * self.line_bytes // 8 - 1


LL = Protocol(0, 16)
PROTOCOLS = (LL, *(Protocol(order, line_bytes) for order in (1, 2, 3) for line_bytes in (64, 128, 256)))


class Settings(ctypes.Structure):
    _fields_ = [
        ("model", ctypes.c_int),
        ("lanes_a_wave", ctypes.c_uint),
        ("seed", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("lost_word", ctypes.c_void_p),
        ("lost_store", ctypes.c_uint64),
    ]


class Message(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("ring", "back", "ack", "arrived", "stamps", "sender", "receiver")),
        *((name, ctypes.c_uint) for name in ("blocks", "lines", "iterations")),
        *((name, ctypes.c_uint64) for name in ("first_flag", "ticks", "seed")),
    ]


class Report(ctypes.Structure):
    """``struct tb_ll_report`` as it is before a launch."""

    _fields_ = [
        (name, ctypes.c_uint64) for name in ("late", "wrong_words", "first", "last", "mask", "sum", "wrong_bytes")
    ]

    def __init__(self) -> None:
        super().__init__(late=NEVER, first=NEVER)

    @property
    def late_at(self) -> tuple[int, int] | None:
        """Iteration and block of the earliest wait that ended in vain."""
        return None if self.late == NEVER else (self.late >> 32, self.late & 0xFFFFFFFF)


def place(index: int, flag: int) -> int:
    """What a word that was taken adds to the sum."""
    return index * 0x9E3779B97F4A7C15 + flag * 0xD1B54A32D192ED03


@dataclass
class Exchange:
    """One run: its size and what is to be lost, then what came of it."""

    protocol: Protocol
    machine: Machine
    seed: int
    nbytes: int = 4096
    blocks: int = 0
    """0 for as many as the plugin would launch."""
    iterations: int = 6
    first_flag: int = 1
    lost: tuple[str, int, int] | None = None
    """An array, the word in it, and which store to it, counted from 1, never arrives."""
    turns: int = 500
    """How many turns every wave gets, more or less, until a wait is over its deadline."""
    ended_after: int = 0
    """Ticks; 0 when the kernels did not end by themselves."""
    sender: Report = field(default_factory=Report)
    receiver: Report = field(default_factory=Report)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def run(self, library: ctypes.CDLL, entry: str = "exchange") -> Exchange:
        blocks = self.blocks = self.blocks or self.protocol.blocks(self.nbytes)
        lines = self.protocol.lines(self.nbytes)
        words = {
            "ring": lines * self.protocol.line_bytes // 8,
            "back": 2,
            "ack": 1,
            "arrived": 1,
            "stamps": 2 * (1 + self.iterations),
        }
        self.arrays = {name: np.zeros(count, dtype=np.uint64) for name, count in words.items()}
        message = Message(
            **{name: array.ctypes.data for name, array in self.arrays.items()},
            sender=ctypes.addressof(self.sender),
            receiver=ctypes.addressof(self.receiver),
            blocks=blocks,
            lines=lines,
            iterations=self.iterations,
            first_flag=self.first_flag,
            ticks=self.deadline_ticks,
            seed=LEADERS_SEED,
        )
        settings = Settings(
            model=self.machine.model,
            lanes_a_wave=self.machine.lanes_a_wave,
            seed=self.seed,
            limit=100 * self.deadline_ticks,
        )
        if self.lost:
            array, word, settings.lost_store = self.lost
            settings.lost_word = self.arrays[array].ctypes.data + 8 * word
        call = getattr(library, entry)
        call.restype = ctypes.c_uint64
        self.ended_after = call(ctypes.byref(settings), ctypes.byref(message))
        return self

    @property
    def deadline_ticks(self) -> int:
        return self.turns * 2 * self.blocks * THREADS_A_BLOCK // self.machine.lanes_a_wave

    @property
    def faults(self) -> list[str]:
        """What is wrong with the run; empty when every word of every message came, once and whole."""
        flags = range(self.first_flag, self.first_flag + self.iterations)
        words = self.protocol.lines(self.nbytes) * self.protocol.words_a_line
        total = sum(place(index, flag) for flag in flags for index in range(words)) % 2**64
        checks = {
            "did not end": self.ended_after > 0,
            f"sender late at {self.sender.late_at}": self.sender.late_at is None,
            f"receiver late at {self.receiver.late_at}": self.receiver.late_at is None,
            f"{self.receiver.wrong_words} wrong words": self.receiver.wrong_words == 0,
            "wrong sum": self.receiver.sum == total,
            f"last ACK {self.arrays['ack'][0]}": self.arrays["ack"][0] == flags[-1],
        }
        return [fault for fault, holds in checks.items() if not holds]


@dataclass(frozen=True)
class Builder:
    """Builds each protocol of each source text once, into ``folder``."""

    folder: Path

    def __post_init__(self) -> None:
        for source, object_name in ((HERE / "weak_memory.cpp", "weak_memory.o"), (FIBRES / "fibre.cpp", "fibre.o")):
            _compile("-O2", f"-I{FIBRES}", "-c", str(source), "-o", str(self.folder / object_name))

    def build(self, text: str, protocol: Protocol, words_a_lane: int) -> ctypes.CDLL:
        """Return the library of a source text; one library must not run in two threads at a time."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        library = self.folder / f"{digest}-{protocol.order}-{protocol.line_bytes}-{words_a_lane}.so"
        if not library.exists():
            source = library.with_suffix(".hip")
            source.write_text(text, encoding="utf-8")
            defines = {
                "TB_LINE": protocol.line_bytes,
                "TB_ORDER": protocol.order,
                "TB_WORDS_A_LANE": words_a_lane,
                "TB_HASHED": 1,
                "TB_SOURCE": f'"{source}"',
            }
            _compile(
                *("-O1", "-shared", *(f"-D{name}={value}" for name, value in defines.items())),
                *(str(HERE / "exchange.cpp"), str(self.folder / "weak_memory.o"), str(self.folder / "fibre.o")),
                *("-o", str(library)),
            )
        return ctypes.CDLL(str(library))


def _compile(*arguments: str) -> None:
    done = subprocess.run([*COMPILE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

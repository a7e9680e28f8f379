"""TransferBench's configuration files: a Test, or a Transfer by itself, a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_transferbench.transfer.ends import Places
from pytest_transferbench.transfer.notation import parse_line
from pytest_transferbench.transfer.test import TransferOrTest, together
from pytest_transferbench.transfer.transfer import Transfer


@dataclass(frozen=True)
class Config:
    """What a configuration file asks for.

    ``tests`` are in the order of its lines, each once; ``notes`` are lines for the reader: comments that begin with
    ``##``, and where a line repeats another.
    """

    tests: tuple[TransferOrTest, ...]
    notes: tuple[str, ...] = ()


def parse_config(
    text: str,
    name: str,
    sizes: Iterable[int],
    places: Places | None = None,
    finish: Callable[[Transfer], Transfer] = lambda transfer: transfer,
) -> Config:
    """Return what the configuration file ``name`` with this ``text`` asks for.

    A line whose Transfers do not all name their bytes is taken once for each of the ``sizes``. ``finish`` fills in
    what a line leaves open. Raises ``ValueError`` in one line that begins with the file's name and the line's number,
    and for a file that asks for nothing.
    """
    sizes = tuple(sizes)
    lines: dict[TransferOrTest, int] = {}
    notes: list[str] = []
    for number, line in enumerate(text.removeprefix("\N{BYTE ORDER MARK}").split("\n"), start=1):
        comment = line.strip()
        if comment.startswith("##"):
            notes.append(f"{name}:{number}: {comment}")
        try:
            found = [
                together(tuple(map(finish, parsed))) for size in sizes if (parsed := parse_line(line, size, places))
            ]
        except ValueError as error:
            raise ValueError(f"{name}:{number}: {error}") from None
        for test in dict.fromkeys(found):
            if lines.setdefault(test, number) != number:
                notes.append(f"{name}:{number}: {test.case_name()} is in line {lines[test]} already, and run once")
    if not lines:
        raise ValueError(f"{name}: it has no line with Transfers, such as 1 8 (G0->G0->G1)")
    return Config(tuple(lines), tuple(notes))

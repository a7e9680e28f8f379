"""What a compiler made of a kernel: blocks of instructions, with what each does to memory and where it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal, TypeVar

Kind = Literal["load", "store", "atomic", "write back", "invalidate", "fence", "wait", "barrier", "branch", "other"]
Space = Literal["", "global", "generic", "private", "shared"]
"""``generic``: the instruction finds out by itself where an address leads. ``private``: a thread's own, spilled."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; ``place`` is the function of the kernel source it was made for, ``line`` that line's text."""

    text: str
    place: str = ""
    line: str = ""
    kind: Kind = "other"
    space: Space = ""
    width: int = 0
    """Bytes a thread."""
    system: bool = False
    """Goes past every cache that another device does not see."""
    waits: tuple[tuple[str, int], ...] = ()
    """AMD: no more than so many operations of a counter are under way afterwards."""
    guard: str = ""
    """NVIDIA: the predicate that it runs under."""

    @property
    def operation(self) -> str:
        return self.text.split()[0]

    def leaves(self, counter: str) -> int | None:
        """Return how many operations of ``counter`` may still be under way after this wait; ``None`` if it is none."""
        return dict(self.waits).get(counter)


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run one after the other, and the blocks that may be next."""

    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """One kernel's code for ``arch``; the first block is where it begins."""

    name: str
    arch: str
    blocks: tuple[Block, ...]
    stack_bytes: int = 0
    spills: int = 0

    def __iter__(self) -> Iterator[Instruction]:
        for block in self.blocks:
            yield from block.instructions

    @property
    def amd(self) -> bool:
        return self.arch.startswith("gfx")

    @cached_property
    def _dominators(self) -> list[set[int]]:
        everything = set(range(len(self.blocks)))
        above = [{0}, *(set(everything) for _ in self.blocks[1:])]
        before: list[list[int]] = [[] for _ in self.blocks]
        for index, block in enumerate(self.blocks):
            for successor in block.successors:
                before[successor].append(index)
        changed = True
        while changed:
            changed = False
            for index in range(1, len(self.blocks)):
                new = {index}.union(set.intersection(*(above[b] for b in before[index])) if before[index] else set())
                if new != above[index]:
                    above[index], changed = new, True
        return above

    @cached_property
    def back_edges(self) -> frozenset[tuple[int, int]]:
        """The edges that lead back to where a loop begins."""
        return frozenset(
            (index, successor)
            for index, block in enumerate(self.blocks)
            for successor in block.successors
            if successor in self._dominators[index]
        )

    @cached_property
    def loops(self) -> tuple[frozenset[int], ...]:
        """The blocks of every loop, the innermost loops first."""
        bodies: dict[int, set[int]] = {}
        before: dict[int, list[int]] = {index: [] for index in range(len(self.blocks))}
        for index, block in enumerate(self.blocks):
            for successor in block.successors:
                before[successor].append(index)
        for tail, head in self.back_edges:
            body, todo = bodies.setdefault(head, {head}), [tail]
            while todo:
                index = todo.pop()
                if index not in body:
                    body.add(index)
                    todo += before[index]
        return tuple(sorted(map(frozenset, bodies.values()), key=len))

    def innermost(self, block: int) -> frozenset[int]:
        """Return the blocks of the innermost loop around a block; none where it is in no loop."""
        return next((loop for loop in self.loops if block in loop), frozenset())

    def where(self, test: Callable[[Instruction], bool]) -> list[int]:
        """Return the blocks that hold an instruction of this kind."""
        return [index for index, block in enumerate(self.blocks) if any(map(test, block.instructions))]


State = TypeVar("State", bound=Hashable)


def follow(
    kernel: Kernel,
    start: State,
    step: Callable[[State, Instruction], tuple[State, str]],
    *,
    from_block: int = 0,
    back: bool = True,
) -> list[str]:
    """Walk every path through a kernel with a small state machine, and return what it complained of.

    ``step`` gives the next state and a complaint, empty where there is none. States must be few: every block is walked
    once in each state that it can be entered in. Without ``back`` no path goes round a loop.
    """
    complaints: dict[str, None] = {}
    seen = {(from_block, start)}
    todo = [(from_block, start)]
    while todo:
        index, state = todo.pop()
        block = kernel.blocks[index]
        for instruction in block.instructions:
            state, complaint = step(state, instruction)
            if complaint:
                complaints[f"{kernel.name}: {complaint}: {instruction.text}"] = None
        for successor in block.successors:
            entry = (successor, state)
            if entry not in seen and (back or (index, successor) not in kernel.back_edges):
                seen.add(entry)
                todo.append(entry)
    return list(complaints)


@dataclass
class Lines:
    """Which function of a kernel source each of its lines belongs to."""

    name: str
    text: str
    functions: list[str] = field(init=False)

    def __post_init__(self) -> None:
        function, self.functions = "", [""]
        for line in self.text.splitlines():
            if found := re.match(r"(?:__device__|TB_KERNEL).*?\b(tb_\w+)\(", line):
                function = found[1]
            self.functions.append(function)

    def origin(self, number: int) -> tuple[str, str]:
        """Return function and text of a line; both empty for line 0, the compiler's word for code of no line."""
        if not 0 < number < len(self.functions):
            return "", ""
        return self.functions[number], self.text.splitlines()[number - 1].strip()


def _into_blocks(pieces: list[tuple[list[str], list[Instruction]]], arch: str) -> tuple[Block, ...]:
    """Join pieces, each with its labels and at most one branch at its end, by where the branches lead."""
    at = {label: index for index, (labels, _) in enumerate(pieces) for label in labels}
    blocks = []
    for index, (_, instructions) in enumerate(pieces):
        last = instructions[-1] if instructions else Instruction("")
        targets = {at[label] for label in re.findall(r"\.L\w+", last.text)} if last.kind == "branch" else set()
        falls_through = last.kind != "branch" or not _always_leaves(last)
        if falls_through and index + 1 < len(pieces):
            targets.add(index + 1)
        blocks.append(Block(tuple(instructions), tuple(sorted(targets))))
    return tuple(blocks)


def _always_leaves(branch: Instruction) -> bool:
    words = branch.text.split()
    if words[0] in ("s_branch", "s_endpgm"):
        return True
    return not branch.guard and (words[0] == "EXIT" or (words[0] == "BRA" and len(words) == 2))


# -- AMD ---------------------------------------------------------------------------------------------------------------

_AMD_WIDTHS = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_AMD_SPACES: dict[str, Space] = {"global": "global", "flat": "generic", "scratch": "private", "buffer": "private"}


_AMD_OTHER_WAITS = re.compile(r"s_waitcnt_depctr|s_wait_(alu|event|(x|exp|sample|bvh)cnt)")
"""Waits for nothing that moves between registers and the memory that is looked at here."""


def amd_family(arch: str) -> str:
    """Return ``gfx9``, ``gfx10`` or ``gfx12``, by which counters hold loads and stores: gfx11's are those of gfx10."""
    families = {"gfx9": "gfx9", "gfx10": "gfx10", "gfx11": "gfx10", "gfx12": "gfx12"}
    family = next((family for start, family in families.items() if arch.startswith(start)), None)
    if family is None:
        raise ValueError(f"cannot read the waits of {arch}: {', '.join(families)} are known")
    return family


def amd_kernels(assembly: str, arch: str, lines: Lines) -> dict[str, Kernel]:
    """Read what clang wrote for an AMD GPU, with ``-gline-tables-only``; ``ValueError`` for waits it cannot read."""
    amd_family(arch)
    spills = {
        name: int(sgprs) + int(vgprs)
        for name, sgprs, vgprs in re.findall(
            r"^    \.name: +(\w+)\n(?:^    .*\n)*?^    \.sgpr_spill_count: (\d+)\n"
            r"(?:^    .*\n)*?^    \.vgpr_spill_count: (\d+)\n",
            assembly,
            re.M,
        )
    }
    files = dict(re.findall(r'^\t\.file\t(\d+) .*?"([^"]+)"(?: md5 \w+)?$', assembly, re.M))
    kernels = {}
    for name, body in re.findall(r"^(\w+):\s+; @\w+\n(.*?)^\.Lfunc_end\d+:", assembly, re.S | re.M):
        stack = re.search(r"\.amdhsa_private_segment_fixed_size (\d+)", body)
        assert stack is not None
        pieces: list[tuple[list[str], list[Instruction]]] = [([], [])]
        origin = ("", "")
        for row in body.splitlines():
            if label := re.match(r"(\.LBB\w+):", row):
                if pieces[-1][1]:
                    pieces.append(([], []))
                pieces[-1][0].append(label[1])
            elif place := re.match(r"\t\.loc\t(\d+) (\d+)", row):
                inside = files[place[1]].endswith(lines.name)
                origin = lines.origin(int(place[2])) if inside else ("", "")
            elif re.match(r"\t[a-z]", row):
                instruction = _amd_instruction(row.split(";")[0].strip(), arch, *origin)
                pieces[-1][1].append(instruction)
                if instruction.kind == "branch":
                    pieces.append(([], []))
        kernels[name] = Kernel(name, arch, _into_blocks(pieces, arch), int(stack[1]), spills[name])
    return kernels


def _amd_instruction(text: str, arch: str, place: str, line: str) -> Instruction:
    operation, _, operands = text.partition(" ")
    kind: Kind = "other"
    space: Space = ""
    if re.match(r"s_(c?branch|endpgm)", operation):
        kind = "branch"
    elif operation in ("s_barrier", "s_barrier_signal"):
        kind = "barrier"
    elif re.match(r"(buffer_wbl2|global_wb$)", operation):
        kind = "write back"
    elif re.match(r"(buffer_inv|buffer_wbinv|buffer_gl[01]_inv|global_inv)", operation):
        kind = "invalidate"
    elif found := re.match(r"(global|flat|scratch|buffer)_(load|store|atomic)", operation):
        space, kind = _AMD_SPACES[found[1]], found[2]  # type: ignore[assignment]
    elif found := re.match(r"ds_(read|load|write|store)", operation):
        space, kind = "shared", "load" if found[1] in ("read", "load") else "store"
    waits = _amd_waits(operation, operands)
    width = _AMD_WIDTHS.get(operation.rpartition("_")[2], 0)
    of_interest = space == "global" or kind in ("write back", "invalidate")
    system = of_interest and _amd_system(operation, set(operands.split()), arch, kind)
    return Instruction(text, place, line, "wait" if waits else kind, space, width, system, waits)


def _amd_system(operation: str, bits: set[str], arch: str, kind: Kind) -> bool:
    """Whether these bits of an access mean system scope; being non-temporal is something else."""
    if bits & {"nt", "slc"} or any(bit.startswith("th:") for bit in bits):
        return False
    if arch.startswith("gfx90"):
        return kind in ("store", "write back", "invalidate") or "glc" in bits
    if amd_family(arch) == "gfx10":  # stores go through to the L2, and so to the system; only the two L1s are passed by
        if kind == "invalidate":
            return operation == "buffer_gl1_inv"
        return kind == "store" or bits >= ({"glc"} if arch.startswith("gfx11") else {"glc", "dlc"})
    return bits >= ({"sc0", "sc1"} if arch.startswith("gfx9") else {"scope:SCOPE_SYS"})


def _amd_waits(operation: str, operands: str) -> tuple[tuple[str, int], ...]:
    if operation == "s_waitcnt":
        return tuple((counter, int(n)) for counter, n in re.findall(r"(\w+)\((\d+)\)", operands))
    if operation == "s_waitcnt_vscnt":
        return (("vscnt", int(operands.removeprefix("null, "), 0)),)
    if not (found := re.fullmatch(r"s_wait_(load|store|ds|km)cnt(_dscnt)?", operation)):
        if operation.startswith("s_wait") and not _AMD_OTHER_WAITS.fullmatch(operation):
            raise ValueError(f"cannot read what this waits for: {operation} {operands}")
        return ()
    count = int(operands, 0)
    if not found[2]:
        return ((found[1] + "cnt", count),)
    return ((found[1] + "cnt", count >> 8), ("dscnt", count & 63))


# -- NVIDIA ------------------------------------------------------------------------------------------------------------

_NVIDIA_ACCESSES: dict[str, tuple[Kind, Space]] = {
    **{name: ("load", space) for name, space in (("LDG", "global"), ("LD", "generic"), ("LDL", "private"))},
    **{name: ("store", space) for name, space in (("STG", "global"), ("ST", "generic"), ("STL", "private"))},
    **{name: ("atomic", space) for name, space in (("ATOMG", "global"), ("REDG", "global"), ("RED", "global"))},
    **{name: ("atomic", "generic") for name in ("ATOM",)},
    **{name: (kind, "shared") for name, kind in (("LDS", "load"), ("STS", "store"))},
    "MEMBAR": ("fence", ""),
    "BAR": ("barrier", ""),
}
_NVIDIA_BRANCHES = ("BRA", "EXIT")
_NVIDIA_UNREADABLE = ("BRX", "JMX", "JMP")


def nvidia_kernels(assembly: str, arch: str, lines: Lines) -> dict[str, Kernel]:
    """Read what ``nvdisasm -gi`` wrote of a binary made with ``-lineinfo``."""
    kernels = {}
    for name, body in re.findall(r"^\.text\.(\w+):\n(.*?)(?=^//---|\Z)", assembly, re.S | re.M):
        pieces: list[tuple[list[str], list[Instruction]]] = [([], [])]
        chain: list[tuple[str, int]] = []
        origin = ("", "")
        for row in body.splitlines():
            if label := re.match(r"(\.L\w+):", row):
                if pieces[-1][1]:
                    pieces.append(([], []))
                pieces[-1][0].append(label[1])
            elif place := re.match(r'\s*//## File "(?:[^"]*/)?([^"/]+)", line (\d+)', row):
                chain.append((place[1], int(place[2])))
            elif found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+) )?\s*(\S[^;]*?)\s*(?:;|$)", row):
                if chain:  # from the innermost call outwards
                    inside = [number for file, number in chain if file == lines.name and lines.origin(number)[0]]
                    origin, chain = lines.origin(inside[0]) if inside else ("", ""), []
                instruction = _nvidia_instruction(found[2], found[1] or "", *origin)
                pieces[-1][1].append(instruction)
                if instruction.kind == "branch":
                    pieces.append(([], []))
        kernels[name] = Kernel(name, arch, _into_blocks(pieces, arch))
    return kernels


def _nvidia_instruction(text: str, guard: str, place: str, line: str) -> Instruction:
    operation, *modifiers = text.split()[0].split(".")
    if operation in _NVIDIA_UNREADABLE:
        raise ValueError(f"cannot follow where this leads: {text}")
    kind, space = _NVIDIA_ACCESSES.get(operation, ("branch" if operation in _NVIDIA_BRANCHES else "other", ""))
    width = next((int(bits) // 8 for bits in modifiers if bits in ("64", "128")), 4) if space else 0
    system = "STRONG" in modifiers and "SYS" in modifiers
    return Instruction(text, place, line, kind, space, width, system, guard=guard)


@cache
def registers(text: str) -> frozenset[int]:
    """Return the general registers that an NVIDIA instruction names."""
    return frozenset(int(number) for number in re.findall(r"\bR(\d+)\b", text))

"""What the code of a kernel must do whatever the compiler: each contract returns what breaks it.

Orders are checked along every path through a kernel. They read code as wavefronts and warps run it: a wait or a fence
counts for all lanes, and a branch that skips code for some lanes is a path like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.kernels.machine_code import Instruction, Kernel, amd_family, follow, registers

_CLOCK = re.compile("s_memrealtime|MSG_RTN_GET_REALTIME|SR_GLOBALTIMER")
MOST = 16
"""Loads under way at once are counted no further, so that there is an end to the states of a kernel."""

Test = Callable[[Instruction], bool]
Step = tuple[str, Test]


def is_data_store(instruction: Instruction) -> bool:
    """Stores words of a line."""
    return instruction.kind == "store" and instruction.place == "tb_put"


def is_flag_store(instruction: Instruction) -> bool:
    """Stores the flag that tells of a line."""
    return instruction.kind == "store" and instruction.place == "tb_send_message" and instruction.space != "shared"


def is_data_load(instruction: Instruction) -> bool:
    """Loads words of a line whose flag has been seen; a packed line is data and flags in one."""
    packed = instruction.place == "tb_receive_message" and "tb_load_pair" in instruction.line
    return instruction.kind == "load" and (instruction.place == "tb_get" or packed)


def is_poll(instruction: Instruction) -> bool:
    """Loads the flag of a line."""
    from_memory = instruction.kind == "load" and instruction.space != "shared"
    return from_memory and instruction.place == "tb_receive_message" and not is_data_load(instruction)


def is_poll_of_ack(instruction: Instruction) -> bool:
    """Loads the ACK, or the line that comes back."""
    from_memory = instruction.kind == "load" and instruction.space != "shared"
    return from_memory and instruction.place in ("tb_ll_send", "tb_ll_ping_pong")


def is_ack(instruction: Instruction) -> bool:
    """Stores the ACK."""
    return instruction.kind == "store" and instruction.place == "tb_ll_receive" and "ack" in instruction.line


def _counter(kernel: Kernel, kind: str) -> str:
    """The counter of the family that holds loads or stores."""
    if not kernel.amd:
        return ""
    counters = {"gfx9": ("vmcnt", "vmcnt"), "gfx10": ("vmcnt", "vscnt"), "gfx12": ("loadcnt", "storecnt")}
    return counters[amd_family(kernel.arch)][kind == "store"]


def _is(kind: str) -> Test:
    return lambda instruction: instruction.kind == kind


def _starts(operation: str) -> Test:
    return lambda instruction: instruction.operation.startswith(operation)


def _drained(kernel: Kernel) -> Step:
    counter = _counter(kernel, "store")
    return f"a wait for {counter} 0", lambda instruction: instruction.leaves(counter) == 0


# Lanes of a warp come together: an instruction, or none but its place where the compiler knows that they are.
_TOGETHER = (
    "the lanes together",
    lambda instruction: "tb_wave_sync()" in instruction.line and instruction.operation.startswith(("WARPSYNC", "NOP")),
)
_VOTE = (
    "the vote",
    lambda instruction: "tb_any(missing)" in instruction.line and instruction.operation.startswith(("s_cb", "VOTE")),
)
_BARRIER = ("a barrier", _is("barrier"))
_RELEASE = ("MEMBAR.ALL.SYS", _starts("MEMBAR.ALL.SYS"))
_FENCE = ("MEMBAR.SC.SYS", _starts("MEMBAR.SC.SYS"))


def _between_data_and_flag(kernel: Kernel, order: str) -> list[Step]:
    if not kernel.amd:
        middle = {"sc": [_TOGETHER, _RELEASE], "sc+wb": [_TOGETHER, _FENCE], "tf": [_FENCE, _BARRIER]}
        return list(middle[order])
    drain, write_back = _drained(kernel), ("a write-back", _is_costly)
    invalidate = ("an invalidate", _invalidates)
    if amd_family(kernel.arch) == "gfx10":  # nothing is left to be written back
        return {"sc": [drain], "sc+wb": [drain, drain, invalidate], "tf": [drain, invalidate, _BARRIER]}[order]
    return {
        "sc": [drain],
        "sc+wb": [drain, write_back, drain, invalidate],
        "tf": [write_back, drain, _BARRIER],
    }[order]


def _follows(
    kernel: Kernel, steps: list[Step], since: Test, then: Test, *, once: bool = False, always: bool = True
) -> list[str]:
    """Between what is `since` and what is `then` all steps are taken, in this order, on every path.

    With ``once`` every ``then`` needs steps of its own; without ``always`` paths that were never at ``since`` need
    none.
    A step under a predicate counts for what runs under the same.
    """

    def step(state: tuple[int, str], instruction: Instruction) -> tuple[tuple[int, str], str]:
        taken, guard = state
        if since(instruction):
            return (0, ""), ""
        if then(instruction):
            complaint = ""
            if taken < len(steps):
                complaint = f"reached without {steps[taken][0]}"
            elif guard not in ("", instruction.guard):
                complaint = f"what comes before it runs under {guard}"
            return ((0, "") if once else state), complaint
        if taken < len(steps) and steps[taken][1](instruction):
            return (taken + 1, instruction.guard or guard), ""
        if guard.strip("!") in _set_predicates(instruction):
            return (taken, "another condition"), ""
        return state, ""

    return _some(kernel, since=since, then=then) or follow(kernel, (0 if always else len(steps), ""), step)


def _set_predicates(instruction: Instruction) -> set[str]:
    _, _, operands = instruction.text.partition(" ")
    return {operand for operand in operands.replace(",", " ").split()[:2] if operand.startswith(("P", "UP"))}


def _some(kernel: Kernel, **tests: Test) -> list[str]:
    """A contract about something that is not there says nothing: that is a breach too."""
    return [f"{kernel.name}: found none of what {name} names" for name, test in tests.items() if not kernel.where(test)]


def data_before_flag(kernel: Kernel, order: str) -> list[str]:
    """Between the data of a line and its flag stands what the protocol promises, and data does not come after it."""
    steps = _between_data_and_flag(kernel, order)
    broken = _follows(kernel, steps, is_data_store, is_flag_store, once=order != "tf")
    if not kernel.amd or broken:
        return broken
    for block in kernel.where(is_flag_store):
        broken += follow(kernel, False, _data_after_flag, from_block=block, back=False)
    return broken


def _data_after_flag(flag_is_out: bool, instruction: Instruction) -> tuple[bool, str]:
    if is_data_store(instruction) and flag_is_out:
        return True, "stored after the flag, in the same turn"
    return flag_is_out or is_flag_store(instruction), ""


def fences_where_due(kernel: Kernel, order: str) -> list[str]:
    """No more write-backs than the protocol pays for: none, one for every line, or one for the message."""
    costly = _costly(kernel)
    data_loops = _loops_of_stores(kernel, is_data_store)
    places = [block for block, each in enumerate(kernel.blocks) for one in each.instructions if costly(one)]
    inside = [block for block in places if any(block in loop for loop in data_loops)]
    if order in ("ll", "sc"):
        return [f"{kernel.name}: {len(places)} write-backs, {order} has none"] if places else []
    if order == "sc+wb":
        turns = sum(map(is_flag_store, kernel))  # a compiler may have laid several turns side by side
        short = len(places) != turns or not inside
        return [f"{kernel.name}: {len(places)} write-backs for {turns} flags, one for each is due"] if short else []
    broken = [f"{kernel.name}: a write-back in the data loop"] if inside else []
    if len(places) != 1 or not kernel.innermost(places[0]):
        broken.append(f"{kernel.name}: {len(places)} write-backs, one an iteration is due")
    return broken


def _costly(kernel: Kernel) -> Test:
    """What a system fence has that nothing else has, and that takes its time."""
    if not kernel.amd:
        return _FENCE[1]
    return _invalidates if amd_family(kernel.arch) == "gfx10" else _is_costly


def _invalidates(instruction: Instruction) -> bool:
    return instruction.kind == "invalidate" and instruction.system


def _is_costly(instruction: Instruction) -> bool:
    return instruction.kind == "write back" and instruction.system


def _loops_of_stores(kernel: Kernel, stores: Test) -> list[frozenset[int]]:
    """The loops around stores of a message: all but the one that also waits for its ACK."""
    return [
        loop for loop in kernel.loops if loop & {*kernel.where(stores)} and not loop & {*kernel.where(is_poll_of_ack)}
    ]


def system_scope(kernel: Kernel) -> list[str]:
    """Every access to the ring and to the ACK is whole, and goes past all caches that the other side does not see."""

    def is_shared_with_peer(instruction: Instruction) -> bool:
        load = is_data_load(instruction) or is_poll(instruction) or is_poll_of_ack(instruction)
        pair = instruction.kind == "store" and "tb_put" in instruction.line
        return load or pair or is_data_store(instruction) or is_flag_store(instruction) or is_ack(instruction)

    def is_pair(instruction: Instruction) -> bool:
        return not kernel.amd and (instruction.place in ("tb_put", "tb_get") or "tb_load_pair" in instruction.line)

    broken = []
    for instruction in filter(is_shared_with_peer, kernel):
        if not instruction.system:
            broken.append(f"{kernel.name}: not at system scope: {instruction.text}")
        due = 16 if is_pair(instruction) else 8
        if instruction.width != due:
            broken.append(f"{kernel.name}: {instruction.width} bytes, {due} are due: {instruction.text}")
    return broken or _some(kernel, ring=is_shared_with_peer)


def data_after_flag_was_seen(kernel: Kernel, order: str) -> list[str]:
    """Data is loaded after the flags have been: after the vote on them, or after the barrier where all share them."""
    steps = [_BARRIER] if order == "tf" else [_VOTE]
    if kernel.amd:
        counter = _counter(kernel, "load")
        steps.insert(0, (f"a wait for {counter} 0", lambda instruction: instruction.leaves(counter) == 0))
    return _follows(kernel, steps, is_poll, is_data_load, always=order != "tf")


def complete_before_ack(kernel: Kernel) -> list[str]:
    """No wave passes the barrier before the ACK, nor gives the ACK, with data still on its way."""
    in_flight = _data_in_flight(kernel, is_data_load)

    def step(state: tuple[int, ...], instruction: Instruction) -> tuple[tuple[int, ...], str]:
        if instruction.place == "tb_give_up":  # there will be no ACK
            return (), ""
        after = in_flight(state, instruction)
        late = after and (instruction.kind == "barrier" or is_ack(instruction))
        return after, "reached with loads of data under way" if late else ""

    return _some(kernel, data=is_data_load, acks=is_ack) or follow(kernel, (), step)


def waits_end(kernel: Kernel) -> list[str]:
    """No loop polls without ever looking at the clock."""

    def polls(instruction: Instruction) -> bool:
        packed = is_data_load(instruction) and instruction.place == "tb_receive_message"
        return packed or is_poll(instruction) or is_poll_of_ack(instruction)

    clocks = {*kernel.where(lambda instruction: bool(_CLOCK.search(instruction.text)))}
    loops = {loop for block in kernel.where(polls) if (loop := kernel.innermost(block))}
    blind = [
        f"{kernel.name}: a loop of {len(loop)} blocks polls without a clock" for loop in loops if not loop & clocks
    ]
    return blind or _some(kernel, polls=polls)


def under_way(kernel: Kernel, loads: Test, due: int) -> list[str]:
    """Somewhere in the kernel ``due`` of these loads are under way at once."""
    in_flight, most = _data_in_flight(kernel, loads), 0

    def step(state: tuple[int, ...], instruction: Instruction) -> tuple[tuple[int, ...], str]:
        nonlocal most
        after = in_flight(state, instruction)
        most = max(most, len(after))
        return after, ""

    follow(kernel, (), step)
    return [f"{kernel.name}: {most} loads under way at once, {due} are due"] if most < due else []


def _data_in_flight(kernel: Kernel, loads: Test) -> Callable[[tuple[int, ...], Instruction], tuple[int, ...]]:
    """The loads under way, oldest first.

    AMD: by how many later operations of their counter have been issued; a wait leaves the latest so many.
    NVIDIA: by their registers; an instruction that names one is not issued before the load is over.
    """
    counter = _counter(kernel, "load")
    counted = ("load", "store", "atomic") if counter == _counter(kernel, "store") else ("load",)

    def amd(state: tuple[int, ...], instruction: Instruction) -> tuple[int, ...]:
        left = instruction.leaves(counter)
        if left is not None:
            return tuple(age for age in state if age < left)
        if instruction.kind in counted and instruction.space == "global":
            state = tuple(min(age + 1, MOST) for age in state)
        return (*state, 0)[-MOST:] if loads(instruction) else state

    def nvidia(state: tuple[int, ...], instruction: Instruction) -> tuple[int, ...]:
        named = registers(instruction.text)
        left = tuple(first for first in state if named.isdisjoint(range(first, first + width)))
        return (*left, min(registers(instruction.text.split(",")[0]))) if loads(instruction) else left

    width = max((one.width // 4 for one in kernel if loads(one)), default=0)
    return amd if kernel.amd else nvidia


def unbroken_stream(kernel: Kernel, stores: Test) -> list[str]:
    """Nothing waits for stores between one of these and the next: they leave back to back."""
    counter = _counter(kernel, "store")
    broken = []
    for loop in _loops_of_stores(kernel, stores):
        for instruction in (one for block in loop for one in kernel.blocks[block].instructions):
            if instruction.kind in ("write back", "fence", "barrier") or _waits_for_stores(instruction, counter):
                broken.append(f"{kernel.name}: in the loop of stores: {instruction.text}")
    return broken or _some(kernel, stores=stores)


def _waits_for_stores(instruction: Instruction, counter: str) -> bool:
    return instruction.leaves(counter) == 0


def in_registers(kernel: Kernel) -> list[str]:
    """Addresses are known to lead to global memory, and nothing is spilled."""
    broken = [
        f"{kernel.name}: {instruction.space} access: {instruction.text}"
        for instruction in kernel
        if instruction.space in ("generic", "private")
    ]
    if kernel.stack_bytes or kernel.spills:
        broken.append(f"{kernel.name}: {kernel.stack_bytes} bytes of stack, {kernel.spills} registers spilled")
    return broken


def loads_before_stores(kernel: Kernel, place: str, unroll: int) -> list[str]:
    """The loop of a copy begins with all of its loads of 16 bytes, and none of them is waited for until all are out."""
    wide = [
        block
        for block in kernel.where(lambda one: one.kind == "store" and one.place == place and one.width == 16)
        if block in kernel.blocks[block].successors
    ]
    if not wide:
        return [f"{kernel.name}: no loop of 16-byte stores"]
    broken = []
    for block in wide:
        loads = 0
        for instruction in kernel.blocks[block].instructions:
            if instruction.kind == "store":
                break
            loads += instruction.kind == "load" and instruction.width == 16
        if loads != unroll:
            broken.append(f"{kernel.name}: {loads} loads of 16 bytes before the first store, {unroll} are due")
    return broken or under_way(kernel, lambda one: one.kind == "load" and one.width == 16, unroll)

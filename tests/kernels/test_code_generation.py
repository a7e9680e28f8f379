"""What compilers make of the kernels: the contracts hold on every target, and each is seen broken on a mutated kernel.

No GPU is needed: clang-19 comes from Debian, ziglang's clang and NVIDIA's run-time compiler from PyPI.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import hipkernels
from pytest_transferbench.latency.ring import ORDERS
from pytest_transferbench.transfer import PROTOCOLS, Protocol, protocols
from tests.kernels import contracts
from tests.kernels.compilers import CompilationError, Compiled, Target, Workshop
from tests.kernels.machine_code import Instruction, Lines, amd_kernels

GFX90A, GFX942, GFX1100, GFX1201 = (Target(arch, "clang-19") for arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201"))
GFX950, GFX1250 = (Target(arch, "zig") for arch in ("gfx950", "gfx1250"))
SM_90 = Target("sm_90", "nvrtc")
TARGETS = (GFX90A, GFX942, GFX950, GFX1100, GFX1201, GFX1250, SM_90)
AMD = TARGETS[:-1]
MORE_TARGETS = (Target("gfx1030", "clang-19"), *(Target(arch, "nvrtc") for arch in ("sm_75", "sm_100")))
AHEAD = 4
"""``TB_AHEAD`` of ``ll.hip``."""
KINDS = ("ll", "sc", "sc+wb", "tf")

Contract = Callable[[Compiled, str], list[str]]


def kind(protocol: Protocol) -> str:
    return protocol.name.partition("-")[2] or "ll"


def _send(compiled: Compiled) -> contracts.Kernel:
    return compiled.kernels["tb_ll_send"]


def _receive(compiled: Compiled) -> contracts.Kernel:
    return compiled.kernels["tb_ll_receive"]


def _loads_under_way(compiled: Compiled, order: str) -> list[str]:
    kernel = _receive(compiled)
    # On AMD a line of LL is two loads of 8 bytes, and a lane of the others holds one word.
    words = 2 if kernel.amd and order == "ll" else 1
    return contracts.under_way(kernel, contracts.is_data_load, words * AHEAD)


def _polls_under_way(compiled: Compiled, order: str) -> list[str]:
    return contracts.under_way(_receive(compiled), contracts.is_poll, AHEAD)


CONTRACTS: dict[str, tuple[tuple[str, ...], Contract]] = {
    "data before flag": (KINDS[1:], lambda made, order: contracts.data_before_flag(_send(made), order)),
    "fences where due": (KINDS, lambda made, order: contracts.fences_where_due(_send(made), order)),
    "system scope": (
        KINDS,
        lambda made, order: [breach for kernel in made.kernels.values() for breach in contracts.system_scope(kernel)],
    ),
    "data after flag": (KINDS[1:], lambda made, order: contracts.data_after_flag_was_seen(_receive(made), order)),
    "complete before ACK": (KINDS, lambda made, order: contracts.complete_before_ack(_receive(made))),
    "waits end": (
        KINDS,
        lambda made, order: [breach for kernel in made.kernels.values() for breach in contracts.waits_end(kernel)],
    ),
    "loads under way": (KINDS, _loads_under_way),
    "polls under way": (KINDS[1:3], _polls_under_way),
    "stores back to back": (
        ("ll", "tf"),
        lambda made, order: contracts.unbroken_stream(_send(made), contracts.is_data_store),
    ),
    "in registers": (
        KINDS,
        lambda made, order: [breach for kernel in made.kernels.values() for breach in contracts.in_registers(kernel)],
    ),
}
"""Contracts by name: the kinds of protocol they are about, and what breaks them."""


def defines(protocol: Protocol, hashed: bool = False) -> dict[str, int]:
    return {"TB_LINE": protocol.line_bytes, "TB_ORDER": ORDERS[protocol.order], "TB_HASHED": int(hashed)}


def geometry(target: Target) -> dict[str, int]:
    """Return how the engine compiles the copy kernels for a target."""
    return {"TB_BLOCK": 512, "TB_UNROLL": 8} if target.compiler == "nvrtc" else {"TB_BLOCK": 256, "TB_UNROLL": 4}


def copies(target: Target, made: Compiled) -> list[str]:
    broken = [breach for kernel in made.kernels.values() for breach in contracts.in_registers(kernel)]
    for name in ("tb_copy", "tb_copy_many"):
        broken += contracts.loads_before_stores(made.kernels[name], "tb_copy_share", geometry(target)["TB_UNROLL"])
    return broken


@pytest.fixture(scope="module")
def workshop() -> Workshop:
    """Everything that these tests want compiled, begun at once."""
    made = Workshop()
    for target in TARGETS:
        if not target.lacking:
            for protocol in PROTOCOLS:
                made.order(target, "ll", defines(protocol))
    return made


def need(target: Target) -> None:
    if target.lacking:
        pytest.skip(target.lacking)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_protocol_is_what_its_code_does(workshop: Workshop, target: Target, protocol: Protocol) -> None:
    need(target)
    made = workshop.order(target, "ll", defines(protocol)).result()
    assert not made.warnings
    broken = {name: test(made, kind(protocol)) for name, (kinds, test) in CONTRACTS.items() if kind(protocol) in kinds}
    assert broken == {name: [] for name in broken}


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_hashing_words_changes_no_order(workshop: Workshop, target: Target) -> None:
    need(target)
    (protocol,) = protocols("ll128-sc")
    made = workshop.order(target, "ll", defines(protocol, hashed=True)).result()
    for name in ("data before flag", "system scope", "data after flag", "complete before ACK"):
        assert CONTRACTS[name][1](made, "sc") == []


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_copy_has_all_its_loads_under_way(workshop: Workshop, target: Target) -> None:
    need(target)
    made = workshop.order(target, "copy", geometry(target)).result()
    assert copies(target, made) == []


@pytest.mark.parametrize("target", [GFX942, GFX950], ids=str)
def test_a_kernel_for_one_xcc_asks_where_it_is_before_it_stores(workshop: Workshop, target: Target) -> None:
    need(target)
    made = workshop.order(target, "copy", {**geometry(target), "TB_XCC": 3, "TB_XCCS": 8}).result()
    assert made.warnings == ""
    assert copies(target, made) == []
    for kernel in made.kernels.values():
        asks = [place for place, instruction in enumerate(kernel) if "HW_REG_XCC_ID" in instruction.text]
        stores = [place for place, instruction in enumerate(kernel) if instruction.kind == "store"]
        assert len(asks) == 1
        assert asks[0] < stores[0]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_sum_has_its_loads_of_a_source_under_way(workshop: Workshop, target: Target) -> None:
    need(target)
    made = workshop.order(target, "reduce", geometry(target)).result().kernels["tb_reduce"]
    assert contracts.in_registers(made) == []
    assert (
        contracts.under_way(made, lambda one: one.kind == "load" and one.width == 16, geometry(target)["TB_UNROLL"])
        == []
    )


@pytest.mark.parametrize("target", [*TARGETS, *MORE_TARGETS], ids=str)
def test_every_source_compiles_without_a_warning(workshop: Workshop, target: Target) -> None:
    need(target)
    options = {
        name: {"copy": geometry(target), "reduce": geometry(target), "ll": defines(PROTOCOLS[0])}.get(name, {})
        for name in hipkernels.names()
    }
    for name, macros in options.items():
        assert workshop.order(target, name, macros).result().warnings == ""


@dataclass(frozen=True)
class Mutant:
    """An edit of the kernels' text that breaks a contract; ``protocol`` is empty for the copy kernels."""

    name: str
    contract: str
    protocol: str
    targets: tuple[Target, ...]
    edits: tuple[tuple[str, str], ...]

    def text(self) -> str:
        text = hipkernels.source("ll" if self.protocol else "copy")
        for old, new in self.edits:
            assert old in text, f"{self.name}: the kernels no longer say {old!r}"
            text = text.replace(old, new)
        return text


DRAIN = "    tb_drain();\n"
LINE_FENCE = "    if (TB_ORDER == TB_WRITTEN_BACK) tb_fence_system();\n"
ALL_FENCE = "  tb_fence_system();\n  __syncthreads();\n"
PUT = "if (line < share.lines) tb_put(ring, line, threadIdx.x % TB_LANES, flag);\n"
BARRIER = "  __syncthreads();\n  if (*leaving) return;\n"
POLL = "    for (;;) {\n"
LOAD = "return __hip_atomic_load(word, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);"
FENCE = "__device__ inline void tb_fence_system() { __threadfence_system(); }"
SETTLE = '#define TB_SETTLE(loaded) asm volatile("" : "+v"(loaded))'
UNSETTLED = "#define TB_SETTLE(loaded) (void)0"
LOOKS = "{ return ++wait.polls % TB_POLLS_A_LOOK == 0; }"
VECTOR = "typedef tb_u32 tb_v4 __attribute__((ext_vector_type(4)));"
STRUCT = "struct alignas(16) tb_v4 { tb_u32 x, y, z, w; };"
BOUNDS = '#define TB_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)'
FEWER_BOUNDS = '#define TB_KERNEL(threads, ...) extern "C" __global__ void __launch_bounds__(threads)'


def after_each_line(call: str) -> tuple[tuple[str, str], ...]:
    """Do something after every line's data that is due after all of it."""
    return ((PUT, f"{{ {PUT.strip()} {call} }}\n"),)


MUTANTS = (
    Mutant("no drain", "data before flag", "ll128-sc", AMD, ((DRAIN, ""),)),
    Mutant(
        "drain of loads",
        "data before flag",
        "ll128-sc",
        (GFX1201, GFX1250),
        (("s_wait_storecnt", "s_wait_loadcnt"),),
    ),
    Mutant(
        "drain of loads",
        "data before flag",
        "ll128-sc",
        (GFX1100,),
        (("s_waitcnt_vscnt null, 0x0", "s_waitcnt vmcnt(0)"),),
    ),
    Mutant("drain that leaves one", "data before flag", "ll128-sc", (GFX90A, GFX942), (("vmcnt(0)", "vmcnt(1)"),)),
    Mutant("flag does not release", "data before flag", "ll128-sc", (SM_90,), (("st.release.sys", "st.relaxed.sys"),)),
    Mutant("lanes apart", "data before flag", "ll128-sc", (SM_90,), (("{ __syncwarp(); }", "{}"),)),
    Mutant("no fence for a line", "data before flag", "ll64-sc+wb", TARGETS, ((LINE_FENCE, ""),)),
    Mutant(
        "fence within the GPU",
        "data before flag",
        "ll64-sc+wb",
        (GFX942, GFX950, GFX1201),
        ((FENCE, FENCE.replace("__threadfence_system()", '__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")')),),
    ),
    Mutant("no fence for all lines", "data before flag", "ll256-tf", TARGETS, ((ALL_FENCE, "  __syncthreads();\n"),)),
    Mutant(
        "a fence where none is due",
        "fences where due",
        "ll128-sc",
        TARGETS,
        ((DRAIN, f"{DRAIN}    tb_fence_system();\n"),),
    ),
    Mutant("a fence in the data loop", "fences where due", "ll128-tf", TARGETS, after_each_line("tb_fence_system();")),
    Mutant(
        "scope of the GPU",
        "system scope",
        "ll128-sc",
        (GFX942, GFX950, GFX1201, GFX1250),
        (("__HIP_MEMORY_SCOPE_SYSTEM", "__HIP_MEMORY_SCOPE_AGENT"),),
    ),
    Mutant("scope of the GPU in PTX", "system scope", "ll", (SM_90,), ((".relaxed.sys.", ".relaxed.gpu."),)),
    Mutant(
        "non-temporal polls",
        "system scope",
        "ll128-sc",
        AMD,
        ((LOAD, "return __builtin_nontemporal_load((const volatile tb_u64*)word);"),),
    ),
    Mutant(
        "data loaded before the vote",
        "data after flag",
        "ll128-sc",
        TARGETS,
        ((POLL, f"    tb_get(ring, line, share.lines, flag, taken, report);\n{POLL}"),),
    ),
    Mutant("no barrier between flags and data", "data after flag", "ll128-tf", TARGETS, ((BARRIER, ""),)),
    Mutant(
        "what was read is not used before the ACK",
        "complete before ACK",
        "ll128-tf",
        (SM_90,),
        (
            ("taken.sum += is_data ? difference ^ tb_place(index, flag) : 0;", ""),
            ("if (!difference || !is_data) return;", "return;"),
        ),
    ),
    *(
        Mutant(
            f"{protocol}: waits without a clock",
            "waits end",
            protocol,
            (GFX942, SM_90),
            ((LOOKS, "{ return false; }"),),
        )
        for protocol in ("ll", "ll128-sc", "ll128-tf")
    ),
    Mutant(
        "polls one after the other",
        "polls under way",
        "ll128-sc",
        TARGETS,
        (("        if (holds_flag && line[a] < share.lines) seen[a] =", "        if (!a && holds_flag) seen[a] ="),),
    ),
    Mutant("a wait for every line", "stores back to back", "ll128-tf", AMD, after_each_line("tb_drain();")),
    Mutant(
        "addresses of no known memory",
        "copies",
        "",
        (GFX90A, GFX942, GFX950),
        (("#define TB_GLOBAL __attribute__((address_space(1)))", "#define TB_GLOBAL"),),
    ),
    Mutant("generic addresses", "copies", "", (SM_90,), (("__builtin_assume(__isGlobal(pointer))", "(void)0"),)),
    Mutant("vectors that are structs", "copies", "", (GFX942, GFX950), ((VECTOR, STRUCT), (SETTLE, UNSETTLED))),
    Mutant("registers for as many blocks as possible", "copies", "", (SM_90,), ((BOUNDS, FEWER_BOUNDS),)),
)
SEEN_BROKEN = [(mutant, target) for mutant in MUTANTS for target in mutant.targets]


@pytest.mark.parametrize(("mutant", "target"), SEEN_BROKEN, ids=[f"{m.name}-{t.arch}" for m, t in SEEN_BROKEN])
def test_a_contract_is_seen_broken(workshop: Workshop, mutant: Mutant, target: Target) -> None:
    need(target)
    if not mutant.protocol:
        assert copies(target, workshop.order(target, "copy", geometry(target), mutant.text()).result())
        return
    (protocol,) = protocols(mutant.protocol)
    made = workshop.order(target, "ll", defines(protocol), mutant.text()).result()
    assert CONTRACTS[mutant.contract][1](made, kind(protocol))


def test_every_contract_is_seen_broken() -> None:
    """Those of the copy kernels stand for loads under way and for what is in registers: the same functions say so."""
    assert {mutant.contract for mutant in MUTANTS} == {"copies", *CONTRACTS} - {"in registers", "loads under way"}


def test_a_wait_looks_at_the_clock_within_a_fraction_of_a_second() -> None:
    """A poll takes some microseconds at most; a deadline is kept to a second."""
    every = [int(polls) for polls in re.findall(r"#define TB_POLLS_A_LOOK (\d+)", hipkernels.source("ll"))]
    assert len(every) == 3
    assert max(every) <= 2**14


def test_waits_that_nobody_can_read_are_refused() -> None:
    """What were taken for no wait would be taken for a breach, or hide one."""
    lines = Lines("ll.hip", "")
    with pytest.raises(ValueError, match="cannot read the waits of gfx800"):
        amd_kernels("", "gfx800", lines)
    code = "tb_ll_send:  ; @tb_ll_send\n\ts_wait_newcnt 0x0\n.amdhsa_private_segment_fixed_size 0\n.Lfunc_end0:\n"
    with pytest.raises(ValueError, match="cannot read what this waits for: s_wait_newcnt 0x0"):
        amd_kernels(code, "gfx1201", lines)


def test_a_kernel_that_does_not_compile_says_why() -> None:
    target = next((target for target in TARGETS if not target.lacking), None)
    if target is None:
        pytest.skip(TARGETS[0].lacking)
    with pytest.raises(CompilationError, match="nowhere"):
        target.compile("gate", hipkernels.source("gate") + "\nTB_KERNEL(1) tb_broken() { nowhere(); }", {})


def test_what_is_under_way_is_counted(workshop: Workshop) -> None:
    """A contract about loads that are none is broken too."""
    need(GFX942)
    made = workshop.order(GFX942, "ll", defines(PROTOCOLS[0])).result()

    def nothing(instruction: Instruction) -> bool:
        return False

    assert contracts.under_way(_receive(made), nothing, 1) == ["tb_ll_receive: 0 loads under way at once, 1 are due"]

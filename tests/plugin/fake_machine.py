"""A machine without hardware for the pytest surfaces: a node to be probed and an engine that makes figures up.

It stands behind the doors ``probe``, ``activate`` and ``open_bench`` of ``session.run``. In this process a fixture
puts it there; in a child ``-p fake_machine`` does, reading the machine from the environment variable
``FAKE_MACHINE``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# pytester forgets what a run in this process imported, and numpy cannot be loaded twice.
import pytest_transferbench.engine
import pytest_transferbench.judge  # noqa: F401
from pytest_transferbench.measurement import Arm, Check, Fault, Measurement
from pytest_transferbench.node import HOST, Device, Link, LinkClass, Node
from pytest_transferbench.options import Settings
from pytest_transferbench.runtime import RuntimeFault
from pytest_transferbench.session import run
from pytest_transferbench.transfer import (
    Case,
    MessageCase,
    MessageMethod,
    Method,
    RotationPlan,
    Test,
    TransferOrTest,
    copies_per_sample,
    rotation_budget,
)

ENVIRONMENT = "FAKE_MACHINE"


@dataclass
class FakeMachine:
    """What the fake node has and what its figures will be; ``log`` is a file that gets a line for every call."""

    gpus: int = 2
    runtime: str = "rocm"
    arch: str = "gfx942"
    emulated: str | None = None
    why_no_gpu: str | None = None
    link_gbps: float | None = 400.0
    memory_bytes: int = 64 << 30
    gbps: float = 371.2
    gbps_of: dict[str, float] = field(default_factory=dict)
    """Those of single cases, by name."""
    cold_ratio: float = 1.0
    """Cold bandwidth over steady."""
    warm_ratio: float = 1.0
    wrong_words: int = 0
    wrong_sum: bool = False
    """Whether what arrived of a message adds up to something else."""
    fault: str | None = None
    lease_fault: str | None = None
    open_fault: str | None = None
    activate_error: str | None = None
    probe_error: str | None = None
    rejected: int = 0
    sent: int = 0
    """Of 1000 bytes that messages claim to have sent, those that the links' counters saw; 0 where nothing counts."""
    warning: str | None = None
    hang: str | None = None
    """The name of the case whose measurement never ends, or ``close`` for the end of the engine."""
    die: str | None = None
    """The name of the case whose measurement ends the process."""
    log: str | None = None
    tell_samples: bool = False
    """Whether the log says of every measurement how many samples it has, and when they are validated."""

    def say(self, line: str) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{os.getpid()} {line}\n")

    def node(self) -> Node:
        devices = tuple(
            Device(
                index=index,
                name="Fake GPU",
                arch=self.arch,
                pci=f"0000:{index + 1:02x}:00.0",
                compute_units=304,
                memory_bytes=self.memory_bytes,
                last_level_cache_bytes=256 << 20,
                memory_gbps=5300.0,
                partition="SPX",
                large_bar=True,
                copy_engines=16,
            )
            for index in range(self.gpus)
        )
        ends = [*range(self.gpus), HOST]
        return Node(
            runtime=self.runtime if self.gpus else "host",
            devices=devices,
            links=tuple(
                Link(source, destination, self._link_class(source, destination), self.link_gbps, "a fake table")
                for source in ends
                for destination in ends
            ),
            emulated=self.emulated,
            why_no_gpu=self.why_no_gpu,
            driver="1.2.3",
            notes=("GPU_MAX_HW_QUEUES 4", "IOMMU off"),
            batch_copy=True,
        )

    @staticmethod
    def _link_class(source: int, destination: int) -> LinkClass:
        if HOST in (source, destination):
            return LinkClass.HOST if source == destination else LinkClass.PCIE
        return LinkClass.LOCAL if source == destination else LinkClass.XGMI


@dataclass
class FakeLease:
    case: Case
    plan: RotationPlan
    slices: list[bytes] = field(default_factory=list)
    peer: bytes = b""


class FakeBench:
    def __init__(self, machine: FakeMachine, node: Node) -> None:
        self.machine, self.node = machine, node

    @contextlib.contextmanager
    def lease(self, case: Case) -> Iterator[FakeLease]:
        if self.machine.lease_fault:
            raise RuntimeFault("hipMalloc", 0, "hipErrorOutOfMemory", self.machine.lease_fault)
        self.machine.say(f"lease {case.name}")
        budget = rotation_budget(case.transfer, case.rotate_bytes)
        plan = RotationPlan.make(
            case.transfer.nbytes, budget, memory_bytes=self.machine.memory_bytes, caches=(256 << 20,)
        )
        yield FakeLease(case, plan, [bytes(4)] * plan.slices, bytes(4))
        self.machine.say(f"release {case.name}")

    def measure(self, lease: FakeLease, *, key: str, data: Any = None) -> Measurement:
        machine, case = self.machine, lease.case
        transfer = case.transfer
        self.machine.say(f"measure {case.name} data={data!r} floor={case.floor_gbps} rotate={case.rotate_bytes}")
        if machine.tell_samples:
            self.machine.say(f"samples {case.samples} validate={case.validate}")
        if machine.die == case.name:
            os.abort()
        if machine.hang == case.name:
            threading.Event().wait()
        first = transfer.transfers[0]
        link = self.node.link(first.owner_of(first.sources[0]), first.owner_of(first.destinations[0]))
        ratios = {"cold": machine.cold_ratio, "warm": machine.warm_ratio, "steady": 1.0}
        if isinstance(transfer, Test):
            ratios = {"steady": 1.0}
        method = Method(
            transfers=len(transfer.transfers),
            samples=case.samples,
            copies=copies_per_sample(transfer.nbytes, link.link_class),
            sub_iterations=case.sub_iterations,
            warmups=case.warmups,
            rotate_bytes=lease.plan.budget,
            slices=lease.plan.slices,
            pitch=lease.plan.pitch,
            rotated=lease.plan.rotated,
            byte_offset=case.byte_offset,
            subexecutors=transfer.subexecutors or 8,
            block_threads=(case.block_threads or 256) if transfer.executor.kind == "G" else 0,
            unroll=case.unroll or 4,
            source_kind=transfer.sources[0].kind,
            destination_kind=transfer.destinations[0].kind,
            gate="kernel",
            link_class=link.link_class,
        )
        return Measurement(
            key=key,
            transfer=transfer,
            op=transfer.op,
            link_class=link.link_class,
            nbytes=transfer.nbytes,
            method=method.to_json(),
            digest=method.digest(),
            arms=tuple(self._arm(name, transfer, case, ratio) for name, ratio in ratios.items()),
            checks=(
                Check(
                    "the destination",
                    transfer.nbytes // 4,
                    wrong_words=machine.wrong_words,
                    wrong_bytes=machine.wrong_words,  # one bit of each word
                    first=17 if machine.wrong_words else -1,
                    last=99 if machine.wrong_words else -1,
                    xor_mask=0x10 if machine.wrong_words else 0,
                    found="poison (nothing was written)" if machine.wrong_words else "",
                ),
            ),
            faults=(Fault(*machine.fault.split(" ", 1)),) if machine.fault else (),
            warnings=(machine.warning,) if machine.warning else (),
            emulated=self.node.emulated,
            slice_identity_proved=data is None,
        )

    def _arm(self, name: str, transfer: TransferOrTest, case: Case, ratio: float) -> Arm:
        gbps = self.machine.gbps_of.get(case.name, self.machine.gbps)
        seconds = transfer.total_bytes / (gbps * ratio * 1e9)
        rejected = ("host clock 70 us off",) * (self.machine.rejected if name == "steady" else 0)
        return Arm(name, 4, (seconds,) * case.samples, rejected=rejected)

    def find_lost_after(self, name: str) -> None:
        self.machine.say(f"look after {name}")

    def close(self) -> None:
        self.machine.say("close")
        if self.machine.hang == "close":
            threading.Event().wait()


def _measure_message(bench: FakeBench, case: MessageCase, key: str) -> Measurement:
    """Make up a message's figures; the door to the real ones."""
    machine, message = bench.machine, case.transfer
    if machine.lease_fault:
        raise RuntimeFault("hipExtMallocWithFlags", 1, "hipErrorOutOfMemory", machine.lease_fault)
    machine.say(
        f"measure {case.name} {case.samples} after {case.warmups} by {case.blocks} in {case.ring_kind or '-'} "
        f"validate={case.validate} timeout={case.timeout_seconds:g} floor={case.floor_gbps} control={case.control}"
    )
    seconds = message.nbytes / (machine.gbps * 1e9)
    # One in twenty takes twice as long, three in twenty a quarter longer: no figure stands for another.
    samples = tuple(seconds * (2 if i % 20 == 19 else 1.25 if i % 20 > 15 else 1) for i in range(case.samples))
    lines = message.protocol.lines(message.nbytes)
    method = MessageMethod(
        protocol=message.protocol.name,
        samples=case.samples,
        warmups=case.warmups,
        lines=lines,
        blocks=case.blocks,
        block_threads=256,
        ring_kind=case.ring_kind or "U",
        hashed=False,
        link_class="xGMI",
    )
    return Measurement(
        key=key,
        transfer=message,
        op=message.op,
        link_class="xGMI",
        nbytes=message.nbytes,
        method=method.to_json(),
        digest=method.digest(),
        arms=() if machine.fault else (Arm("steady", 1, samples),),
        validated=case.validate != "off",
        checks=(
            Check.of_sum("the timed messages", 2 * lines, "sum 0x1 instead of 0x2")
            if machine.wrong_sum
            else Check("the timed messages", 2 * lines, machine.wrong_words, machine.wrong_words, 17, 99, 0x10),
        ),
        faults=(Fault(*machine.fault.split(" ", 1)),) if machine.fault else (),
        context={
            "runtime": machine.runtime,
            "wire_gbps": lines * message.protocol.line_bytes / seconds / 1e9,
            "wire_efficiency": message.nbytes / (lines * message.protocol.line_bytes),
            **({"link_bytes": {"sent": machine.sent, "received": 0, "claimed": 1000}} if machine.sent else {}),
        },
        emulated=bench.node.emulated,
    )


def install(machine: FakeMachine, set_attribute: Any = setattr) -> None:
    """Put ``machine`` behind the doors."""

    def probe(settings: Settings) -> Node:
        machine.say(f"probe {settings.runtime} {settings.emulate}")
        if machine.probe_error:
            raise ValueError(machine.probe_error)
        return machine.node()

    def open_bench(node: Node, emulate: str | None) -> FakeBench:
        machine.say(f"open {emulate}")
        if machine.open_fault:
            raise RuntimeFault("hipInit", -1, "hipErrorNoDevice", machine.open_fault)
        return FakeBench(machine, node)

    def activate(model: str) -> None:
        machine.say(f"activate {model}")
        if machine.activate_error:
            raise ValueError(machine.activate_error)

    set_attribute(run, "probe", probe)
    set_attribute(run, "activate", activate)
    set_attribute(run, "open_bench", open_bench)
    set_attribute(run, "measure_message", _measure_message)


def to_environment(machine: FakeMachine) -> str:
    return json.dumps(dataclasses.asdict(machine))


if ENVIRONMENT in os.environ:
    install(FakeMachine(**json.loads(os.environ[ENVIRONMENT])))

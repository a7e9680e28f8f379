"""What moves, pure: letters, Transfers, Tests and their notation, sizes, rotation, cases and methods.

Everything here is a value or a function of values; only the standard library is imported.
"""

from pytest_transferbench.transfer.case import NOMINAL_GBPS, AnyCase, Case, MessageCase, copies_per_sample
from pytest_transferbench.transfer.config import Config, parse_config
from pytest_transferbench.transfer.ends import Executor, Memory, Places, parse_executor, parse_memory
from pytest_transferbench.transfer.letters import (
    EXECUTORS,
    HOST,
    MEMORIES,
    ExecutorKind,
    MemoryKind,
    executor_kind,
    memory_kind,
)
from pytest_transferbench.transfer.message import Message
from pytest_transferbench.transfer.method import METHOD_VERSION, MessageMethod, Method
from pytest_transferbench.transfer.notation import parse_line, parse_transfer, parse_transfers
from pytest_transferbench.transfer.protocol import LL, PROTOCOLS, Protocol, protocols
from pytest_transferbench.transfer.rotation import RotationPlan, SliceCopy, rotation_budget
from pytest_transferbench.transfer.sizes import MAX_BYTES, format_size, parse_size, parse_sizes
from pytest_transferbench.transfer.test import Test, TransferOrTest, together
from pytest_transferbench.transfer.transfer import MAX_ENDS, End, Op, Transfer

AnyTransfer = Transfer | Test | Message
"""What a case is about."""

__all__ = [
    "EXECUTORS",
    "HOST",
    "LL",
    "MAX_BYTES",
    "MAX_ENDS",
    "MEMORIES",
    "METHOD_VERSION",
    "NOMINAL_GBPS",
    "PROTOCOLS",
    "AnyCase",
    "AnyTransfer",
    "Case",
    "Config",
    "End",
    "Executor",
    "ExecutorKind",
    "Memory",
    "MemoryKind",
    "Message",
    "MessageCase",
    "MessageMethod",
    "Method",
    "Op",
    "Places",
    "Protocol",
    "RotationPlan",
    "SliceCopy",
    "Test",
    "Transfer",
    "TransferOrTest",
    "copies_per_sample",
    "executor_kind",
    "format_size",
    "memory_kind",
    "parse_config",
    "parse_executor",
    "parse_line",
    "parse_memory",
    "parse_size",
    "parse_sizes",
    "parse_transfer",
    "parse_transfers",
    "protocols",
    "rotation_budget",
    "together",
]

"""Where transfers run: the only room that imports the vendors' libraries."""

from __future__ import annotations

from pytest_transferbench.emulator import EmulatorError
from pytest_transferbench.node import HOST, Node
from pytest_transferbench.runtime.probing import ProbeError, probe_node
from pytest_transferbench.runtime.protocol import Allocation, Copy, Kernel, Runtime, RuntimeFault, Stream
from pytest_transferbench.runtime.telemetry import Telemetry

__all__ = [
    "Allocation",
    "Copy",
    "Kernel",
    "ProbeError",
    "Runtime",
    "RuntimeFault",
    "Stream",
    "Telemetry",
    "open_runtime",
    "probe_node",
]


def open_runtime(node: Node, emulate: str | None = None) -> Runtime:
    """Open, in this process, the runtime that ``node`` was probed with; opened once, it serves the whole session.

    ``emulate`` is the model or file that the node was asked for with; it must come before anything has imported CuPy.
    Raises :class:`RuntimeFault` when what the probing child loaded does not load here.
    """
    closest_numa_nodes = {device.index: node.closest_numa_node(device.index) for device in node.devices}
    try:
        if node.runtime == "cuda":
            from pytest_transferbench.runtime.cuda import CudaRuntime

            return CudaRuntime(closest_numa_nodes)
        if node.runtime == "rocm":
            from pytest_transferbench.runtime.rocm import open_rocm

            return open_rocm(emulate or node.emulated, closest_numa_nodes)
    except (ImportError, EmulatorError, OSError) as error:
        raise RuntimeFault("opening the runtime", HOST, type(error).__name__, str(error)) from error
    from pytest_transferbench.runtime.host import HostRuntime

    return HostRuntime(node.why_no_gpu or "this node has no GPU")

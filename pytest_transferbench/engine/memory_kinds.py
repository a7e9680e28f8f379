"""What a node lacks for a memory kind, and who cannot reach it: said before anything is allocated."""

from __future__ import annotations

from pytest_transferbench.node import Node
from pytest_transferbench.transfer import Executor, Memory, MemoryKind, memory_kind

_FIRST_HIP_WITH_UNCACHED_HOST_MEMORY = 7


def unsupported_memory(memory: Memory, executor: Executor, node: Node) -> str | None:
    """Return, in one line, why ``executor`` cannot use ``memory`` on ``node``; ``None`` when it can.

    A function of recorded facts alone; a GPU that homes ``memory`` is known to be there.
    """
    kind = memory_kind(memory.kind)
    if kind.on == "none":
        return None
    return _missing(memory, kind, node) or _out_of_reach(memory, executor, node)


def unsupported_threads(numa_node: int, node: Node) -> str | None:
    """Return, in one line, why no host thread can run on ``numa_node``; ``None`` when one can."""
    there = [known.index for known in node.numa_nodes if known.cpus]
    if numa_node in there:
        return None
    listed = ", ".join(map(str, there)) or "none"
    return f"cpu of NUMA node {numa_node}: those with memory and processors for this process are {listed}"


def numa_node_of(memory: Memory, node: Node) -> int:
    """Return the NUMA node of host memory that ``node`` has; ``node``'s first where nobody knows the closest one."""
    if not memory_kind(memory.kind).by_gpu:
        return memory.index
    closest = node.closest_numa_node(memory.index)
    return node.numa_nodes[0].index if closest is None else closest


def _missing(memory: Memory, kind: MemoryKind, node: Node) -> str | None:
    pinned = f"C{node.numa_nodes[0].index}"
    if kind.amd_only and node.runtime != "rocm":
        plain = f"G{memory.index}" if kind.on == "device" else pinned
        return f"{memory}: {kind.summary} is ROCm's alone; use {plain}"
    if kind.by_gpu:
        return _why_nowhere(memory, node, pinned)
    if kind.on == "host" and memory.index not in {numa_node.index for numa_node in node.numa_nodes}:
        return f"{memory}: host memory that this process may use is on {node.describe_numa_nodes()}; use {pinned}"
    if memory.kind == "K" and not _has_uncached_host_memory(node):
        return f"{memory}: {kind.summary} came with HIP 7, and this is HIP {node.runtime_version}; use B{memory.index}"
    if memory.kind == "M" and node.device(memory.index).managed_memory is False:
        fact = "hipDeviceAttributeManagedMemory" if node.runtime == "rocm" else "cudaDevAttrConcurrentManagedAccess"
        return f"{memory}: managed memory cannot be moved to GPU {memory.index} ({fact} is 0); use G{memory.index}"
    return None


def _why_nowhere(memory: Memory, node: Node, pinned: str) -> str | None:
    """Return why memory cannot be on the NUMA node closest to a GPU."""
    if memory.index not in {device.index for device in node.devices}:
        return f"{memory} needs G{memory.index}; this node has {node.describe_indices()}"
    closest = node.closest_numa_node(memory.index)
    if closest is None:
        return f"{memory}: the kernel does not say which NUMA node is closest to GPU {memory.index}; use {pinned}"
    if closest not in {numa_node.index for numa_node in node.numa_nodes}:
        return (
            f"{memory}: NUMA node {closest}, closest to GPU {memory.index}, has no memory that this process may use; "
            f"use {pinned}"
        )
    return None


def _out_of_reach(memory: Memory, executor: Executor, node: Node) -> str | None:
    if memory.kind == "M" and executor.on == "host":
        return f"cpu would move {memory} to the host by touching it: use gfx or dma"
    if memory.kind == "H" and executor.kind == "G" and not node.device(executor.index).pageable_access:
        cure = "HSA_XNACK=1, where the GPU can" if node.runtime == "rocm" else "HMM, on a kernel that has it"
        return f"gfx of G{executor.index} does not reach {memory}, which is not pinned, without {cure}: use dma or C"
    return None


def _has_uncached_host_memory(node: Node) -> bool:
    major = (node.runtime_version or "").partition(".")[0]
    return not major.isdigit() or int(major) >= _FIRST_HIP_WITH_UNCACHED_HOST_MEMORY

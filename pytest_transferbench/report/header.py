"""The lines above a run: what machine this is, what will be measured, what was asked and by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from textwrap import TextWrapper

from pytest_transferbench.node import HOST, Device, Node
from pytest_transferbench.options import Settings, environment_lines
from pytest_transferbench.transfer import AnyCase, MessageCase, format_size

_SIZES_SHOWN = 12


def header_lines(
    settings: Settings,
    node: Node,
    gpus: Sequence[int],
    sizes: Sequence[int],
    environment: Mapping[str, str],
    short_forms_taken: Iterable[str],
) -> list[str]:
    """Return the header, one fact a line; ``sizes`` are the bytes that a case moves where no mark says otherwise."""
    lines = [_runtime(node)]
    lines += _devices([device for device in node.devices if device.index in gpus])
    lines += _links(node, gpus)
    lines += node.notes
    lines.append(_sizes(settings, node, sizes))
    lines += [f"{name} belongs to somebody else here: use --transfer-{name[2:]}" for name in short_forms_taken]
    lines += environment_lines(settings, environment)
    return [f"transferbench: {lines[0]}", *(f"  {line}" for line in lines[1:])]


def message_lines(cases: Iterable[AnyCase]) -> list[str]:
    """Return a line on the Messages among ``cases``, if any: what a Transfer's settings say is not about them."""
    messages = [case for case in cases if isinstance(case, MessageCase)]
    if not messages:
        return []
    sizes = sorted({case.transfer.nbytes for case in messages})
    counts = sorted({(case.samples, case.warmups) for case in messages})
    shown = " ".join(map(format_size, sizes))
    if len(sizes) > _SIZES_SHOWN:
        shown = f"{len(sizes)} sizes from {format_size(sizes[0])} to {format_size(sizes[-1])}"
    iterations = ", ".join(f"{samples} iterations after {warmups}" for samples, warmups in counts)
    return [f"  messages {shown}; {iterations}; nothing rotates"]


def wrapped(lines: Iterable[str], width: int) -> list[str]:
    """Return ``lines`` broken between words where a terminal of ``width`` columns would break them anywhere."""
    breaks = TextWrapper(width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [part for line in lines for part in breaks.wrap(line)]


def _runtime(node: Node) -> str:
    emulated = f"EMULATED node {node.emulated}, no figure is a real machine's; " if node.emulated else ""
    if not node.devices:
        return f"{emulated}no GPU ({node.why_no_gpu or 'none found'}); host {node.host_name}, {node.host_cpus} CPUs"
    version = f" {node.runtime_version}" if node.runtime_version else ""
    driver = f", driver {node.driver}" if node.driver else ""
    return f"{emulated}runtime {node.runtime}{version}{driver}; {node.describe_indices()} there"


def _devices(devices: Iterable[Device]) -> list[str]:
    """Devices that differ in nothing but index and address share a line."""
    groups: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        groups[_device(device)].append(device)
    return [
        f"using {'GPU' if len(group) == 1 else 'GPUs'} {', '.join(str(device.index) for device in group)}: {text}; "
        f"PCI {' '.join(device.pci for device in group)}"
        for text, group in groups.items()
    ]


def _device(device: Device) -> str:
    facts = [f"{device.name} ({device.arch})", f"{device.compute_units} CUs", f"{device.memory_bytes / 2**30:.0f} GiB"]
    if device.partition:
        facts.append(f"partition {device.partition}")
    if device.xccs > 1:
        facts.append(f"{device.xccs} XCCs")
    cache = device.last_level_cache_bytes
    facts.append(f"last-level cache {format_size(cache) if cache else 'unknown'}")
    if device.copy_engines is not None:
        facts.append(f"{device.copy_engines} copy engines")
    return ", ".join(facts)


def _links(node: Node, gpus: Sequence[int]) -> list[str]:
    """One line for all links of one class and rate among the selected ends."""
    groups: dict[str, list[str]] = defaultdict(list)
    for link in node.links:
        ends = {link.source, link.destination}
        if link.source != link.destination and ends <= {*gpus, HOST}:
            rate = f"{link.gbps:.1f} GB/s a direction ({link.source_of_rate})" if link.gbps else "rate unknown"
            broken = "" if link.peer_access or HOST in ends else ", NO PEER ACCESS"
            groups[f"{link.link_class} {rate}{broken}"].append(f"{_end(link.source)}-{_end(link.destination)}")
    lines = []
    for text, pairs in groups.items():
        named = " ".join(pairs) if len(pairs) <= 8 else f"{len(pairs)} pairs"
        lines.append(f"links {named}: {text}")
    return lines


def _end(index: int) -> str:
    return "C0" if index == HOST else f"G{index}"


def _sizes(settings: Settings, node: Node, sizes: Sequence[int]) -> str:
    kind = "an emulated node" if node.emulated else "a node with GPUs" if node.devices else "a node without a GPU"
    where = f"from {settings.sources['sizes']}" if settings.sizes else f"default on {kind}"
    samples = "1 sample" if settings.samples == 1 else f"{settings.samples} samples"
    rotation = {None: "auto", 0: "off"}.get(settings.rotate_bytes) or format_size(settings.rotate_bytes or 0)
    return f"sizes {' '.join(map(format_size, sizes))} ({where}); rotation {rotation}; {samples}; marks override"

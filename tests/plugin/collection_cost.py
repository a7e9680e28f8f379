"""What it costs to collect very many cases, beside as many plain items: ``python -m tests.plugin.collection_cost``.

Prints a table of whole pytest processes: wall clock in seconds, the best of three runs, and the largest resident set in
MiB. Needs what an emulated node needs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 3
ROUTES = 289
"""What the suite has on ``mi300x-8``: cases a size."""
SIZE_COUNTS = (1, 35, 173)
"""289, 10 115 and 49 997 cases."""

SUITE = "--pyargs pytest_transferbench.suites.test_p2p --transfer-emulate=mi300x-8 --gpus=all --transfer-all-pairs"
COLLECT = ("-q", "--collect-only", "-p", "no:cacheprovider")
MEASURED = """
import sys
from pathlib import Path
import pytest
status = pytest.main(sys.argv[1:])
# The process asks itself: what its parent knows of it has the parent's own memory in it.
sys.stderr.write(Path("/proc/self/status").read_text())
sys.exit(status)
"""
PLAIN = """
import pytest
@pytest.mark.parametrize("case", range({items}))
def test_plain(case): pass
"""


def transfers(count: int) -> list[str]:
    """The arguments that make the suite's cases at ``count`` sizes."""
    return [*SUITE.split(), f"--sizes={','.join(str(4096 * (index + 1)) for index in range(count))}"]


def memory_of(arguments: list[str]) -> float:
    """Run pytest in a process of its own; returns the MiB it held at most."""
    command = [sys.executable, "-c", MEASURED, *arguments]
    said = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True).stderr
    return int(said.rpartition("VmHWM:")[2].split()[0]) / 1024


def cost(arguments: list[str]) -> tuple[float, float]:
    """The seconds and the MiB of a pytest process that collects and runs nothing."""
    seconds, mebibytes = [], []
    for _ in range(RUNS):
        start = time.perf_counter()
        mebibytes.append(memory_of([*COLLECT, *arguments]))
        seconds.append(time.perf_counter() - start)
    return min(seconds), max(mebibytes)


def main() -> None:
    print("| items | transfer cases | -k pull | plain items |\n|---|---|---|---|")
    for count in SIZE_COUNTS:
        with tempfile.TemporaryDirectory() as directory:
            plain = Path(directory, "test_plain.py")
            plain.write_text(PLAIN.format(items=ROUTES * count))
            rows = [
                cost(arguments)
                for arguments in (
                    transfers(count),
                    [*transfers(count), "-k", "pull"],
                    ["--rootdir", directory, str(plain)],
                )
            ]
        print(f"| {ROUTES * count} | " + " | ".join(f"{s:.2f} s, {m:.0f} MiB" for s, m in rows) + " |", flush=True)


if __name__ == "__main__":
    main()

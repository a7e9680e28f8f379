"""How a transfer is measured: buffers, executors, the start gate, clocks, the run and its proof."""

from pytest_transferbench.engine.bench import Bench, estimate_seconds
from pytest_transferbench.engine.lease import Lease

__all__ = ["Bench", "Lease", "estimate_seconds"]

"""How messages are sent through LL flag protocols, timed and proved."""

from pytest_transferbench.latency.limits import estimate_seconds, unsupported
from pytest_transferbench.latency.run import measure

__all__ = ["estimate_seconds", "measure", "unsupported"]

"""The emulated node: a HIP runtime on host memory that the unmodified CuPy and hip-python wheels load.

It proves how the runtime is used, that the right bytes move and where they stop; it never proves speed.
"""

from pytest_transferbench.emulator.faults import Fault, error_codes, hip_calls
from pytest_transferbench.emulator.loader import Activation, Counters, activate, active
from pytest_transferbench.emulator.model import EmulatorError, ModelError, NodeModel, load_model, node_models

__all__ = [
    "Activation",
    "Counters",
    "EmulatorError",
    "Fault",
    "ModelError",
    "NodeModel",
    "activate",
    "active",
    "error_codes",
    "hip_calls",
    "load_model",
    "node_models",
]

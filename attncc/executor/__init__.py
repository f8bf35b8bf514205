"""The CPU executor: walks a `KernelPlan` tile by tile in NumPy, as the kernel would, and counts bytes moved."""

from .backward import BackwardResult, bind_backward_for, run_backward, run_bound_backward
from .run import OwnRows, Result, bind_for, run, run_bound

__all__ = [
    "BackwardResult", "OwnRows", "Result", "bind_backward_for", "bind_for", "run", "run_backward", "run_bound",
    "run_bound_backward",
]  # fmt: skip

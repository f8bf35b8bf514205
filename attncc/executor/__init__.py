"""The CPU executor: walks a `KernelPlan` tile by tile in NumPy, as the kernel would, and counts what that moves."""

from .run import Result, bind_for, run, run_bound

__all__ = ["Result", "bind_for", "run", "run_bound"]

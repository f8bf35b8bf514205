"""The CPU executor: walks a `KernelPlan` tile by tile in NumPy, as the kernel would, and counts what that moves."""

from .run import Result, run

__all__ = ["Result", "run"]

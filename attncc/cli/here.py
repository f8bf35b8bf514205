"""The kernel that serves a call on the GPU of this machine: its target and its pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..compiler import Specification
    from ..problem import Problem
    from ..runtime.cuda.driver import Device
    from ..schedule.plan import KernelPlan, OwnKernel


def target_here(dtype: str, device: Device) -> str:
    """The best target for a GPU. A usage error where it has no kernels of the dtype."""
    from ..kernels.registry import targets_of
    from ..runtime.cuda.device import best_target

    targets = targets_of(dtype)
    found = best_target(targets, device.capability)
    if found is None:
        raise click.UsageError(f"{device.name} has no kernels of {dtype}: they run on {', '.join(targets)}")
    return found


def pass_here(
    specification: Specification, configuration: Any, target: str, given: Mapping[str, Any], device: Device
) -> str:
    """The pass that runs a call. `given`: the command's options `asked`, the pass, and `problem`."""
    from ..kernels.serving import backward_plan_for

    if given["asked"] == "backward_dq":
        return "backward_dq"
    if given["asked"] == "backward":
        plans = [item.first for item in specification.backward_candidates(configuration, target)]
        return backward_plan_for(plans, given["problem"]).pass_name
    return _plan_here(specification, configuration, target, given["problem"], device).pass_name


def own_kernel_here(
    specification: Specification, configuration: Any, target: str, problem: Problem, device: Device
) -> OwnKernel | None:
    """What tells a forward call that has a kernel of its own from others of its pass; None if it has none."""
    own = _plan_here(specification, configuration, target, problem, device).own_kernel
    return own if any(own) else None


def _plan_here(
    specification: Specification, configuration: Any, target: str, problem: Problem, device: Device
) -> KernelPlan:
    """The plan that runs a forward call."""
    from ..runtime.store.crossings import chip_of

    return specification.runs(configuration, target, problem, chip_of(device.name, device.multiprocessors))

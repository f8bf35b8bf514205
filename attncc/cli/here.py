"""The kernel that serves a call on the GPU of this machine: its target and its pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..compiler import Specification
    from ..runtime.cuda.driver import Device


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
    from ..kernels.serving import backward_plan_for, plan_for
    from ..runtime.store.crossings import chip_of

    if given["asked"] == "backward_dq":
        return "backward_dq"
    if given["asked"] == "backward":
        plans = [item.first for item in specification.backward_candidates(configuration, target)]
        return backward_plan_for(plans, given["problem"]).pass_name
    chip = chip_of(device.name, device.multiprocessors)
    return plan_for(specification.plans(configuration, target), given["problem"], chip).pass_name

"""The facts of a plan of the family hopper that its passes have in common."""

from __future__ import annotations

from .hopper_backward import HopperBackward
from .hopper_forward import HopperForward
from .plan import KernelPlan


def hopper_facts(plan: KernelPlan) -> HopperForward | HopperBackward:
    """Registers, shared memory and what else templates ask of a plan: `accumulators` and `shared_parts` of both."""
    return HopperBackward(plan) if plan.is_backward else HopperForward(plan)

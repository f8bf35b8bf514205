"""Portable kernels that search for the keys of their blocks."""

from __future__ import annotations

from ..ir import Search, walk
from .plan import KernelPlan


def searches(plan: KernelPlan) -> bool:
    """Whether warps search for their keys, in kernels that park what they know of a block.

    Such kernels ask for all that a block needs ahead of their first barrier (`block_searches.cu.j2`).
    """
    found = any(isinstance(node, Search) for node in walk(plan.rules.kv_begin, plan.rules.kv_end))
    return plan.parks and plan.warps_see_less and found

"""Of a plan, all kernels that its launches may need."""

from __future__ import annotations

from ..schedule.plan import KernelPlan
from .helpers.helper import HelperKernel
from .kernel_names import kernel_name
from .parameters import Parameter
from .registry import facts_of, family_of


def helper_kernels(plan: KernelPlan) -> tuple[HelperKernel, ...]:
    """Those besides its own."""
    facts = facts_of(plan)
    return tuple(kernel for needed in family_of(plan).helpers for kernel in needed(facts))


def kernel_names(plan: KernelPlan) -> tuple[str, ...]:
    """Every kernel that launches of a plan may need, the plan's own first."""
    return kernel_name(plan), *(helper.name for helper in helper_kernels(plan))


def structs(plan: KernelPlan) -> dict[str, tuple[Parameter, ...]]:
    """The same, and the fields of each kernel's `Params`."""
    own = {kernel_name(plan): facts_of(plan).parameters()}
    return own | {helper.name: helper.parameters for helper in helper_kernels(plan)}

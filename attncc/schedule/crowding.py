"""Tiles that ptxas is known to refuse a variant: nobody compiles these in vain.

In the family hopper what is scarce are the registers of each warpgroup (`hopper_crowding`); in the other, those of
warps that hold both dK and dV of many columns, or sums in fp32. Each rule is what kernels have in common that spilled
or serialised their products in such tiles, and no kernel that fits does; a kernel of which nothing is known is
compiled, as ever (`machine_code.settle`).
"""

from __future__ import annotations

from ..ir import Load, needs, walk
from .hopper_crowding import hopper_crowded
from .plan import KernelPlan
from .target import TARGETS
from .weight import asked_of_keys, gradient_code, looks_up_pairs, weight

_ENTRIES_TESTED = 16  # of inputs, by keep lines: backward, more than portable kernels are good for
_COLUMNS_HELD = 256  # of dK and dV, from which on each of those has spilled that isn't thrifty
_LONG_LINES = 100  # the weight beyond which the code of all pairs of a lane has 10,000 to 18,000 instructions
_LONG_SLOPES = 5000  # of a lane's pairs, the weight of score lines and slopes beyond which dQ's code is as long
_FEW_KEYS = 16  # of a tile that blocks of queries meet: of more, dQ's code is 5,000 to 9,000 instructions long
_EXACT_COLUMNS = 512  # of dQ's Q and dO in fp32, beside which there is no room for more than those keys
_ROOMIER = 100  # compute capability of the targets from which on ptxas finds some
_COMPUTED = 20  # the weight of tests beyond which they compute with entries


def crowded(plan: KernelPlan) -> bool:
    """Whether the tiles leave too few registers for what the variant asks for."""
    if plan.family == "hopper":
        return plan.element_bytes == 2 and hopper_crowded(plan)
    if plan.pass_name == "forward":
        return _sums_crowded(plan)
    if plan.dtype == "fp32":
        return _exact_crowded(plan)
    return plan.is_backward and (_long_lines(plan) or (_gradients_crowded(plan) and _tests_much(plan)))


def _sums_crowded(plan: KernelPlan) -> bool:
    """Whether there are O and S of two m16 tiles a warp, and a mask that looks up entries, or none, so that nothing is
    parked. For other targets ptxas keeps them."""
    two_tiles = plan.block_q == 32 * plan.warps and plan.block_kv >= 64 and plan.padded_value_head_dim > 112
    return plan.target == "sm_100" and two_tiles and (looks_up_pairs(plan.variant) or not plan.parks)


def _columns(plan: KernelPlan) -> int:
    return plan.padded_head_dim + plan.padded_value_head_dim


def _gradients_crowded(plan: KernelPlan) -> bool:
    return _columns(plan) >= _COLUMNS_HELD and not plan.thrifty if plan.owns_keys else plan.block_kv > _FEW_KEYS


def _long_lines(plan: KernelPlan) -> bool:
    """Whether the code for a tile's pairs, each of which stands in it twice, takes two to three seconds to compile."""
    if plan.owns_keys:
        return not plan.thrifty and weight(plan.variant) > _LONG_LINES
    pairs = plan.block_q * plan.block_kv // (32 * plan.warps)  # of a lane
    return pairs * gradient_code(plan.variant) > _LONG_SLOPES


def _tests_much(plan: KernelPlan) -> bool:
    roots = tuple(keep.condition for keep in plan.variant.keeps)
    lines = walk(*roots, *(let.value for let in needs(plan.variant, *roots)))
    return sum(isinstance(node, Load) for node in lines) > _ENTRIES_TESTED


def _exact_crowded(plan: KernelPlan) -> bool:
    """Whether dQ in fp32 has lse and delta of its rows beside it, or a mask. Of masks that compute with what they read
    for each key one fits."""
    wide = _columns(plan) >= _EXACT_COLUMNS and plan.block_kv > _FEW_KEYS and plan.pass_name == "backward_dq"
    if not wide or TARGETS[plan.target].capability >= _ROOMIER:
        return False
    asked = asked_of_keys(plan.variant)
    return (plan.needs_delta or bool(plan.variant.keeps)) and not (asked.entries and asked.weight > _COMPUTED)

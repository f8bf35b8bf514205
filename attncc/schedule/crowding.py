"""Tiles that ptxas is known to refuse a variant: nobody compiles these in vain.

In the family hopper, what a warpgroup has left besides its accumulators, and its producer altogether, is scarce where
three warpgroups multiply, and backward where each owner holds dK and dV of 64 keys; in the other, where a warp holds
both of many columns. Each rule here is what kernels have in common that spilled or serialised their products
in such tiles, and no kernel that fits does; a kernel of which nothing is known is compiled, as ever
(`machine_code.settle`).
"""

from __future__ import annotations

from math import inf

from ..ir import Load, needs, walk
from .hopper_forward import HopperForward
from .plan import KernelPlan
from .weight import asks_much, entries_met, gradient_code, looks_up_pairs, room, weight

_CROWDED = 3  # warpgroups; of those with more, none waits for products beside others
_DROPOUT_REGISTERS = 42  # of a consumer, besides its accumulators and what a mask keeps: not enough for dropout
_BITS_KEYS = 16  # keys for which a lane, with two rows, holds a register of what the mask keeps
_ENTRIES_READ = 32  # of inputs, by the rules of tiles: more than a producer has registers for
_OWNED_KEYS = 128  # of a backward block whose owners have half of them each; of fewer, one has dK and the other dV
# The most of each of `entries_met` that isn't known to spill there, by whether the plan is thrifty and by the columns
# that dK and dV have at least.
_OWNERS_ROOM: dict[bool, dict[int, tuple[float, float]]] = {
    False: {256: (3, 6), 128: (7, inf)},
    True: {256: (15, 10)},
}
_ENTRIES_TESTED = 16  # of inputs, by keep lines: backward, more than portable kernels are good for
_COLUMNS_HELD = 256  # of dK and dV, from which on each of those has spilled that isn't thrifty
_LONG_LINES = 100  # the weight beyond which the code of all pairs of a lane has 10,000 to 18,000 instructions
_LONG_SLOPES = 5000  # of a lane's pairs, the weight of score lines and slopes beyond which dQ's code is as long
_FEW_KEYS = 16  # of a tile that blocks of queries meet: of more, dQ's code is 5,000 to 9,000 instructions long


def crowded(plan: KernelPlan) -> bool:
    """Whether the tiles leave too few registers for what the variant asks for."""
    if plan.pass_name == "forward" and plan.family == "portable":
        return _sums_crowded(plan)
    if plan.element_bytes != 2:
        return False
    if plan.family == "portable":
        return plan.is_backward and (_long_lines(plan) or (_gradients_crowded(plan) and _tests_much(plan)))
    if plan.is_backward:
        return plan.pass_name == "backward" and plan.block_kv == _OWNED_KEYS and _owners_crowded(plan)
    return plan.warpgroups == _CROWDED and _consumers_crowded(plan)


def _consumers_crowded(plan: KernelPlan) -> bool:
    return _drops_masked(plan) or _reads_much(plan) or (room(plan.variant) > 0 and asks_much(plan.variant))


def _drops_masked(plan: KernelPlan) -> bool:
    hopper = HopperForward(plan)
    spare = hopper.consumer_registers - sum(hopper.accumulators().values()) - plan.block_kv // _BITS_KEYS
    return plan.variant.dropout is not None and bool(plan.variant.keeps) and spare <= _DROPOUT_REGISTERS


def _reads_much(plan: KernelPlan) -> bool:
    tests = (plan.rules.any_kept, plan.rules.all_kept) if plan.uses_tile_kind else ()
    return sum(isinstance(node, Load) for node in walk(*plan.rules.bounds, *tests)) > _ENTRIES_READ


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


def _owners_crowded(plan: KernelPlan) -> bool:
    """Whether pairs are asked about more than was seen to fit beside dK and dV."""
    known = (limits for least, limits in _OWNERS_ROOM[plan.thrifty].items() if _columns(plan) >= least)
    return any(asked > limit for asked, limit in zip(entries_met(plan.variant), next(known, ()), strict=False))

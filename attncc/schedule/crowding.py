"""Tiles of the family hopper that ptxas is known to refuse a variant: nobody compiles these in vain.

What a warpgroup has left besides its accumulators, and its producer altogether, is scarce where three warpgroups
multiply. Each rule here is what kernels of 16 bits have in common that spilled or serialised their products in such
tiles, and no kernel that fits does; a kernel of which nothing is known is compiled, as ever (`machine_code.settle`).
"""

from __future__ import annotations

from ..ir import Load, walk
from .plan import KernelPlan
from .weight import asks_much, room

_CROWDED = 3  # warpgroups; of those with more, none waits for products beside others
_DROPOUT_REGISTERS = 42  # of a consumer, besides its accumulators and what a mask keeps: not enough for dropout
_BITS_KEYS = 16  # keys for which a lane, with two rows, holds a register of what the mask keeps
_ENTRIES_READ = 32  # of inputs, by the rules of tiles: more than a producer has registers for


def crowded(plan: KernelPlan) -> bool:
    """Whether the tiles leave too few registers for what the variant asks for."""
    if plan.family != "hopper" or plan.is_backward or plan.element_bytes != 2 or plan.warpgroups != _CROWDED:
        return False
    return _drops_masked(plan) or _reads_much(plan) or (room(plan.variant) > 0 and asks_much(plan.variant))


def _drops_masked(plan: KernelPlan) -> bool:
    spare = plan.consumer_registers - plan.accumulator_registers - plan.block_kv // _BITS_KEYS
    return plan.variant.dropout is not None and bool(plan.variant.keeps) and spare <= _DROPOUT_REGISTERS


def _reads_much(plan: KernelPlan) -> bool:
    tests = (plan.rules.any_kept, plan.rules.all_kept) if plan.uses_tile_kind else ()
    return sum(isinstance(node, Load) for node in walk(*plan.rules.bounds, *tests)) > _ENTRIES_READ

"""Which tiles of the family hopper are too crowded for a variant, by what its warpgroups have registers for.

Forward, what a warpgroup has left besides its accumulators, and its producer altogether, is scarce where three
warpgroups multiply, and at wide heads. Backward, where each owner holds dK and dV of 64 keys, or one of both of many
columns: 32 registers are left to it, and 32 to the producer.
"""

from __future__ import annotations

from math import inf

from ..ir import Expr, Load, Search, walk
from .hopper_backward import HopperBackward
from .hopper_forward import HopperForward
from .plan import PANEL_COLUMNS, KernelPlan
from .weight import (
    asked_of_keys,
    asks_much,
    entries_met,
    gradient_code,
    learns_from_pairs,
    room,
    tested_weight,
    tests_ids,
)

_CROWDED = 3  # warpgroups; of those with more, none waits for products beside others
_DROPOUT_REGISTERS = 42  # of a consumer, besides its accumulators and what a mask keeps: not enough for dropout
_BITS_KEYS = 16  # keys for which a lane, with two rows, holds a register of what the mask keeps
_TESTS_REGISTERS = 40  # of a consumer, besides its accumulators: not enough for tests that weigh more than this
_ENTRY_REGISTERS = 2.5  # of a producer, for each entry that it holds at once
_WIDE = 128  # columns

_OWNED_KEYS = 128  # of a backward block whose owners have half of them each; of fewer, one has dK and the other dV
# The most of each of `entries_met` that isn't known to spill there, by whether the plan is thrifty and by the columns
# that dK and dV have at least.
_OWNERS_ROOM: dict[bool, dict[int, tuple[float, float]]] = {
    False: {256: (3, 6), 128: (7, inf)},
    True: {256: (15, 10)},
}
_SCARCE = 32  # registers, of an owner besides its accumulators, and of a producer. What was seen to fit in those:
_TESTED = 20  # the weight of tests that read an entry for each key
_SLOPES = 40  # the code of score lines and slopes, if it does more than add, and that of a tile's pairs isn't a loop
_SUMMED_SLOPES = 10  # the same where pairs add to the gradients of inputs
_TEST_ENTRIES = 10  # that tests of tiles read, if not ids alone
_TEST_NODES = 230  # of the tests' expressions


def hopper_crowded(plan: KernelPlan) -> bool:
    if not plan.is_backward:
        return _consumers_crowded(plan) or _reads_much(plan)
    if plan.pass_name != "backward":
        return False
    return _meets_much(plan) or (_is_full(plan) and (_owners_crowded(plan) or _producer_crowded(plan)))


# ---------------------------------------------------------------- forward


def _consumers_crowded(plan: KernelPlan) -> bool:
    hopper = HopperForward(plan)
    spare = hopper.consumer_registers - sum(hopper.accumulators().values())
    if spare <= _TESTS_REGISTERS < tested_weight(plan.variant):
        return True
    asks = room(plan.variant) > 0 and asks_much(plan.variant)
    return plan.warpgroups == _CROWDED and (asks or _drops_masked(plan, spare))


def _drops_masked(plan: KernelPlan, spare: int) -> bool:
    few = spare - plan.block_kv // _BITS_KEYS <= _DROPOUT_REGISTERS
    return plan.variant.dropout is not None and bool(plan.variant.keeps) and few


def _reads_much(plan: KernelPlan) -> bool:
    """Whether the producer would hold more entries than it has registers for: all that bounds and tests of tiles read,
    or without tests, at wide heads, those of one bound."""
    bounds = plan.rules.bounds
    if plan.uses_tile_kind:
        held = _entries(*bounds, *_tests(plan))
    else:
        held = max(map(_entries, bounds)) if plan.padded_head_dim > _WIDE else 0
    return held * _ENTRY_REGISTERS > HopperForward(plan).producer_registers


# ---------------------------------------------------------------- backward


def _meets_much(plan: KernelPlan) -> bool:
    """Whether pairs are asked about more than was seen to fit beside dK and dV."""
    columns = plan.padded_head_dim + plan.padded_value_head_dim
    known = (limits for least, limits in _OWNERS_ROOM[plan.thrifty].items() if columns >= least)
    asked = zip(entries_met(plan.variant), next(known, ()), strict=False)
    return plan.block_kv == _OWNED_KEYS and any(count > limit for count, limit in asked)


def _is_full(plan: KernelPlan) -> bool:
    """Whether both owners have no more than the scarce registers besides their accumulators, nor has the producer. Of
    head dims that are no whole panels, or not alike where owners share keys, some fit."""
    hopper, alike = HopperBackward(plan), plan.padded_head_dim == plan.padded_value_head_dim
    if plan.padded_head_dim % PANEL_COLUMNS or (hopper.shares_keys and not alike):
        return False
    return max(hopper.owner_registers - sum(hopper.accumulators().values()), hopper.producer_registers) <= _SCARCE


def _owners_crowded(plan: KernelPlan) -> bool:
    hopper, variant = HopperBackward(plan), plan.variant
    asked, slopes = asked_of_keys(variant), gradient_code(variant)
    if asked.of_rows or (asked.entries and (asked.weight > _TESTED or (hopper.shares_keys and asked.compared > 1))):
        return True
    at_once = hopper.factors and (hopper.shares_keys or hopper.score_step > 1)
    return (at_once and slopes > _SLOPES) or (learns_from_pairs(variant) and slopes > _SUMMED_SLOPES)


def _producer_crowded(plan: KernelPlan) -> bool:
    tests, rows = _tests(plan), plan.rules.q_bounds
    if sum(1 for _ in walk(*tests)) > _TEST_NODES or (_entries(*tests) > _TEST_ENTRIES and not tests_ids(plan.variant)):
        return True
    return rows is not None and _searches(rows.q_end)


def _searches(bound: Expr) -> bool:
    """Whether a bound is searched for a position, which is there at once, and not for an entry."""
    return any(isinstance(node, Search) and not _entries(node.value) for node in walk(bound))


def _tests(plan: KernelPlan) -> tuple[Expr, ...]:
    return (plan.rules.any_kept, plan.rules.all_kept) if plan.uses_tile_kind else ()


def _entries(*roots: Expr) -> int:
    return sum(isinstance(node, Load) for node in walk(*roots))

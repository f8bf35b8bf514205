"""How many keys a block of queries goes over: what splits share, and what the cache should hold."""

from __future__ import annotations

import numpy as np

from ..evaluate import evaluate
from ..ir import Expr, Load, Search, symbol, walk
from ..problem import Problem
from ..problem.arrays import environment
from ..problem.problem import Sequence
from ..schedule.plan import KernelPlan
from ..statements import MASK_FLOAT
from .registry import facts_of

# Where inputs tell at which key a block begins, it is taken to go over so many times fewer than all.
_NARROWING = 4


def reach(plan: KernelPlan, problem: Problem) -> int:
    """The most keys that a block of queries goes over, as far as lengths tell; a guess where inputs do."""
    keys = min(most_tiles(plan, problem) * plan.block_kv, problem.keys)
    return -(-keys // _NARROWING) if reach_is_guessed(plan) else keys


def reach_is_guessed(plan: KernelPlan) -> bool:
    """Whether inputs tell at which key a block begins."""
    return _read_inputs(plan.rules.kv_begin) and plan.skip != "never"


def most_tiles(plan: KernelPlan, problem: Problem) -> int:
    """K/V tiles of the block of queries that has most of them, of those of all heads: from the first key that its mask
    may keep to the last, so that no split of a window gets keys that nobody sees.

    All of kv_len where the bounds read inputs, which are on the device, or the scale, and in 2-D tiles. Of packed
    batches, whose lengths are there too, it is what a sequence of mean length has.
    """
    tiles = block_tiles(plan, problem)
    return max(tiles, default=0) if tiles is not None else -(-problem.keys // plan.block_kv)  # of no heads: 0


def block_tiles(plan: KernelPlan, problem: Problem) -> list[int] | None:
    """The same of each block of queries, of the head that has most of them, where lengths tell."""
    keys = -(-problem.keys // plan.block_kv)
    bounds = plan.rules.kv_begin, plan.rules.kv_end
    if plan.grid_2d is not None or not problem.rows:
        return None
    if not plan.variant.keeps or plan.skip == "never":
        return [keys] * facts_of(plan).q_blocks(problem)
    if _read_inputs(*bounds):
        return None
    sequence = Sequence.whole(0, problem.rows, problem.keys)
    uniform = environment(plan.variant, problem, sequence, {}, MASK_FLOAT)
    rows, each = facts_of(plan).block_rows(problem)
    first = np.arange(0, problem.rows * each, rows)
    last = np.minimum(first + rows, problem.rows * each) - 1
    blocks = uniform.with_symbols(q_first=first // each, q_last=last // each)
    begin, end = (evaluate(bound, blocks) for bound in bounds)
    tiles = -(-np.minimum(end, problem.keys) // plan.block_kv) - np.maximum(begin, 0) // plan.block_kv
    of_heads = np.clip(np.broadcast_to(tiles, np.broadcast_shapes(np.shape(tiles), first.shape)), 0, keys)
    most: list[int] = of_heads.reshape(-1, len(first)).max(axis=0, initial=0).tolist()
    return most


def _read_inputs(*bounds: Expr) -> bool:
    """Whether it takes more than lengths to tell them."""
    return any(isinstance(node, Load | Search) or node == symbol("scale") for node in walk(*bounds))

"""Calls whose sequences share a prefix (Hydragen, Juravsky et al. 2024; cascade inference, Ye et al. 2024).

A call has two launches. The first, of the pass `forward`, goes over the prefix: the rows of all sequences are one
sequence to it, so that a tile of keys is loaded once for many of them. The second, of the pass `decode`, goes over each
sequence's own keys, and merges what both found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import lcm

from ..problem import Problem
from ..schedule.plan import KernelPlan
from .registry import facts_of

# Inputs of the kernel over the prefix that no caller brings: kv_lens of the call, its q_len, and its query heads for
# each key head. No user's input begins with the name of an argument.
LENGTHS, Q_LEN, GROUP = (f"shared_prefix__{name}" for name in ("lengths", "q_len", "group"))

# What the kernel behind it is told: keys that all sequences share; those of them that the first launch goes over, from
# the first on; how many parts its results have; and how many rows each key head has there, those of all sequences.
PREFIX_FIELDS = ("shared_prefix", "prefix_keys", "prefix_parts", "prefix_rows")
LEAST_PARTS = 2  # of the first launch: it leaves parts in fp32, which the second merges


def behind_prefix(plans: Sequence[KernelPlan]) -> KernelPlan:
    """The plan of the second launch."""
    return next(plan for plan in plans if plan.pass_name == "decode")


def over_prefix_plan(plans: Sequence[KernelPlan]) -> KernelPlan:
    """The plan of the first launch."""
    return next(plan for plan in plans if plan.pass_name == "forward")


def prefix_problem(plans: Sequence[KernelPlan], problem: Problem) -> Problem | None:
    """The sizes of the first launch, of whole tiles of both kernels; None where there is no such tile, or where the
    kernel can't load the call's pages: then the second launch goes over all keys."""
    over, behind = over_prefix_plan(plans), behind_prefix(plans)
    keys = whole_tiles(problem.shared_prefix, over.block_kv, behind.block_kv)
    rows = problem.batch * problem.q_len * problem.group
    one = replace(problem, batch=1, num_heads=problem.num_kv_heads, q_len=rows, kv_len=keys)
    sizes = replace(one, cached=False, kv_lens=None, shared_prefix=0)
    return sizes if keys and facts_of(over).fits_pages(sizes) else None


def whole_tiles(keys: int, *blocks: int) -> int:
    """As many of the first keys as are whole tiles of all these sizes."""
    return keys // lcm(*blocks) * lcm(*blocks)

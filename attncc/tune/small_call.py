"""A call with few enough pairs for dense attention in fp64 that runs the kernel of the timed call.

Whether thread blocks work in clusters of two, and which of two sibling kernels runs, depends on a call's sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import isqrt

from ..problem import Problem, Signature
from ..runtime.call.persistent import (
    ONE_STAGE_ROWS,
    PAIRED_MASKED,
    PAIRED_ROWS,
    clusters,
    key_clusters,
    own_backward_kernels,
)
from ..schedule.plan import KernelPlan

_ROWS, _MORE_KEYS = 330, 250  # several tiles, of which the last are partly filled
_MOST_PAIRS = 2**20  # over all heads; of one head where that makes fewer rows than _LEAST_ROWS, or to have clusters
_LEAST_ROWS = 80
_MISSING, _BEYOND = 8, 8  # rows, or keys, that the last tile lacks, or that are more than a limit


def small_problem(problem: Problem, plan: KernelPlan | None, resident: int, *, ordered: bool) -> Problem:
    """With the group and the head dims of the timed one, `problem`. `plan`: of the kernel that is to be checked, of
    which the GPU holds `resident` thread blocks at once. `ordered`: its sums are.

    Where no small call runs as the timed one does, that of the usual sizes.
    """
    usual = _usual(problem, plan)
    if plan is None:
        return usual
    wanted = _way(plan, problem, resident, ordered)
    if _way(plan, usual, resident, ordered) == wanted:
        return usual
    sizes = (_sized(problem, plan, 1, *lengths) for lengths in _lengths(problem, usual, plan))
    return next((small for small in sizes if _way(plan, small, resident, ordered) == wanted), usual)


def _way(plan: KernelPlan, problem: Problem, resident: int, ordered: bool) -> object:
    """Whether thread blocks form clusters, and which kernels may take the plan's place where they don't."""
    if not plan.is_backward:
        return clusters(plan, problem, resident)
    together = key_clusters(plan, problem, resident, ordered=ordered)
    return together, own_backward_kernels(plan, problem, resident, ordered=ordered)


def _usual(problem: Problem, plan: KernelPlan | None) -> Problem:
    """With rows and keys of about `_MOST_PAIRS` at most."""
    batch = min(problem.batch, 2)
    pairs = _MOST_PAIRS // (batch * problem.group)
    q_len = min(problem.q_len, _ROWS, max(isqrt(pairs), _LEAST_ROWS))
    if problem.kv_len == problem.q_len:
        return _sized(problem, plan, batch, q_len, q_len)
    return _sized(problem, plan, batch, q_len, min(problem.kv_len, max(q_len + _MORE_KEYS, pairs // q_len)))


def _lengths(problem: Problem, usual: Problem, plan: KernelPlan) -> Iterator[tuple[int, int]]:
    """Other rows and keys, those with fewer pairs first: on both sides of each limit of clusters, and of even and odd
    numbers of thread blocks."""
    few_rows, few_keys = ({blocks * size - _MISSING for blocks in (2, 3)} for size in (plan.block_q, plan.block_kv))
    if plan.is_backward:
        limits = [*(rows // problem.group for rows in (PAIRED_ROWS, ONE_STAGE_ROWS)), PAIRED_MASKED * PAIRED_ROWS]
        found = product({usual.q_len, *few_rows, *(limit + _BEYOND for limit in limits)}, few_keys)
    else:
        found = product(few_rows, {usual.kv_len, *few_keys, PAIRED_ROWS + _BEYOND})
    for q_len, kv_len in sorted(found, key=lambda lengths: lengths[0] * lengths[1]):
        if q_len * kv_len <= _MOST_PAIRS and (q_len == kv_len or not _same_positions(plan)):
            yield q_len, kv_len


def _same_positions(plan: KernelPlan) -> bool:
    """Whether the variant takes as many queries as keys alone (A611)."""
    return bool(Signature(plan.variant, plan.dtype, plan.head_dim, plan.value_head_dim).positions_by_q_idx)


def _sized(problem: Problem, plan: KernelPlan | None, batch: int, q_len: int, kv_len: int) -> Problem:
    if plan is not None and plan.grid_2d is not None:
        width = plan.grid_2d.width
        q_len, kv_len = (max(length // width, 1) * width for length in (q_len, kv_len))
    return replace(problem, batch=batch, num_heads=problem.group, num_kv_heads=1, q_len=q_len, kv_len=kv_len)

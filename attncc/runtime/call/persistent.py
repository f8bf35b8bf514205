"""The order in which blocks of queries, or of keys, run."""

from __future__ import annotations

from ...kernels.live_tiles import reach, reach_is_guessed
from ...kernels.registry import backward_facts, forward_facts
from ...problem import Problem
from ...schedule.plan import DTYPE_BYTES, UNCLUSTERED, KernelPlan, OwnKernel

PAIRED_ROWS = 1024  # of keys, or queries, that a block goes over: with fewer, waiting for each other at ends costs more
# The next two are from causal backward calls on one H200, bf16, D128 (docs/notebook/2026-11-backward.md, "Calls without
# pairs"). For other masks and GPUs they are guesses, which change times, not results.
PAIRED_MASKED = 4  # times as many queries of a head under a mask: a pair computes the tiles that either block needs
# Under a mask, rows from which on the usual kernel without clusters (one stage of keys) is as fast as the unclustered
# one (two stages, blocks ahead). Timed: 1,536 rows 3 % slower, 2,048 rows 2 % faster.
ONE_STAGE_ROWS = 2048
# Of the rows of blocks, those that no sequence has: above this share there are no pairs. A guess: pairs bring 2 to 4 %
# at most. At 1/9, to claim blocks one by one, of which short ones are soon done, brought 6 % (an H200, D128, blocks of
# 192 rows, full: docs/notebook/2026-11-forward.md). Other shares weren't timed.
PADDED_SHARE = 1 / 16
_SUM_BYTES = 4  # of an element of the sum of dQ


def alike(plan: KernelPlan, problem: Problem) -> bool:
    """Whether all blocks of queries take alike long: no mask, and no sequences of different lengths."""
    return not plan.variant.keeps and not problem.varies


def has_short_blocks(plan: KernelPlan, problem: Problem) -> bool:
    """Whether the last block of a sequence's queries takes less time than others."""
    facts = forward_facts(plan)
    return facts.is_short(problem.q_len % plan.block_q)


def clusters(plan: KernelPlan, problem: Problem, resident: int) -> bool:
    """Whether thread blocks 2i and 2i + 1 of a grid of at most `resident` load keys for each other: they always work on
    rows of one head of k, and long enough. In a pair a short block takes as long as the other one."""
    blocks = forward_facts(plan).q_blocks(problem)
    together = problem.group * blocks  # blocks of queries that follow each other
    even = together % 2 == resident % 2 == 0
    padded = blocks * plan.block_q - problem.q_len > PADDED_SHARE * blocks * plan.block_q
    serves = even and not problem.packed and not (has_short_blocks(plan, problem) and padded)
    return forward_facts(plan).uses_clusters and serves and problem.kv_len >= PAIRED_ROWS


def key_clusters(plan: KernelPlan, problem: Problem, resident: int, *, ordered: bool) -> bool:
    """The same of blocks of keys, which go through the queries together. Sums that are `ordered` are each block's."""
    even = backward_facts(plan).kv_blocks(problem) % 2 == resident % 2 == 0
    if plan.variant.keeps:  # each head has tiles that one of the blocks needs
        long = problem.q_len >= PAIRED_MASKED * PAIRED_ROWS
    else:
        long = problem.group * problem.q_len >= PAIRED_ROWS
    return even and long and not ordered and not problem.packed and backward_facts(plan).uses_clusters


def own_backward_kernels(plan: KernelPlan, problem: Problem, resident: int, *, ordered: bool) -> tuple[OwnKernel, ...]:
    """The unclustered kernel, where it is faster for a call that forms no clusters than the plan's, which is made for
    clusters of two thread blocks. Deterministic calls (`ordered`) and calls without a mask gain; masked calls gain if
    they are dense and have few rows.
    """
    if not backward_facts(plan).uses_clusters or key_clusters(plan, problem, resident, ordered=ordered):
        return ()
    short = not problem.packed and problem.group * problem.q_len < ONE_STAGE_ROWS
    return (UNCLUSTERED,) if ordered or short or not plan.variant.keeps else ()


def head_swizzle(plan: KernelPlan, problem: Problem, heads: int, l2_bytes: int) -> int:
    """How many query heads are worked on together: whole groups, as many as the L2 cache holds the keys and values of
    that a block goes over.

    `heads` is how many there are, those of all sequences of a dense batch. A power of two of groups, so that sections
    are mostly alike; at least one group, and one where blocks are alike, for then heavy ones needn't come first.
    """
    group = problem.group // forward_facts(plan).row_heads(problem)  # of what the grid counts as heads
    if alike(plan, problem):
        return min(group, heads)
    row_bytes = (plan.head_dim + plan.value_head_dim) * DTYPE_BYTES[plan.dtype]
    held = max(l2_bytes // max(reach(plan, problem) * row_bytes, 1), 1)
    return min((1 << held.bit_length() - 1) * group, heads)


def key_head_swizzle(
    plan: KernelPlan, problem: Problem, kv_heads: int, l2_bytes: int, *, ordered: bool, running: int
) -> int:
    """The same for blocks of keys, in heads of k: as many as the L2 cache holds queries, dout and the sum of dQ of.

    Where inputs tell what blocks look at, blocks take unlike times, and in small sections the last one's longest begin
    when hardly any are left. What counts there is what `running` blocks look at, who share so many heads: as many rows
    as they have keys, and what one block looks at beyond.

    `ordered`: blocks of a head add to dQ one after the other, so that other heads should come between them.
    """
    if alike(plan, problem) and not ordered:
        return 1
    row_bytes = (plan.head_dim + plan.value_head_dim) * DTYPE_BYTES[plan.dtype] + plan.head_dim * _SUM_BYTES
    rows = l2_bytes // (problem.group * row_bytes)
    held = rows // max(problem.q_len, 1)
    if reach_is_guessed(plan):
        near = max(reach(plan, problem) * problem.rows // max(problem.keys, 1), 1)
        held = max(held, (rows - running * plan.block_kv) // near)
    return min(1 << max(held, 1).bit_length() - 1, kv_heads)

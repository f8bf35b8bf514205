"""The forward kernel for Hopper that splits keys: which builds have it, what its blocks are like, and how long calls
take by it and by the usual kernel.

Times are in keys that a whole block of SPLIT_ROWS goes over. They are of an H200 (docs/notebook/2026-11-tune.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf

from ...problem import Problem
from ...schedule.plan import FRAGMENT, Build, KernelPlan
from ..crossings import NEVER, Chip
from ..hopper.lacks import lacks
from ..hopper.panels import WARPGROUP_ROWS
from ..live_tiles import block_tiles, most_tiles, reach_is_guessed
from ..makespan import makespan
from ..registry import forward_facts
from ..splits import choose_splits

SPLIT_ROWS = 128  # the most that a block of it has: two warpgroups, in all of its tiles
SPLIT_KEYS = 128  # of a tile, for the estimate: some builds have fewer
# The time of a key, by how many warpgroups of a block have rows; and where blocks have three or four. Of causal chunks
# and full attention over 512 to 32,768 keys at D64, D128 and D256. Other variants weren't fitted: of windows, softcap
# and ALiBi two calls of 48 got a kernel that is more than 3 % slower. Elsewhere these are guesses, which change times,
# not results.
_COSTS, _COSTS_OF_LARGE = (0.65, 1), (0.85, 1.1, 1.4, 1.5)
# Of a block: its queries, its first tile, and its results. Timed in two waves: full calls 100 to 240, causal ones 250.
_START = 250


def is_made(build: Build) -> bool:
    """Whether its forward calls, of 16 bits, may have the kernel. Those over a shared prefix split unasked."""
    usual = build.pass_name == "forward" and build.dtype in ("fp16", "bf16") and not build.prefixed
    return usual and build.lengths is None and lacks(build) is None


def is_run(plan: KernelPlan) -> bool:
    """Whether calls may run it. Where inputs tell which keys a block sees, nobody knows how many splits would pay."""
    return is_made(plan.build) and not reach_is_guessed(plan)


@lru_cache(maxsize=64)
def times(plan: KernelPlan, problem: Problem, chip: Chip) -> tuple[float, float]:
    """Of a call by the usual kernel, which the plan is of, and by the kernel that splits keys. One split is all of a
    block's: blocks of 128 rows, with those of all heads of a group, may fill the GPU better than larger ones. Kept,
    since several ask about a call that comes for the first time."""
    alone = _time(plan, problem, _tiles(plan, problem), 1, chip)
    if chip.crossings.combine_keys >= NEVER:
        return alone, inf
    split = replace(plan, block_q=SPLIT_ROWS, warps=SPLIT_ROWS // FRAGMENT, block_kv=SPLIT_KEYS)
    split = replace(split, split=True, split_kv=None)
    blocks, tiles = forward_facts(split).heads(problem) * forward_facts(split).q_blocks(problem), _tiles(split, problem)
    splits = choose_splits(blocks, max(tiles, default=0), chip.multiprocessors)
    combine = chip.crossings.combine_keys if splits > 1 else 0
    return alone, _time(split, problem, tiles, splits, chip) + combine


def _tiles(plan: KernelPlan, problem: Problem) -> list[int]:
    """Of keys, of each block of queries. Sequences of a packed batch are taken to be alike."""
    found = None if problem.packed else block_tiles(plan, problem)
    return [most_tiles(plan, problem)] * forward_facts(plan).q_blocks(problem) if found is None else found


def _time(plan: KernelPlan, problem: Problem, tiles: Sequence[int], splits: int, chip: Chip) -> float:
    """Until the last block is done."""
    facts = forward_facts(plan)
    costs = _COSTS if plan.block_q <= SPLIT_ROWS else _COSTS_OF_LARGE
    (most, each), warpgroups = facts.block_rows(problem), plan.block_q // WARPGROUP_ROWS
    found = []
    for block, count in enumerate(tiles):
        before = 0 if problem.packed else block * most
        rows = min(problem.rows * each - before, most)
        found.append(_START + -(-count // splits) * plan.block_kv * costs[-(-rows * warpgroups // most) - 1])
    return makespan(found, facts.heads(problem) * splits, chip.multiprocessors) - _START if found else 0

"""V of 8 bits, transposed by a launch before the kernel: when that pays, and the memory that it takes.

Else the kernel transposes each tile for each block of queries that multiplies it, by warps that share a multiprocessor
with those that multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..problem import Problem
from .live_tiles import reach
from .plan import KernelPlan

# What it costs: a launch, and to read and write V. What it brings: a share of the time that products take. Of an H200.
LAUNCH_SECONDS = 4e-6
BYTES_A_SECOND = 4e12
FLOPS = 1e15
SHARE = 0.05
# By what is expected to be saved at least, in its own cost.
MARGIN = 2


@dataclass(frozen=True)
class TransposedValues:
    """The tiles of one call: [heads, tiles, tile_bytes]."""

    heads: int  # of keys, of all sequences of a dense batch
    tiles: int  # of a head; in a packed batch those of all sequences, a bound that needs no look at cu_seqlens
    tile_bytes: int

    @classmethod
    def of(cls, plan: KernelPlan, problem: Problem) -> TransposedValues:
        heads = problem.num_kv_heads * (1 if problem.packed else problem.batch)
        return cls(heads, plan.kv_blocks(problem), plan.block_kv * plan.padded_value_head_dim)

    @property
    def count(self) -> int:
        return self.heads * self.tiles

    @property
    def bytes(self) -> int:
        return self.count * self.tile_bytes


def may_transpose_ahead(plan: KernelPlan) -> bool:
    """Whether V has to be transposed, and tiles of keys are the same for all blocks of queries: windows aren't."""
    return plan.transposes_values and plan.rules.columns is None


def pays(plan: KernelPlan, problem: Problem) -> bool:
    """Whether V should be transposed ahead. Of a mask it is known how far rows reach at most, not what they keep: so
    never where single tiles are tested."""
    if not may_transpose_ahead(plan) or plan.tests_tiles:
        return False
    rows = problem.num_heads * problem.total_q
    products = 2 * rows * reach(plan, problem) * (plan.head_dim + plan.value_head_dim)
    seconds = LAUNCH_SECONDS + 2 * TransposedValues.of(plan, problem).bytes / BYTES_A_SECOND
    return SHARE * products / FLOPS > MARGIN * seconds

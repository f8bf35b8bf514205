"""V of 8 bits, transposed by a launch before the kernel: when that pays, and the memory that it takes.

Else the kernel transposes each tile for each block of queries that multiplies it, by warps that share a multiprocessor
with those that multiply.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...problem import Problem
from ...schedule.plan import KernelPlan
from ..facts import ForwardFacts
from ..live_tiles import reach
from ..parameters import Parameter, ints, ordered, pointers
from ..registry import forward_facts
from .helper import HelperKernel

THREADS = 128
_BARRIER_BYTES = 8

# On an H200. What it costs: to read and write V, and a launch: 4 us alone, of which half is taken to remain since the
# kernel begins beside its end (not timed apart). What it brings: a share of the time that products take, by how many
# warps transpose V for blocks of how many rows. With 2 warps and 128 rows (head dim 256) that was 19 to 26 %, with 3
# and 192 (head dim 128) 1 to 3 %, as these have time enough. A power of warps * rows is a guess that meets both; no
# third pair was timed. A mask is taken to leave out half of the keys, as a causal one does. A wrong guess changes
# times, not results. Figures: docs/notebook/2026-11-e4m3.md.
LAUNCH_SECONDS = 2e-6
BYTES_A_SECOND = 4e12
FLOPS = 1e15
SHARE, OF_WARPS_AND_ROWS, POWER = 0.2, 2 * 128, 3


def needed(facts: ForwardFacts) -> tuple[HelperKernel, ...]:
    return (kernel(facts),) if may_transpose_ahead(facts) else ()


def kernel(facts: ForwardFacts) -> HelperKernel:
    """`transpose_values_d128_k96_sm_90a`: for all plans with tiles of so many keys; it also
    names the grid of 2-D tiles."""
    plan = facts.plan
    grid_2d = "" if plan.grid_2d is None else f"_w{plan.grid_2d.width}x{plan.grid_2d.kv_columns}"
    columns, parts = f"{plan.block_kv} keys and {plan.value_head_dim} columns", facts.shared_parts()
    tiles = sum(prod(parts[name].values()) // plan.stages for name in ("v", "v transposed"))  # as loaded, as taken
    return HelperKernel(
        name=f"transpose_values_d{plan.value_head_dim}_k{plan.block_kv}{grid_2d}_{plan.target}",
        template="helpers/transpose_values.cu.j2",
        what=f"transpose_values: V of 8 bits, in tiles of {columns}, as the kernel after it takes them",
        parameters=parameters(),
        threads=THREADS,
        shared_bytes=tiles + _BARRIER_BYTES,
        facts=facts,
    )


def parameters() -> tuple[Parameter, ...]:
    """Of each key head `kv_tiles` tiles. `cu_seqlens_kv` is null for a dense batch; `batch` counts its sequences."""
    fields = [*pointers("unsigned char", "values_ahead"), *pointers("const int", "cu_seqlens_kv")]
    strides = [Parameter(f"v_stride_{axis}", "long long") for axis in ("batch", "head")]
    return ordered([*fields, *strides, *ints("batch", "num_kv_heads", "kv_len", "kv_tiles")])


@dataclass(frozen=True)
class TransposedValues:
    """The tiles of one call: [heads, tiles, tile_bytes]."""

    heads: int  # of keys, of all sequences of a dense batch
    tiles: int  # of a head; in a packed batch those of all sequences, a bound that needs no look at cu_seqlens
    tile_bytes: int

    @classmethod
    def of(cls, plan: KernelPlan, problem: Problem) -> TransposedValues:
        heads = problem.num_kv_heads * (1 if problem.packed else problem.batch)
        return cls(heads, forward_facts(plan).kv_blocks(problem), plan.block_kv * plan.padded_value_head_dim)

    @property
    def count(self) -> int:
        return self.heads * self.tiles

    @property
    def bytes(self) -> int:
        return self.count * self.tile_bytes


def may_transpose_ahead(facts: ForwardFacts) -> bool:
    """Whether V has to be transposed, and tiles of keys are the same for all blocks of queries: windows aren't."""
    return facts.transposes_values and facts.plan.rules.columns is None


def pays(plan: KernelPlan, problem: Problem) -> bool:
    """Whether V should be transposed ahead. Of a mask it is known how far rows reach at most, not what they keep: so
    never where single tiles are tested; nor of a cache, most of which may be empty."""
    facts = forward_facts(plan)
    if not may_transpose_ahead(facts) or plan.tests_tiles or problem.cached:
        return False
    rows = problem.num_heads * problem.total_q
    keys = reach(plan, problem) / (2 if plan.variant.keeps else 1)
    products = 2 * rows * keys * (plan.head_dim + plan.value_head_dim)
    share = SHARE * (OF_WARPS_AND_ROWS / (facts.transposing_warps * plan.block_q)) ** POWER
    seconds = LAUNCH_SECONDS + 2 * TransposedValues.of(plan, problem).bytes / BYTES_A_SECOND
    return share * products / FLOPS > seconds

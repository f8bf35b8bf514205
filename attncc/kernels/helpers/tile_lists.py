"""Lists of live tiles: a pre-pass tests the tiles of each block of queries once, for all heads that share them.

A list holds two bits for each tile of keys, live and FULL, so its length is known before anything is tested: the host
waits for no count, and graphs replay it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import Symbol, walk
from ...problem import Problem
from ...schedule.plan import KernelPlan
from ..facts import ForwardFacts
from ..kernel_names import configuration_of
from ..registry import forward_facts
from .helper import HelperKernel

THREADS = 128
TILES_A_WORD, WORD_BYTES = 32, 8


def needed(facts: ForwardFacts) -> tuple[HelperKernel, ...]:
    return (kernel(facts),) if facts.tile_lists else ()


def kernel(facts: ForwardFacts) -> HelperKernel:
    """`tile_lists_block_map_bf16_d64_sm_80`: it takes the `Params` of the plan's own kernel."""
    plan = facts.plan
    of_plan = f"{plan.variant.name}_{configuration_of(plan)}_{plan.target}"
    return HelperKernel(
        name=f"tile_lists_{of_plan}",
        template="helpers/tile_lists.cu.j2",
        what=f"tile_lists: the live tiles of each block of {plan.block_q} queries of {of_plan}",
        parameters=facts.parameters(),
        threads=THREADS,
        own_entry=f"tile_lists_{plan.variant.name}",
        facts=facts,
        prints_variant=True,
    )


@dataclass(frozen=True)
class TileLists:
    """The lists of one call: [batch, heads, q_blocks, groups, words]; batch and heads are 1 where the mask is the same
    for all, and batch in a packed batch, whose blocks of queries are counted through."""

    batch: int
    heads: int
    q_blocks: int
    groups: int  # of rows of a block, with a list each
    words: int

    @classmethod
    def of(cls, plan: KernelPlan, problem: Problem) -> TileLists:
        facts = forward_facts(plan)
        names = {node.name for node in walk(*plan.rules.expressions) if isinstance(node, Symbol)}
        return cls(
            problem.batch if ("b" in names or problem.cached or problem.has_offset) and not problem.packed else 1,
            problem.num_heads if names & {"h", "kv_h"} else 1,
            facts.q_blocks(problem),
            facts.row_groups,
            -(-problem.kv_len // (plan.block_kv * TILES_A_WORD)),
        )

    @property
    def count(self) -> int:
        return self.batch * self.heads * self.q_blocks * self.groups

    def parts(self, warps: int) -> int:
        """Into how many parts each list falls, where the GPU holds so many warps of the pre-pass at once."""
        return max(min(warps // max(self.count, 1), self.words), 1)

    @property
    def bytes(self) -> int:
        return self.count * self.words * WORD_BYTES

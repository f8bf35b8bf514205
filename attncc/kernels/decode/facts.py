"""What a decode kernel is beyond its tiles: few rows, of several heads, and many keys (Flash-Decoding)."""

from __future__ import annotations

from ... import ir
from ...problem import Problem
from ..facts import IDLE_SHARE, SPLIT_KEYS
from ..portable_forward.facts import PortableForward


class Decode(PortableForward):
    """Of a plan of the pass `decode`."""

    def serves(self, problem: Problem) -> bool:
        """Where one tile holds all rows."""
        return problem.rows * self.row_heads(problem) <= self.plan.block_q

    @property
    def calls(self) -> str:
        rows = "queries times the query heads of a key head" if self.packs_heads else "queries"
        return (
            f"up to {self.plan.block_q} rows ({rows}), and those over {SPLIT_KEYS} keys or more for which the forward "
            f"kernel would have one thread block for {IDLE_SHARE} multiprocessors or fewer"
        )

    def row_heads(self, problem: Problem) -> int:
        return problem.group if self.packs_heads else 1

    @property
    def packs_heads(self) -> bool:
        """Not where a mask may keep other tiles for each head of a group, nor with dropout, whose bits are drawn by
        head."""
        plan = self.plan
        if plan.variant.dropout is not None:
            return False
        tests = (plan.rules.any_kept, plan.rules.all_kept) if plan.tests_tiles else ()
        return not any("h" in ir.reads(plan.variant, rule) for rule in (*plan.rules.bounds, *tests))

    @property
    def keeps_work(self) -> bool:
        return self.plan.dtype != "fp32"

    @property
    def spills_to_smem(self) -> bool:
        return False

    @property
    def query_rows(self) -> str:
        return "group_rows" if self.packs_heads else super().query_rows

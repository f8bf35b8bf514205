"""What a kernel of wide heads is beyond its tiles. Thread blocks share out keys as those of decode do. Warps of a block
share the keys of a tile for S and P, and the columns of V for O: no warp could hold whole rows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...problem import Problem
from ...schedule.plan import FRAGMENT
from ..decode.facts import Decode
from ..shared import Parts, shared_bytes
from ..wide_heads import WideHeads
from .shared import key_groups, latent_stages, ring_bytes, shared_parts

if TYPE_CHECKING:
    from ..instruction_cost import Steps


class WideForward(WideHeads, Decode):
    """Of a plan of the pass `forward` or `decode`."""

    @property
    def template(self) -> str:
        return "wide_forward/wide_forward.cu.j2"

    def serves(self, problem: Problem) -> bool:
        return self.plan.pass_name == "forward" or super().serves(problem)

    @property
    def calls(self) -> str:
        if self.plan.pass_name == "forward":
            return "all that no other pass serves"
        return f"up to {self.plan.block_q} rows (queries times the query heads of a key head)"

    # ------------------------------------------------------------ the kernel

    @property
    def warp_rows(self) -> str:
        return str(FRAGMENT)

    @property
    def warp_keys(self) -> int:
        return self.plan.block_kv // key_groups(self.plan)

    @property
    def slice_columns(self) -> int:
        """Of O, that a warp has of all rows: pairs of fragments."""
        pairs = self.plan.padded_value_head_dim // FRAGMENT
        return -(-pairs // self.plan.warps) * FRAGMENT

    @property
    def latent_stages(self) -> int:
        """Tiles of K in flight where V is its first columns, which calls tell by where k and v are."""
        return latent_stages(self.plan, self.plan.build)

    @property
    def steps(self) -> Steps:
        from ..instruction_cost import steps  # analyses expressions: calls of built kernels needn't load that

        return steps(self.plan.variant, self.plan.warps, 1, self.warp_keys // 8)

    @property
    def loads_by_tma(self) -> bool:
        return False

    # ------------------------------------------------------------ what it takes of a multiprocessor

    def accumulators(self) -> dict[str, int]:
        return {"score": self.warp_keys * FRAGMENT // 32, "out": self.plan.block_q * self.slice_columns // 32}

    def shared_parts(self) -> Parts:
        return shared_parts(self.plan, self.plan.build)

    @property
    def ring_bytes(self) -> int:
        """Of tiles of K and V."""
        return ring_bytes(self.plan, self.plan.build)

    @property
    def result_bytes(self) -> int:
        """All of it: where parts are merged, nothing else is there."""
        return shared_bytes(self.shared_parts())

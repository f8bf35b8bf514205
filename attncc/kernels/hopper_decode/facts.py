"""What a decode kernel with wgmma is beyond one of `decode`: each warpgroup has all rows, and keys of its own."""

from __future__ import annotations

from ..decode.facts import Decode
from ..hopper.panels import STEP, WARPGROUP_WARPS
from ..hopper.warpgroup_rows import WarpgroupRows
from ..products import Product


class HopperDecode(WarpgroupRows, Decode):
    """Of a plan of the pass `decode`."""

    @property
    def reads_once(self) -> bool:
        """Not with one thread block a multiprocessor, either: that lost 1 %."""
        return super().reads_once and not self.plan.one_block

    @property
    def row_warps(self) -> str:
        return str(WARPGROUP_WARPS)

    @property
    def warp_keys(self) -> int:
        """Each warpgroup has its own."""
        return self.plan.block_kv // (self.plan.warps // WARPGROUP_WARPS)

    @property
    def products(self) -> dict[str, Product]:
        """S = Q K^T takes both operands from shared memory; O += P V takes P from registers and sums over rows of V."""
        plan = self.plan
        return {
            "scores": Product("multiply_queries_keys", self.warp_keys, plan.padded_head_dim // STEP),
            "output": Product(
                "multiply_probs_values", plan.padded_value_head_dim, self.warp_keys // STEP, True, transposed_b=True
            ),
        }

    def accumulators(self) -> dict[str, int]:
        """S, O, and P in the dtype."""
        return {
            "score": self.warp_keys // 2,
            "out": self.plan.padded_value_head_dim // 2,
            "prob": self.warp_keys // 4,
        }

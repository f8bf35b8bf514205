"""Facts of kernels in which a warpgroup has all rows of a tile."""

from __future__ import annotations

from ...schedule.plan import FRAGMENT
from .panels import WARPGROUP_WARPS


class WarpgroupRows:
    """wgmma's layout of 64 rows: each of four warps has 16 of them."""

    @property
    def warp_rows(self) -> str:
        return str(FRAGMENT)

    @property
    def warp_slot(self) -> str:
        return f"threadIdx.x / 32 % {WARPGROUP_WARPS} * WARP_ROWS"

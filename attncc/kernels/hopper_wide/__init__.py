"""Forward kernels for head dims above 256 on Hopper: TMA and wgmma; two warpgroups share the columns of O (FlashMLA).

Read `facts` (what a kernel is), `shared` (what fits), `tiles`, `legality`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...diagnostics import Diagnostic
from ...schedule.choice import Choice
from ...schedule.plan import BACKWARD_PASSES, HEAD_DIM_STEP, NARROW, WIDE_DTYPES, Build, KernelPlan
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import append, min_max_table
from .facts import HopperWide


class HopperWideFamily(Family):
    passes = ("forward",)
    lacked_passes: ClassVar = {
        "decode": "the decode pass: its tiles have 64 rows, of which few queries leave most empty",
        "patches": "tiles of a 2-D grid: rows of a tile are of all heads of a group",
        **dict.fromkeys(BACKWARD_PASSES, "the backward pass: dK, dV and dQ of such rows are too wide for registers"),
    }
    judged_by = (NARROW + HEAD_DIM_STEP,)
    helpers = (min_max_table.needed, append.needed)

    def lacks(self, build: Build, loop: str) -> str | None:
        if build.target != "sm_90a":
            return f"the target {build.target}: TMA and wgmma are instructions of sm_90a alone"
        if not build.is_wide:
            return "head dims up to 256, whose rows of O one warpgroup holds"
        if loop != "q_outer":
            return f"`loop = {loop}`: its warps hold O in registers while they go over the keys"
        return _lacks_operands(build)

    def facts(self, plan: KernelPlan) -> HopperWide:
        return HopperWide(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from .tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        yield from self.tiles(asked.settings, asked.build).choices

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from .legality import misfits

        return misfits(plan, where)


def _lacks_operands(build: Build) -> str | None:
    """A plan in fp64 is for the CPU executor, which has all."""
    if build.value_head_dim > build.head_dim:
        return f"value head dims ({build.value_head_dim}) above the head dim ({build.head_dim})"
    if build.dtype not in (*WIDE_DTYPES, "fp64"):
        return f"{build.dtype}: wide heads are multiplied in {' and '.join(WIDE_DTYPES)}"
    if build.kv_dtype is not None:
        return f"caches of {build.kv_dtype} beside q of {build.dtype}: TMA brings tiles as wgmma reads them"
    return None


FAMILY = HopperWideFamily()

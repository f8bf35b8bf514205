"""Forward kernels for head dims above 256, for every GPU: mma.sync, cp.async; warps share the columns of O.

Read `facts` (what a kernel is), `tiles` (which it may have), `legality`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...diagnostics import Diagnostic
from ...schedule.choice import Choice
from ...schedule.plan import BACKWARD_PASSES, HEAD_DIM_STEP, NARROW, Build, KernelPlan
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import append, min_max_table
from .facts import WideForward


class WideForwardFamily(Family):
    passes = ("forward", "decode")
    lacked_passes: ClassVar = {
        "patches": "tiles of a 2-D grid: rows of a tile are of all heads of a group",
        **dict.fromkeys(BACKWARD_PASSES, "the backward pass: dK, dV and dQ of such rows are too wide for registers"),
    }
    judged_by = (NARROW + HEAD_DIM_STEP,)
    helpers = (min_max_table.needed, append.needed)

    def lacks(self, build: Build, loop: str) -> str | None:
        if not build.is_wide:
            return "head dims up to 256, whose rows of O one warp holds"
        if build.kv_dtype is not None:
            return f"caches of {build.kv_dtype} beside q of {build.dtype}: its tiles are of q's type"
        if loop != "q_outer":
            return f"`loop = {loop}`: its warps hold O in registers while they go over the keys"
        return None

    def facts(self, plan: KernelPlan) -> WideForward:
        return WideForward(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from .tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        yield from self.tiles(asked.settings, asked.build).choices

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from .legality import misfits

        return misfits(plan, where)


FAMILY = WideForwardFamily()

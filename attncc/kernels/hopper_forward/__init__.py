"""Forward kernels for Hopper: TMA, wgmma, and warps that only load (FlashAttention-3)."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...schedule.choice import Choice
from ...schedule.plan import Build, KernelPlan
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import append, combine, min_max_table, tile_lists, transposition
from ..hopper.lacks import lacks
from .facts import HopperForward
from .splits import is_made, is_run


class HopperForwardFamily(Family):
    passes = ("forward", "patches")
    has_windows = True
    sizes = ("block_q", "block_kv", "stages")  # warps follow from the rows
    helpers = (combine.needed, tile_lists.needed, transposition.needed, min_max_table.needed, append.needed)

    def lacks(self, build: Build, loop: str) -> str | None:
        if found := lacks(build):
            return found
        if loop != "q_outer":
            return f"`loop = {loop}`: its warps hold O in registers while they go over the keys"
        return None

    def has_own_kernel(self, build: Build) -> bool:
        return build.split and is_made(build)

    def runs_own_calls(self, plan: KernelPlan) -> bool:
        return plan.split and is_run(plan)

    def facts(self, plan: KernelPlan) -> HopperForward:
        return HopperForward(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from .tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        from .tiles import begin

        return begin(self, asked)

    def short_lengths(self, asked: Asked) -> tuple[int, int] | None:
        from .tiles import SHORT_LENGTHS, short_tiles

        return None if short_tiles(asked) is None else SHORT_LENGTHS

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from .legality import misfits

        return misfits(plan, where)


FAMILY = HopperForwardFamily()

"""Forward kernels for every GPU: mma.sync, cp.async."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...schedule.choice import Choice
from ...schedule.plan import Build, KernelPlan
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import append, combine, min_max_table, tile_lists
from ..portable.lacks import lacks
from .facts import PortableForward


class PortableForwardFamily(Family):
    passes = ("forward", "patches")
    helpers = (combine.needed, tile_lists.needed, min_max_table.needed, append.needed)

    def lacks(self, build: Build, loop: str) -> str | None:
        if build.kv_dtype is not None and loop != "q_outer":
            return f"`loop = {loop}` for caches of 8 bits: its tiles of keys come in 16 bits"
        return lacks(build)

    def searches(self, loop: str) -> bool:
        return loop == "q_outer"

    def facts(self, plan: KernelPlan) -> PortableForward:
        return PortableForward(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from ..portable.tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        from ..portable.tiles import begin

        return begin(self, asked)

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from ..portable.legality import misfits

        return misfits(plan, where)


FAMILY = PortableForwardFamily()

"""Backward kernels for every GPU. Blocks of the pass `backward` own keys, those of `backward_dq` own queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...diagnostics import Diagnostic
from ...schedule.choice import Choice
from ...schedule.plan import Build, KernelPlan
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import delta, dq_sum, exact_sum, min_max_table, sink_gradient
from ..portable.lacks import lacks
from .facts import PortableBackward


class PortableBackwardFamily(Family):
    passes = ("backward", "backward_dq")
    lacked_passes: ClassVar = {"backward_patches": "the backward_patches pass: its backward kernels go over 1-D tiles"}
    helpers = (delta.needed, dq_sum.needed, sink_gradient.needed, exact_sum.needed, min_max_table.needed)

    def lacks(self, build: Build, loop: str) -> str | None:
        return lacks(build)

    def searches(self, loop: str) -> bool:
        return loop == "q_outer"

    def facts(self, plan: KernelPlan) -> PortableBackward:
        return PortableBackward(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from ..portable.tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        from ..portable.tiles import begin

        return begin(self, asked, backward=True)

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from ..portable.legality import misfits

        return misfits(plan, where)


FAMILY = PortableBackwardFamily()

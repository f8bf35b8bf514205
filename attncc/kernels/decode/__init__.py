"""Kernels for few queries over many keys, for every GPU; several persistent thread blocks share the keys."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...ir import Variant
from ...schedule.choice import Choice
from ...schedule.plan import Build, KernelPlan
from ...schedule.target import TARGETS
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import min_max_table
from ..portable.lacks import lacks
from .facts import Decode


class DecodeFamily(Family):
    passes = ("decode",)
    helpers = (min_max_table.needed,)

    def lacks(self, build: Build, loop: str) -> str | None:
        return lacks(build)

    def searches(self, loop: str) -> bool:
        return loop == "q_outer"

    def begins_early(self, variant: Variant, build: Build) -> bool:
        """Where the target says so. Inputs, and the seed of dropout, are read as what nobody writes while the kernel
        is there: such kernels begin when that is so."""
        return TARGETS[build.target].dependent_launch and not variant.inputs and variant.dropout is None

    def facts(self, plan: KernelPlan) -> Decode:
        return Decode(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from ..portable.tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        from ..portable.tiles import begin

        return begin(self, asked)

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from ..portable.legality import misfits

        return misfits(plan, where)


FAMILY = DecodeFamily()

"""Backward kernels for Hopper: two warpgroups make dK and dV, one adds up dQ, one loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...diagnostics import Diagnostic
from ...schedule.choice import Choice
from ...schedule.plan import Build, KernelPlan
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import delta, dq_sum, exact_sum, min_max_table, sink_gradient
from ..hopper.lacks import lacks
from .facts import HopperBackward


class HopperBackwardFamily(Family):
    passes = ("backward", "backward_patches")
    lacked_passes: ClassVar = {"backward_dq": "the backward_dq pass: it adds up dQ beside dK and dV"}
    sizes = ("block_q", "block_kv", "stages")  # warps follow from the rows
    helpers = (delta.needed, dq_sum.needed, sink_gradient.needed, exact_sum.needed, min_max_table.needed)

    def lacks(self, build: Build, loop: str) -> str | None:
        if found := lacks(build):
            return found
        return "gradients of e4m3: 8 bits are too few for them" if build.dtype == "e4m3" else None

    def facts(self, plan: KernelPlan) -> HopperBackward:
        return HopperBackward(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from .tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        from .tiles import begin

        return begin(self, asked)

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from .legality import misfits

        return misfits(plan, where)


FAMILY = HopperBackwardFamily()

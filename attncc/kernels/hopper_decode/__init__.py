"""Decode kernels for many rows on Hopper: as those of `decode`, whose products are wgmma: a warpgroup has all rows.

Read `facts` (what differs from `decode`) and `tiles`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...schedule.choice import Choice
from ...schedule.plan import LEAST_ROWS, Build, KernelPlan
from ..decode import DecodeFamily
from ..decode.facts import is_timed
from ..family import Asked, Settings, Tiles, Where
from ..hopper.lacks import lacks
from ..hopper.panels import PANEL_COLUMNS
from .facts import HopperDecode


class HopperDecodeFamily(DecodeFamily):
    def lacks(self, build: Build, loop: str) -> str | None:
        if found := lacks(build):
            return found
        if not build.least_rows:
            return "calls of few rows: a warpgroup multiplies 64, of which few queries leave most empty"
        if max(build.padded_head_dims) <= PANEL_COLUMNS and build.least_rows < LEAST_ROWS[-1]:
            return f"calls of fewer than {LEAST_ROWS[-1]} rows at head dims up to {PANEL_COLUMNS}: they took longer"
        if build.head_dim % PANEL_COLUMNS or build.value_head_dim % PANEL_COLUMNS:
            return f"head dims that are no multiples of {PANEL_COLUMNS}: wgmma reads whole panels of shared memory"
        return None

    def has_own_kernel(self, build: Build) -> bool:
        """One: a warpgroup has all rows, however many there are. It is faster from 17 rows on, at head dims up to 64
        from 33 on."""
        narrow = max(build.padded_head_dims) <= PANEL_COLUMNS
        return is_timed(build) and build.least_rows == (LEAST_ROWS[-1] if narrow else LEAST_ROWS[0])

    def facts(self, plan: KernelPlan) -> HopperDecode:
        return HopperDecode(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from .tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        yield from self.tiles(asked.settings, asked.build).choices

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        """None: a schedule that sets tiles is for calls of all numbers of rows, which the family has no kernel for."""
        return iter(())


FAMILY = HopperDecodeFamily()

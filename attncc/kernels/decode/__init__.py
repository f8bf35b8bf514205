"""Kernels for few queries over many keys, for every GPU; several persistent thread blocks share the keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...diagnostics import Diagnostic
from ...ir import Variant
from ...schedule.choice import Choice
from ...schedule.plan import LEAST_ROWS, Build, KernelPlan
from ...schedule.target import TARGETS
from ..family import Asked, Family, Settings, Tiles, Where
from ..helpers import min_max_table
from ..portable.lacks import lacks
from .facts import ONE_BLOCK_KEYS, Decode, is_timed, keys_of_many_rows


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

    def has_own_kernel(self, build: Build) -> bool:
        """Where that was timed, and fewer rows don't have the same kernel."""
        from ..portable.tiles import tiles

        if not is_timed(build):
            return False
        if build.one_block:
            return build.least_rows == 0
        tile = tiles({}, build).choices[0]
        before = [keys_of_many_rows(tile, least) for least in LEAST_ROWS if least < build.least_rows]
        return keys_of_many_rows(tile, build.least_rows) not in (*before, [])

    def facts(self, plan: KernelPlan) -> Decode:
        return Decode(plan)

    def tiles(self, settings: Settings, build: Build) -> Tiles:
        from ..portable.tiles import tiles

        return tiles(settings, build)

    def begin(self, asked: Asked) -> Iterator[Choice]:
        """For many rows the usual tile with more keys at once, for one thread block a multiprocessor one with more
        keys; else, where that spills, the usual kernel."""
        from ..portable.tiles import begin

        found = begin(self, asked)
        if asked.build.one_block:
            yield self.tiles({"block_kv": ONE_BLOCK_KEYS, **asked.settings}, asked.build).choices[0]
        elif asked.build.least_rows:
            first = next(found)
            yield from (replace(first, keys_at_once=keys) for keys in keys_of_many_rows(first, asked.build.least_rows))
            yield first
        yield from found

    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        from ..portable.legality import misfits

        return misfits(plan, where)


FAMILY = DecodeFamily()

"""Which tiles no decode kernel with wgmma has."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...schedule.plan import FRAGMENT, KernelPlan
from ..family import Where
from ..hopper.panels import WARPGROUP_ROWS, WARPGROUP_WARPS
from ..legality import bad_keys


def misfits(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    if plan.block_q != WARPGROUP_ROWS:
        yield Diagnostic(
            "A405",
            f"block_q can't be {plan.block_q} in a decode kernel of the family hopper",
            where("block_q"),
            notes=(f"each warpgroup has the {WARPGROUP_ROWS} rows of one wgmma",),
            help=f"write `block_q = {WARPGROUP_ROWS}`, or leave it out",
        )
    if plan.warps % WARPGROUP_WARPS:
        yield Diagnostic(
            "A405",
            f"{plan.warps} warps are no warpgroups",
            where("warps"),
            help=f"choose a multiple of {WARPGROUP_WARPS}",
        )
    else:
        yield from bad_keys(plan, where, FRAGMENT * plan.warps // WARPGROUP_WARPS)

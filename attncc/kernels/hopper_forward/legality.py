"""Which tiles no forward kernel for Hopper has."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...schedule.plan import FRAGMENT, KernelPlan
from ..family import Where
from ..hopper.panels import STEP_BYTES, WARPGROUP_ROWS
from ..legality import bad_keys

WGMMA_COLUMNS = 256  # of the widest product


def misfits(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    """One to four warpgroups of 64 rows, 16 for each warp."""
    if plan.block_q not in range(WARPGROUP_ROWS, 4 * WARPGROUP_ROWS + 1, WARPGROUP_ROWS):
        yield Diagnostic(
            "A405",
            f"block_q can't be {plan.block_q} in the family hopper",
            where("block_q", "warps"),
            notes=(f"four warps multiply {WARPGROUP_ROWS} rows together, and a block has up to 16 that do",),
            help=f"choose {WARPGROUP_ROWS}, 128, 192 or 256",
        )
    elif plan.block_q != FRAGMENT * plan.warps:
        yield Diagnostic(
            "A405",
            f"{plan.block_q} rows don't divide among {plan.warps} warps in the family hopper",
            where("warps", "block_q"),
            notes=(f"block_q / warps = {plan.block_q} / {plan.warps} = {plan.block_q / plan.warps:g}",),
            help=f"each warp works on {FRAGMENT} rows: `warps = {plan.block_q // FRAGMENT}`, or leave it out",
        )
    if plan.block_kv > WGMMA_COLUMNS:
        yield Diagnostic(
            "A405",
            f"block_kv can't be {plan.block_kv} in the family hopper",
            where("block_kv"),
            notes=(f"one wgmma has at most {WGMMA_COLUMNS} columns",),
            help=f"choose at most {WGMMA_COLUMNS}",
        )
    yield from bad_keys(plan, where, STEP_BYTES if plan.element_bytes == 1 else FRAGMENT)

"""Which tiles no kernel of wide heads has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...diagnostics import Diagnostic
from ...schedule.plan import FRAGMENT, KernelPlan
from ..family import Where
from ..legality import bad_keys
from .shared import key_groups

_KEYS = (16, 32, 64)  # of a tile: powers of two, and no row of P is longer than 128 bytes


def misfits(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    row_warps = plan.block_q // FRAGMENT
    if plan.block_q % FRAGMENT or plan.warps % max(row_warps, 1):
        yield Diagnostic(
            "A405",
            f"{plan.block_q} rows don't divide among {plan.warps} warps",
            where("block_q", "warps"),
            notes=(f"a warp has {FRAGMENT} rows of S, and as many warps must have each of them",),
            help=f"choose block_q = 16, 32 or 64, and a multiple of block_q / {FRAGMENT} warps",
        )
        return
    able = [keys for keys in _KEYS if keys % (FRAGMENT * key_groups(replace(plan, block_kv=keys))) == 0]
    if plan.block_kv not in able:
        yield Diagnostic(
            "A405",
            f"block_kv can't be {plan.block_kv}",
            where("block_kv", "warps"),
            notes=(f"{key_groups(plan)} warps with the same rows share its keys, {FRAGMENT} or more each",),
            help=f"choose {' or '.join(map(str, able))}",
        )
        return
    yield from bad_keys(plan, where, FRAGMENT)

"""Which tiles no portable kernel has."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...schedule.plan import FRAGMENT, KernelPlan
from ..family import Where
from ..legality import bad_keys


def misfits(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    name, what = ("block_kv", "keys") if plan.owns_keys else ("block_q", "rows")
    block = plan.block_kv if plan.owns_keys else plan.block_q
    if block % (FRAGMENT * plan.warps):
        yield Diagnostic(
            "A405",
            f"{block} {what} don't divide among {plan.warps} warps",
            where(name, "warps"),
            notes=(f"{name} / warps = {block} / {plan.warps} = {block / plan.warps:g}",),
            help=f"each warp works on a multiple of {FRAGMENT} {what}: {name} a multiple of "
            f"{FRAGMENT} x warps = {FRAGMENT * plan.warps}",
        )
    elif plan.block_q % FRAGMENT:
        yield Diagnostic(
            "A405",
            f"block_q can't be {plan.block_q}",
            where("block_q"),
            help=f"choose a multiple of {FRAGMENT}",
        )
    yield from bad_keys(plan, where, FRAGMENT)

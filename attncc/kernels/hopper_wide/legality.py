"""Which tiles no kernel of wide heads on Hopper has."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic
from ...schedule.plan import KernelPlan
from ..family import Where
from .shared import MULTIPLYING_WARPS, WARPS

_SIZES = {
    "block_q": (64, "each of two warpgroups has half of the columns of O, of the 64 rows that one wgmma has"),
    "block_kv": (64, "S of a tile is as large as a panel of shared memory, through which P goes"),
    "warps": (WARPS, f"{MULTIPLYING_WARPS} multiply, and one of the other warpgroup loads"),
}


def misfits(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    for name, (size, why) in _SIZES.items():
        if getattr(plan, name) != size:
            yield Diagnostic(
                "A405",
                f"{name} can't be {getattr(plan, name)} in the family hopper_wide",
                where(name),
                notes=(why,),
                help=f"write `{name} = {size}`, or leave it out",
            )

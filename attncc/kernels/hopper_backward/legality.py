"""Which plans no backward kernel for Hopper has."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.score.additive import only_adds
from ...diagnostics import Diagnostic
from ...schedule.plan import FRAGMENT, KernelPlan
from ..family import Where
from ..legality import bad_keys, no_kernel
from .facts import BLOCK_Q, CONSUMER_WARPS, CONSUMERS, OWN_ROWS, HopperBackward


def misfits(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    """Two warpgroups own 64 or 128 keys each, or a gradient each of the same 64."""
    facts = HopperBackward(plan)
    if facts.learned and not only_adds(plan.variant):
        yield no_kernel(
            plan.family,
            "gradients of inputs that more than add to the score: their derivatives ask for the score",
            plan.build,
            plan.loop,
            where,
        )
    own = CONSUMERS * OWN_ROWS
    legal = {
        "block_q": (BLOCK_Q,),
        "block_kv": (OWN_ROWS, own, 2 * own),
        "warps": (CONSUMER_WARPS,),
        "stages": range(2, 9),
    }
    for name, values in legal.items():
        if getattr(plan, name) not in values:
            yield Diagnostic(
                "A405",
                f"{name} can't be {getattr(plan, name)} in the family hopper, backward",
                where(name),
                notes=(f"two warpgroups own {OWN_ROWS} or {2 * OWN_ROWS} keys each; a tile has {BLOCK_Q} rows",),
                help=f"choose {' or '.join(map(str, values))}" if name != "stages" else "choose at least 2",
            )
    if facts.shares_keys and (plan.variant.dropout is not None or facts.learned):
        yield Diagnostic(
            "A405",
            f"block_kv can't be {plan.block_kv} in the family hopper, backward, with dropout or learnable inputs",
            where("block_kv"),
            notes=("the warpgroup that makes dS of them knows neither the pairs nor their probabilities",),
            help=f"choose {own}; head dims above 128 then need `family = portable`",
        )
    yield from bad_keys(plan, where, FRAGMENT)

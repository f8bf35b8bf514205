"""A unified maximum: one number that stands for the maxima of all rows, where scores are proven to lie near it.

Any number gives the same softmax, as long as no probability leaves its type. So it asks for a proof that all scores lie
between two numbers (`analysis/score/score_bounds.py`), and that these are no farther apart than the type allows.
"""

from __future__ import annotations

from ..ir import Variant
from ..schedule.choice import Choice
from ..schedule.plan import Build, KernelPlan
from .registry import find

LOG2_E = 1.4426950408889634

# The exponents of 2 that probabilities may have, by the dtype that P is rounded to. A row may have all its scores at
# the lower bound: its probabilities must be normal numbers there, or they would lose digits. In fp16 these are those
# from 2^-14 to 2^16. bf16: P, its sums and O, all in fp32, hold for |v| from 2^-32 to 2^32 and 2^22 keys. O is then
# below 2^(73 + 32 + 22), and what the least |v| adds keeps 8 bits above 2^-126.
EXPONENTS = {"bf16": (-86.0, 73.0), "fp16": (-14.0, 15.9)}
_ALIGNED = 1.0  # of them: a row may stand up to half of one higher or lower (unified_max_softmax.cuh)


def bounds_used(variant: Variant, build: Build, choice: Choice) -> tuple[float, float] | None:
    """Between which the scores lie, in natural units, where the kernel has a unified maximum; else None."""
    family = find(choice.family, build.pass_name)
    wanted = choice.row_max == "unified" or (
        choice.row_max == "auto" and family is not None and family.gains_by_unified_max(build)
    )
    if not wanted or lacks(variant, build, choice.family) is not None:
        return None
    from ..analysis.score.score_bounds import score_bounds

    return score_bounds(variant)


def lacks(variant: Variant, build: Build, kind: str) -> str | None:
    """Why kernels of this family (a value of the knob) can't have a unified maximum; None if they can."""
    family = find(kind, build.pass_name)
    if family is None or not family.has_unified_max:
        return f"the family {kind} keeps running maxima in the pass {build.pass_name}"
    if build.dtype not in EXPONENTS:
        return f"probabilities in {build.dtype} have too few exponents"
    if variant.normalize != "softmax":
        return f"`normalize {variant.normalize}` has no maximum"
    from ..analysis.score.score_bounds import score_bounds

    bounds = score_bounds(variant)
    if bounds is None:
        return "nothing bounds the scores from above and below"
    return None if fits(bounds, build.dtype) else _too_wide(bounds, build.dtype)


def fits(bounds: tuple[float, float], dtype: str) -> bool:
    """Whether one number may stand for all maxima of scores between these, in natural units."""
    least, most = EXPONENTS[dtype]
    return (bounds[1] - bounds[0]) * LOG2_E <= most - least - _ALIGNED


def _too_wide(bounds: tuple[float, float], dtype: str) -> str:
    least, most = EXPONENTS[dtype]
    return (
        f"scores are between {bounds[0]:.4g} and {bounds[1]:.4g}, and in {dtype} they may be at most "
        f"{(most - least - _ALIGNED) / LOG2_E:.4g} apart"
    )


def unified_exponent(plan: KernelPlan) -> float:
    """What stands for the maximum of every row, as an exponent of 2: it puts P in the middle of what it may be."""
    assert plan.score_bounds is not None
    return sum(plan.score_bounds) / 2 * LOG2_E - sum(EXPONENTS[plan.dtype]) / 2


def told(plan: KernelPlan) -> str:
    """What exponents are relative to in the plan's kernel, and why, for people."""
    if plan.score_bounds is not None:
        low, high = (bound * LOG2_E - unified_exponent(plan) for bound in plan.score_bounds)
        return (
            f"one for all rows: scores are proven to lie between {plan.score_bounds[0]:.4g} and "
            f"{plan.score_bounds[1]:.4g}, so P is between 2^{low:.0f} and 2^{high:.0f}"
        )
    if plan.variant.normalize != "softmax":
        return "none"
    if plan.row_max == "running":
        return "running, as the schedule asks"
    lacked = lacks(plan.variant, plan.build, plan.family)
    return f"running: {lacked or 'one for all rows is not known to be faster at these head dims'}"

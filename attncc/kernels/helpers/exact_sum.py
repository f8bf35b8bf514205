"""`exact_sum_sm_80`: rounds sums of learnable inputs' gradients, which don't depend on the order of their additions."""

from __future__ import annotations

from ..backward_facts import BackwardFacts
from ..parameters import Parameter, pointers
from .helper import HelperKernel, of_rows

EXACT_WORDS = 17  # of 8 bytes, of one exact sum of floats


def needed(facts: BackwardFacts) -> tuple[HelperKernel, ...]:
    return (kernel(facts),) if facts.learns else ()


def kernel(facts: BackwardFacts) -> HelperKernel:
    what = "exact_sum: rounds the sums of gradients of learnable inputs"
    return of_rows("helpers/exact_sum.cu.j2", f"exact_sum_{facts.plan.target}", what, parameters(), facts)


def parameters() -> tuple[Parameter, ...]:
    """`count` exact sums of EXACT_WORDS words become fp32."""
    return (*pointers("const long long", "sums"), *pointers("float", "out"), Parameter("count", "long long"))

"""`sink_gradient_f32_bf16_sm_80`: makes the gradient of a plan's learnable sink."""

from __future__ import annotations

from ..backward_facts import BackwardFacts
from ..parameters import ELEMENT_TYPES, VALUE_TYPES, Parameter, ints, ordered, pointers
from .helper import HelperKernel, of_rows


def needed(facts: BackwardFacts) -> tuple[HelperKernel, ...]:
    return () if facts.learned_sink is None else (kernel(facts),)


def kernel(facts: BackwardFacts) -> HelperKernel:
    assert facts.learned_sink is not None
    plan, dtype = facts.plan, facts.learned_sink.dtype
    return of_rows(
        "helpers/sink_gradient.cu.j2",
        f"sink_gradient_{facts.statistics_format}{dtype}_{plan.dtype}_{plan.target}",
        f"sink_gradient: of an {dtype} sink; {plan.dtype}",
        parameters(dtype),
        facts,
        statistics=facts.statistics,
    )


def parameters(sink_dtype: str) -> tuple[Parameter, ...]:
    """`group`: query heads that share a logit.

    The gradient's strides count its elements, the sink's those of the sink; the sink may be given as a number.
    """
    fields = [Parameter("sink", f"const {ELEMENT_TYPES[sink_dtype]}*"), *pointers("const float", "statistics")]
    fields += [*pointers("void", "gradient"), *pointers("const int", "cu_seqlens_q")]
    names = (f"{of}_stride_{axis}" for of in ("sink", "gradient") for axis in ("batch", "head"))
    sizes = [Parameter(name, "long long") for name in names]
    sizes += ints("batch", "num_heads", "q_len", "row_blocks", "group", "exact")
    return ordered([*fields, *sizes, Parameter("sink_value", VALUE_TYPES[sink_dtype])])

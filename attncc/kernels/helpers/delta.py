"""`delta_bf16_d64_sm_80`: makes delta = rowsum(dO O) and prepares lse, before the others of the backward pass."""

from __future__ import annotations

from ..backward_facts import BackwardFacts
from ..parameters import ELEMENT_TYPES, Parameter, ints, ordered, pointers, strides
from .helper import HelperKernel, of_rows

_COLUMNS_A_LANE = 8


def needed(facts: BackwardFacts) -> tuple[HelperKernel, ...]:
    return (kernel(facts),) if facts.needs_delta else ()


def kernel(facts: BackwardFacts) -> HelperKernel:
    """It knows the value head dim, and how rows are kept."""
    plan = facts.plan
    return of_rows(
        "helpers/delta.cu.j2",
        f"delta_{facts.row_format}{plan.dtype}_d{plan.value_head_dim}_{plan.target}",
        f"delta: what the backward pass needs of each row; {plan.dtype}, head dim {plan.value_head_dim}",
        parameters(plan.dtype),
        facts,
        value_head_dim=plan.stored_value_head_dim,
        lanes=1 << (plan.stored_value_head_dim // _COLUMNS_A_LANE - 1).bit_length(),
        statistics=facts.statistics,
    )


def parameters(dtype: str) -> tuple[Parameter, ...]:
    """`lse` and `dlse` are laid out as the forward pass writes lse; `dlse` may be null. `row_blocks`: blocks of 16 rows
    of a head, in a packed batch one more for each sequence.

    `statistics` has a float2 for each row of each block: lse as an exponent, and delta. What it clears besides, or
    nothing: `sum_words` of the sum of dQ for each block, and `count_words` at `counts`.
    """
    element = ELEMENT_TYPES[dtype]
    fields = [*pointers(f"const {element}", "out", "dout"), *pointers("const float", "lse", "dlse")]
    fields += [*pointers("float", "statistics", "dq_sum"), *pointers("const int", "cu_seqlens_q")]
    sizes = ints("batch", "num_heads", "q_len", "row_blocks", "sum_words", "count_words")
    return ordered([*fields, *pointers("int", "counts"), *strides("out"), *strides("dout"), *sizes])

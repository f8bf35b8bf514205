"""`dq_sum_bf16_d64_sm_80`: rounds the sum of dQ, after the others of the backward pass."""

from __future__ import annotations

from ...schedule.plan import FRAGMENT
from ...schedule.target import TARGETS
from ..backward_facts import BackwardFacts
from ..parameters import ELEMENT_TYPES, Parameter, ints, ordered, pointers, strides
from .helper import HelperKernel, of_rows


def needed(facts: BackwardFacts) -> tuple[HelperKernel, ...]:
    return (kernel(facts),) if facts.adds_dq else ()


def kernel(facts: BackwardFacts) -> HelperKernel:
    """It knows the head dim, and how rows are kept."""
    plan = facts.plan
    return of_rows(
        "helpers/dq_sum.cu.j2",
        f"dq_sum_{facts.row_format}{plan.dtype}_d{plan.head_dim}_{plan.target}",
        f"dq_sum: rounds the sum of dQ; {plan.dtype}, head dim {plan.head_dim}",
        parameters(facts),
        facts,
        head_dim=plan.stored_head_dim,
        column_blocks=-(-plan.head_dim // FRAGMENT),
        vector_atomics=TARGETS[plan.target].vector_atomics,
        finished="finished" if facts.counts_finished else "finished_before",
    )


def parameters(facts: BackwardFacts) -> tuple[Parameter, ...]:
    """The sum is fp32, 256 for each 16 rows and columns.

    `finished` is null, or counts the warps that have added all of their dQ, for each head of k: `dq_consumer_warps` in
    the end. `dq_stored` is null, or tells of each tile whether anything was stored: else its sum is 0.
    """
    fields = [*pointers("const float", "dq_sum"), *pointers(ELEMENT_TYPES[facts.plan.dtype], "dq")]
    fields += pointers("const int", "cu_seqlens_q", "finished", *["dq_stored"] * facts.counts_finished)
    sizes = ints("batch", "num_heads", "q_len", "row_blocks", "group", "dq_consumer_warps")
    return ordered([*fields, *strides("dq"), *sizes, Parameter("factor", "float")])

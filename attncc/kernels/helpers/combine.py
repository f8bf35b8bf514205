"""`combine_bf16_sm_80`: merges the partial results of splits, for plans of all head dims with this dtype of results."""

from __future__ import annotations

from ...schedule.choice import MAX_SPLITS
from ...schedule.plan import NARROW, KernelPlan
from ...schedule.target import TARGETS
from ..facts import Facts
from ..parameters import ELEMENT_TYPES, Parameter, ints, ordered, pointers, strides
from .helper import HelperKernel

THREADS = 128
_FLOAT_BYTES = 4


def needed(facts: Facts) -> tuple[HelperKernel, ...]:
    """Of splits over a shared prefix the kernel behind it merges the results."""
    plan = facts.plan
    return (kernel(plan),) if plan.may_split and not plan.prefixed else ()


def kernel(plan: KernelPlan) -> HelperKernel:
    dtype, most = plan.out_dtype, NARROW
    return HelperKernel(
        name=f"combine_{dtype}_{plan.target}",
        template="helpers/combine.cu.j2",
        what=f"combine: merges the partial results of splits; {dtype}",
        parameters=parameters(dtype),
        threads=THREADS,
        shared_bytes=THREADS // 32 * (most + MAX_SPLITS) * _FLOAT_BYTES,
        values={
            "dtype": dtype,
            "max_head_dim": most,
            "max_splits": MAX_SPLITS,
            "begins_early": TARGETS[plan.target].dependent_launch,
        },
    )


def parameters(dtype: str) -> tuple[Parameter, ...]:
    """A packed batch looks to it like one dense sequence of all rows.

    `row_max` is null where partial results just add up (`normalize sigmoid` or `none`); `lse` may be null.
    """
    fields = pointers("const float", "partial_out", "row_max", "row_sum")
    fields += [Parameter("out", f"{ELEMENT_TYPES[dtype]}*"), Parameter("lse", "float*")]
    return ordered([*fields, *strides("out"), *ints("batch", "num_heads", "q_len", "splits", "value_head_dim")])

"""Names of kernels, of their files and in a package's manifest."""

from __future__ import annotations

from dataclasses import replace

from ..schedule.plan import KernelPlan


def configuration_name(  # noqa: PLR0917
    dtype: str,
    head_dim: int,
    value_head_dim: int,
    paged: bool = False,
    kv_dtype: str | None = None,
    prefixed: bool = False,
    least_rows: int = 0,
    one_block: bool = False,
    split: bool = False,
    unclustered: bool = False,
) -> str:
    """`bf16_d64`, `bf16_d192x128` where values have another head dim, `bf16_d64_paged` for pools of pages,
    `bf16_d64_kv_int8` for caches of another type, `bf16_d64_prefix` for sequences that share a prefix,
    `bf16_d64_rows17` for decode calls with so many rows and more, `bf16_d64_one_block` for dense ones with one thread
    block a multiprocessor, `bf16_d64_split` for forward ones whose keys are split, `bf16_d128_unclustered` for backward
    calls whose thread blocks form no clusters."""
    values = "" if head_dim == value_head_dim else f"x{value_head_dim}"
    cache = "" if kv_dtype is None else f"_kv_{kv_dtype}"
    calls = f"{'_paged' * paged}{'_prefix' * prefixed}{f'_rows{least_rows}' if least_rows else ''}"
    blocks = f"{'_one_block' * one_block}{'_split' * split}{'_unclustered' * unclustered}"
    return f"{dtype}_d{head_dim}{values}{cache}{calls}{blocks}"


def configuration_of(plan: KernelPlan) -> str:
    calls = plan.paged, plan.kv_dtype, plan.prefixed, plan.least_rows, plan.one_block, plan.split, plan.unclustered
    return configuration_name(plan.dtype, plan.head_dim, plan.value_head_dim, *calls)


def kernel_name(plan: KernelPlan) -> str:
    """`causal_forward_bf16_d64_sm_80`: the kernel of a plan; `causal_forward_bf16_d64_k1024to8192_sm_80`, of one for a
    range of lengths."""
    lengths = "" if plan.lengths is None else "_k{}to{}".format(*plan.lengths)
    return f"{plan.variant.name}_{plan.pass_name}_{configuration_of(plan)}{lengths}_{plan.target}"


def separate_dq_name(plan: KernelPlan) -> str:
    """The kernel of the pass `backward_dq` beside a plan of the pass `backward`."""
    return kernel_name(replace(plan, pass_name="backward_dq", unclustered=False, lengths=None))

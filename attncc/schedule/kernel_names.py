"""Names of kernels, of their files and in a package's manifest; of a plan, all kernels that its launches may need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from .parameters import (
    Parameter,
    combine_parameters,
    delta_parameters,
    dq_sum_parameters,
    exact_sum_parameters,
    parameters,
    sink_gradient_parameters,
    surveys,
    transposition_parameters,
    zone_map_parameters,
)
from .plan import KernelPlan
from .transposed_values import may_transpose_ahead


def configuration_name(dtype: str, head_dim: int, value_head_dim: int) -> str:
    """`bf16_d64`, or `bf16_d192x128` where values have another head dim."""
    values = "" if head_dim == value_head_dim else f"x{value_head_dim}"
    return f"{dtype}_d{head_dim}{values}"


def _configuration(plan: KernelPlan) -> str:
    return configuration_name(plan.dtype, plan.head_dim, plan.value_head_dim)


def kernel_name(plan: KernelPlan) -> str:
    """`causal_forward_bf16_d64_sm_80`: the kernel of a plan."""
    return f"{plan.variant.name}_{plan.pass_name}_{_configuration(plan)}_{plan.target}"


def separate_dq_name(plan: KernelPlan) -> str:
    """The kernel of the pass `backward_dq` beside a plan of the pass `backward`."""
    return kernel_name(replace(plan, pass_name="backward_dq"))


def combine_name(out_dtype: str, target: str) -> str:
    """`combine_bf16_sm_80`: the kernel that merges the splits of any plan with this dtype of results."""
    return f"combine_{out_dtype}_{target}"


def zone_map_name(input_dtype: str, target: str) -> str:
    """`zone_map_i32_sm_80`: the pre-pass over inputs of one dtype."""
    return f"zone_map_{input_dtype}_{target}"


def delta_name(plan: KernelPlan) -> str:
    """`delta_bf16_d64_sm_80`: the kernel before those of the backward passes; it knows the value head dim, and how
    rows are kept."""
    return f"delta_{plan.row_format}{plan.dtype}_d{plan.value_head_dim}_{plan.target}"


def dq_sum_name(plan: KernelPlan) -> str:
    """`dq_sum_bf16_d64_sm_80`: the kernel that rounds the sum of dQ; it knows the head dim, and how rows are kept."""
    return f"dq_sum_{plan.row_format}{plan.dtype}_d{plan.head_dim}_{plan.target}"


def _family(plan: KernelPlan) -> str:
    return "hopper_" if plan.family == "hopper" else ""


def tile_lists_name(plan: KernelPlan) -> str:
    """`tile_lists_block_map_bf16_d64_sm_80`: the pre-pass that lists a plan's live tiles."""
    return f"tile_lists_{plan.variant.name}_{_configuration(plan)}_{plan.target}"


def transposition_name(plan: KernelPlan) -> str:
    """`transpose_values_d128_k96_sm_90a`: the kernel that transposes V ahead, for all plans with tiles of so many keys;
    where these are patches of a canvas, it knows that too."""
    canvas = "" if plan.canvas is None else f"_w{plan.canvas.width}x{plan.canvas.kv_columns}"
    return f"transpose_values_d{plan.value_head_dim}_k{plan.block_kv}{canvas}_{plan.target}"


def sink_gradient_name(plan: KernelPlan) -> str:
    """`sink_gradient_f32_bf16_sm_80`: the kernel that makes the gradient of a plan's learnable sink."""
    assert plan.learned_sink is not None
    return f"sink_gradient_{_family(plan)}{plan.learned_sink.dtype}_{plan.dtype}_{plan.target}"


def exact_sum_name(plan: KernelPlan) -> str:
    """`exact_sum_sm_80`: the kernel that rounds sums of learnable inputs' gradients in deterministic calls."""
    return f"exact_sum_{plan.target}"


class Other(NamedTuple):
    """A kind of kernel that launches of a plan may need besides its own: whether they do, its name, its `Params`."""

    needed: Callable[[KernelPlan], bool]
    name: Callable[[KernelPlan], str]
    parameters: Callable[[KernelPlan], tuple[Parameter, ...]]


def _sink_parameters(plan: KernelPlan) -> tuple[Parameter, ...]:
    assert plan.learned_sink is not None
    return sink_gradient_parameters(plan.learned_sink.dtype)


_OTHERS = {
    "combine": Other(
        lambda plan: plan.may_split,
        lambda plan: combine_name(plan.out_dtype, plan.target),
        lambda plan: combine_parameters(plan.out_dtype),
    ),
    "delta": Other(lambda plan: plan.needs_delta, delta_name, lambda plan: delta_parameters(plan.dtype)),
    "dq_sum": Other(lambda plan: plan.adds_dq, dq_sum_name, lambda plan: dq_sum_parameters(plan.dtype)),
    "tile_lists": Other(lambda plan: plan.tile_lists, tile_lists_name, parameters),
    "transposition": Other(may_transpose_ahead, transposition_name, lambda plan: transposition_parameters()),
    "sink_gradient": Other(lambda plan: plan.learned_sink is not None, sink_gradient_name, _sink_parameters),
    "exact_sum": Other(lambda plan: plan.learns, exact_sum_name, lambda plan: exact_sum_parameters()),
}


def other_kinds(plan: KernelPlan) -> tuple[str, ...]:
    """What launches of a plan may need besides its own kernel and those of `surveyed_dtypes`."""
    return tuple(kind for kind, other in _OTHERS.items() if other.needed(plan))


def surveyed_dtypes(plan: KernelPlan) -> tuple[str, ...]:
    """Of the inputs that a pre-pass reads, which has a kernel for each."""
    return tuple(sorted({plan.variant.input(item.input).dtype for item in surveys(plan)}))


def structs(plan: KernelPlan) -> dict[str, tuple[Parameter, ...]]:
    """Every kernel that launches of a plan may need, the plan's own first, and the fields of its `Params`."""
    others = [_OTHERS[kind] for kind in other_kinds(plan)]
    return {
        kernel_name(plan): parameters(plan),
        **{other.name(plan): other.parameters(plan) for other in others},
        **{zone_map_name(dtype, plan.target): zone_map_parameters(dtype) for dtype in surveyed_dtypes(plan)},
    }


def kernel_names(plan: KernelPlan) -> tuple[str, ...]:
    """Every kernel that launches of a plan may need, the plan's own first."""
    others = (_OTHERS[kind].name(plan) for kind in other_kinds(plan))
    return kernel_name(plan), *others, *(zone_map_name(dtype, plan.target) for dtype in surveyed_dtypes(plan))

"""Where a `Kernel` finds its plans and machine code: a built package on disk, or the compiler in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from ..ir import Variant
from ..schedule.parameters import surveys
from ..schedule.plan import KernelPlan
from ..schedule.transposed_values import may_transpose_ahead


class Configuration(NamedTuple):
    """What a kernel is compiled for besides its variant and target."""

    dtype: str  # fp16 | bf16 | fp32 | fp64 (on the CPU alone)
    head_dim: int  # of q and k
    value_head_dim: int

    @property
    def name(self) -> str:
        """`bf16_d64`, or `bf16_d192x128` where values have another head dim: part of file names."""
        values = "" if self.head_dim == self.value_head_dim else f"x{self.value_head_dim}"
        return f"{self.dtype}_d{self.head_dim}{values}"


@dataclass(frozen=True, slots=True)
class MachineCode:
    """One compiled kernel, and what its launch needs to know."""

    image: bytes = field(repr=False)
    nvrtc: str  # the version that compiled it
    entry: str
    threads: int
    shared_bytes: int  # dynamic


class KernelStore(Protocol):
    """Plans and machine code of one variant. Names of kernels are those of `kernel_name` and its neighbours."""

    @property
    def variant(self) -> Variant: ...

    @property
    def configurations(self) -> tuple[Configuration, ...]: ...

    def targets(self, configuration: Configuration) -> tuple[str, ...]:
        """The targets that machine code exists for, or can be made for."""

    def plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        """The plan of the forward pass, and after it that of decode where there is one.

        `target` None: the plans that the CPU executor walks.
        """

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        """The plan of the pass `backward`, and after it those of `backward_dq` where calls need it and of
        `backward_patches` where there is one. AttnccError A520 if a package was built without.

        `target` None: the plans that the CPU executor walks; none, if a package was built without.
        """

    def report(self) -> Mapping[str, Mapping[str, Any]]:
        """What is known of the machine code that exists so far, by name: the entries of a package's manifest."""

    def machine_codes(self, plans: Sequence[KernelPlan]) -> Mapping[str, MachineCode]:
        """Every kernel that launches of the plans, all for one target, may need, by name.

        AttnccError A505 if a built package lacks one, A5xx or A9xx if one can't be compiled.
        """


def kernel_name(plan: KernelPlan) -> str:
    """`causal_forward_bf16_d64_sm_80`: the kernel of a plan."""
    configuration = Configuration(plan.dtype, plan.head_dim, plan.value_head_dim)
    return f"{plan.variant.name}_{plan.pass_name}_{configuration.name}_{plan.target}"


def separate_dq_name(plan: KernelPlan) -> str:
    """The kernel of the pass `backward_dq` beside a plan of the pass `backward`."""
    return kernel_name(replace(plan, pass_name="backward_dq"))


def combine_name(plan: KernelPlan) -> str:
    """`combine_bf16_sm_80`: the kernel that merges the splits of any plan with this dtype of results."""
    return f"combine_{plan.out_dtype}_{plan.target}"


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
    configuration = Configuration(plan.dtype, plan.head_dim, plan.value_head_dim)
    return f"tile_lists_{plan.variant.name}_{configuration.name}_{plan.target}"


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


def kernel_names(plan: KernelPlan) -> tuple[str, ...]:
    """Every kernel that launches of a plan may need, the plan's own first."""
    names = [kernel_name(plan)]
    if plan.may_split:
        names.append(combine_name(plan))
    if plan.needs_delta:
        names.append(delta_name(plan))
    if plan.adds_dq:
        names.append(dq_sum_name(plan))
    if plan.tile_lists:
        names.append(tile_lists_name(plan))
    if may_transpose_ahead(plan):
        names.append(transposition_name(plan))
    if plan.learned_sink is not None:
        names.append(sink_gradient_name(plan))
    if plan.learns:
        names.append(exact_sum_name(plan))
    names += [zone_map_name(plan.variant.input(item.input).dtype, plan.target) for item in surveys(plan)]
    return tuple(dict.fromkeys(names))

"""What the kernels of all passes take of a call: its arrays and numbers, and the pre-passes over its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...kernels.helpers import min_max_table
from ...kernels.parameters import field_name, input_prepasses
from ...kernels.quantized import scale_fields
from ...problem import ArrayFacts, Call, Problem
from ...problem.call_arguments import ARGUMENTS
from ...problem.quantized import SCALES
from ...schedule.plan import KernelPlan
from ..store.loaded_kernels import LoadedKernels
from .input_prepass import PrepassStep, input_fields
from .operands import INPUTS, OPERANDS, SCALE, K, Q, V
from .steps import Step, StepBuilder
from .workspace import Workspace


def set_call(main: StepBuilder, plan: KernelPlan, call: Call, problem: Problem, *, scale_given: bool) -> None:
    """q, k, v, the arguments that were given, the scale and the inputs."""
    for name, operand in (("q", Q), ("k", K), ("v", V)):
        main.operand(name, operand)
    _set_arguments(main, plan, call, problem)
    if scale_given:
        main.operand("scale", SCALE)
    else:  # NaN asks the kernel for the variant's own scale
        main.set({"scale": math.nan if plan.variant.scale is not None else plan.head_dim**-0.5})
    given = dict(call.inputs)
    for number, declared in enumerate(plan.variant.inputs):
        if declared.name not in given:  # it has a default, which the kernel takes where the pointer is null
            continue
        facts, field = given[declared.name], field_name(declared.name)
        by_value = not isinstance(facts, ArrayFacts)
        main.operand(f"{field}_value" if by_value else field, INPUTS + number)
        if isinstance(facts, ArrayFacts) and declared.axes:
            main.set(input_fields(declared.name, declared, facts, problem))


def _set_arguments(main: StepBuilder, plan: KernelPlan, call: Call, problem: Problem) -> None:
    """Those that a kernel has fields for: of arrays pointers, of numbers values."""
    for argument in ARGUMENTS.values():
        facts = getattr(call, argument.name, None)
        if facts is None or not argument.concerns(plan.variant):
            continue
        for ctype, field in argument.fields:
            if ctype.endswith("*") == isinstance(facts, ArrayFacts):
                main.operand(field, OPERANDS[argument.name])
    if plan.kv_dtype is not None:
        for name in SCALES:
            if (scale := getattr(call, name)) is not None:
                main.operand(name, OPERANDS[name])
                main.set(scale_fields(scale, name, problem, call.k.shape[0]))
    if call.q_offset is not None:
        main.set({"q_offset_form": _offset_form(call.q_offset)})


def _offset_form(offset: ArrayFacts | type) -> int:
    """As `query_offset` (scheduler/grid.cuh) tells them apart: a number, an entry for each sequence, one for all."""
    if not isinstance(offset, ArrayFacts):
        return 1
    return 2 if offset.shape else 3


def prepass_steps(  # noqa: PLR0917
    kernels: LoadedKernels,
    plan: KernelPlan,
    call: Call,
    problem: Problem,
    workspace: Workspace,
    main: StepBuilder,
    *,
    verified: bool = True,
) -> Iterator[Step]:
    """The launches before the main kernel that read inputs; it is told where they leave what they find.

    Where hints needn't be `verified`, none is taken to hold, and nothing is launched for them alone. So it is where the
    call says what q_pos is: with a hint, rules presume that the last query is at the last key.
    """
    given, names = dict(call.inputs), [item.name for item in plan.variant.inputs]
    for prepass in input_prepasses(plan):
        declared, facts = plan.variant.input(prepass.input), given[prepass.input]
        assert isinstance(facts, ArrayFacts)
        name = min_max_table.kernel(declared.dtype, plan.target).name
        believed = prepass.sorted_hint and not problem.has_offset and (verified or prepass.min_max_table is not None)
        step = PrepassStep(prepass._replace(sorted_hint=believed), declared, facts, problem, kernels.layout(name))
        if prepass.sorted_hint and not believed:
            step.leave_out(main, kernels.zeros)
        step.place(workspace, main)
        if step.blocks or step.pieces:
            yield step.build(INPUTS + names.index(prepass.input), kernels.function(name), kernels.device)

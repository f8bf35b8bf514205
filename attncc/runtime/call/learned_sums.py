"""The gradients of learnable inputs in a backward call: sums in fp32, or exact ones where their order must not show."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...ir import Input
from ...kernels.helpers import exact_sum, sink_gradient
from ...kernels.helpers.exact_sum import EXACT_WORDS
from ...kernels.parameters import field_name, gradient_name
from ...kernels.registry import backward_facts
from ...problem import ArrayFacts, Call, Problem
from ...problem.inputs import merges
from ...problem.strides import contiguous
from ...schedule.plan import KernelPlan
from ..store.loaded_kernels import LoadedKernels
from .backward_form import BackwardForm
from .operands import CU_SEQLENS_Q, INPUTS
from .prepare import warps_grid
from .steps import Step, StepBuilder, Zero
from .workspace import Workspace

_EXACT_BYTES = 8 * EXACT_WORDS


def shape_of(call: Call, item: Input) -> tuple[int, ...]:
    """The shape of what was given for an input; () for a number."""
    facts = dict(call.inputs)[item.name]
    return facts.shape if isinstance(facts, ArrayFacts) else ()


class LearnedSums:
    """One for each learnable input, in the order of the variant: the operands from `first` on are their fp32 arrays."""

    def __init__(
        self, kernels: LoadedKernels, form: BackwardForm, problem: Problem, first: int, workspace: Workspace
    ) -> None:
        self._kernels, self._form, self._problem = kernels, form, problem
        self._plan: KernelPlan = kernels.plans[0]
        items = [item for item in self._plan.variant.inputs if item.learnable]
        self._operands = {item.name: first + number for number, item in enumerate(items)}
        self._shapes = {item.name: shape_of(form.call, item) for item in items}
        sizes = {name: math.prod(shape) for name, shape in self._shapes.items()}
        self._sizes = {name: size for name, size in sizes.items() if size}
        self._exact = {
            name: workspace.take(size * _EXACT_BYTES) for name, size in self._sizes.items() if form.deterministic
        }

    def zeros(self) -> Iterator[Step]:
        context = self._kernels.device.context
        for name, size in self._sizes.items():
            if name in self._exact:
                yield Zero(context, self._exact[name], size * _EXACT_BYTES // 4)
            else:
                yield Zero(context, self._operands[name], size, of_operand=True)

    def tell(self, main: StepBuilder, plan: KernelPlan) -> None:
        """Where the kernel that owns keys adds the gradients of what score lines read."""
        for item in backward_facts(plan).learned:
            field = field_name(gradient_name(item.name))
            self._point(main, field, item.name)
            main.set({f"{field}_stride{axis}": stride for axis, stride in enumerate(self._strides(item))})
        if backward_facts(plan).learned:
            main.set({"exact": int(self._form.deterministic)})

    def _point(self, step: StepBuilder, field: str, name: str) -> None:
        if name in self._exact:
            step.workspace(field, self._exact[name])
        elif name in self._sizes:
            step.operand(field, self._operands[name])

    def _strides(self, item: Input) -> tuple[int, ...]:
        """Of the sums, one for each declared axis; packed batches merge `batch` with the position axis."""
        strides = list(contiguous(self._shapes[item.name]))
        if self._problem.packed and merges(item):
            strides.insert([axis.tag for axis in item.axes].index("batch"), 0)
        return tuple(strides)

    def of_sink(self, statistics: int, row_blocks: int, all_blocks: int) -> Iterator[Step]:
        """The sink's gradient, once lse and delta are known."""
        item, problem = backward_facts(self._plan).learned_sink, self._problem
        if item is None or item.name not in self._sizes:
            return
        name = sink_gradient.kernel(backward_facts(self._plan)).name
        step, function = StepBuilder(self._kernels.layout(name)), self._kernels.function(name)
        facts = dict(self._form.call.inputs)[item.name]
        number = INPUTS + [declared.name for declared in self._plan.variant.inputs].index(item.name)
        step.operand("sink" if isinstance(facts, ArrayFacts) else "sink_value", number)
        of_sink = facts.strides if isinstance(facts, ArrayFacts) else ()
        for axis, stride, own in zip(item.axes, of_sink, self._strides(item), strict=True):
            tag = "batch" if axis.tag == "batch" else "head"
            step.set({f"sink_stride_{tag}": stride, f"gradient_stride_{tag}": own})
        self._point(step, "gradient", item.name)
        step.workspace("statistics", statistics)
        if problem.packed:
            step.operand("cu_seqlens_q", CU_SEQLENS_Q)
        group = problem.group if any(axis.tag == "kv_head" for axis in item.axes) else 1
        sizes = {"batch": problem.batch, "num_heads": problem.num_heads, "q_len": problem.q_len}
        step.set({**sizes, "row_blocks": row_blocks, "group": group, "exact": int(self._form.deterministic)})
        yield step.build(function, warps_grid(all_blocks, function, self._kernels.device))

    def rounded(self) -> Iterator[Step]:
        """Exact sums become fp32."""
        for name, offset in self._exact.items():
            kernel = exact_sum.kernel(backward_facts(self._plan)).name
            step, function = StepBuilder(self._kernels.layout(kernel)), self._kernels.function(kernel)
            step.workspace("sums", offset)
            step.operand("out", self._operands[name])
            step.set({"count": self._sizes[name]})
            yield step.build(function, warps_grid(-(-self._sizes[name] // 32), function, self._kernels.device))

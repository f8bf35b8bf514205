"""What masks ask of an input before the kernel: min/max tables, and whether it is nondecreasing as declared."""

from __future__ import annotations

import math

from ...analysis.rules import sorted_name
from ...ir import Input
from ...kernels.parameters import HINT_PIECES, InputPrepass, field_name, hint_table
from ...problem import ArrayFacts, Problem
from ...problem.inputs import merged
from ...problem.strides import contiguous
from ..cuda.driver import Device, Function
from .operands import CU_SEQLENS_KV, CU_SEQLENS_Q
from .steps import ParamsLayout, Step, StepBuilder, Value
from .workspace import Workspace

_ELEMENT_BYTES = {"bool": 1, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4}
_AXES = 4  # the kernel sees every input as 4 axes


def input_fields(name: str, declared: Input, facts: ArrayFacts, problem: Problem) -> dict[str, Value]:
    """The strides and sizes of an input (or of a table of it) in `Params`, one for each declared axis.

    Packed batches merge `batch` with the position axis: the array has no batch axis of its own, so its stride is 0.
    """
    axes = list(zip(facts.strides, facts.shape, strict=True))
    if merged(declared, problem):
        batch = [axis.tag for axis in declared.axes].index("batch")
        axes.insert(batch, (0, problem.batch))
    field = field_name(name)
    strides: dict[str, Value] = {f"{field}_stride{axis}": stride for axis, (stride, _) in enumerate(axes)}
    return strides | {f"{field}_size{axis}": size for axis, (_, size) in enumerate(axes)}


class PrepassStep:
    """The pre-pass over one input of a call."""

    def __init__(
        self, prepass: InputPrepass, declared: Input, facts: ArrayFacts, problem: Problem, layout: ParamsLayout
    ) -> None:
        self._prepass, self._declared, self._facts, self._problem = prepass, declared, facts, problem
        lead = math.prod(facts.shape[:-1])
        blocks = -(-facts.shape[-1] // prepass.min_max_table.block) if prepass.min_max_table else 0
        self.blocks = lead * blocks  # for a warp each
        self.pieces = lead * HINT_PIECES if prepass.sorted_hint and facts.shape[-1] else 0  # for a block each
        self._builder = StepBuilder(layout)

    def place(self, workspace: Workspace, main: StepBuilder) -> None:
        """Gives the results their places, and tells the main kernel."""
        min_max_table, declared, lead = self._prepass.min_max_table, self._declared, self._facts.shape[:-1]
        if min_max_table is not None:
            shape = (*lead, -(-self._facts.shape[-1] // min_max_table.block))
            for name, field in ((min_max_table.min_name, "minimum"), (min_max_table.max_name, "maximum")):
                self._place(name, field, declared, shape, workspace, main)
            self._builder.set({"block": min_max_table.block})
        if self._prepass.sorted_hint:
            name, table = sorted_name(declared.name), hint_table(declared)
            self._place(name, "holds", table, (*lead, HINT_PIECES), workspace, main)

    def leave_out(self, main: StepBuilder, zeros: int) -> None:
        """Tells the main kernel that the hint doesn't hold, by the same line of zeros for all lines of the input."""
        name, lead = sorted_name(self._declared.name), self._facts.shape[:-1]
        line = ArrayFacts((*lead, HINT_PIECES), (*(0 for _ in lead), 1), self._facts.dtype)
        main.set({field_name(name): zeros, **input_fields(name, self._declared, line, self._problem)})

    def _place(  # noqa: PLR0917
        self, name: str, field: str, table: Input, shape: tuple[int, ...], workspace: Workspace, main: StepBuilder
    ) -> None:
        offset = workspace.take(math.prod(shape) * _ELEMENT_BYTES[table.dtype])
        self._builder.workspace(field, offset)
        main.workspace(field_name(name), offset)
        facts = ArrayFacts(shape, contiguous(shape), self._facts.dtype)
        main.set(input_fields(name, self._declared, facts, self._problem))

    def build(self, operand: int, function: Function, device: Device) -> Step:
        """The launch; `operand` is the input's."""
        facts, problem = self._facts, self._problem
        lead = _AXES - len(facts.shape)
        sizes, strides = (1,) * lead + facts.shape, (0,) * lead + facts.strides
        self._builder.operand("input", operand)
        self._builder.set({f"size{axis}": size for axis, size in enumerate(sizes)})
        self._builder.set({f"stride{axis}": stride for axis, stride in enumerate(strides)})
        last, checked = self._declared.axes[-1].tag, facts.shape[-1]
        if merged(self._declared, problem):
            self._builder.operand("starts", CU_SEQLENS_Q if last == "q" else CU_SEQLENS_KV)
            self._builder.set({"sequences": problem.batch})
        elif last == "pos":
            checked = min(checked, problem.kv_len)  # what lies beyond the keys isn't in use
        self._builder.set({"checked": checked})
        blocks = max(-(-self.blocks // (function.threads // 32)), self.pieces)
        return self._builder.build(function, min(blocks, device.multiprocessors * function.resident_blocks))

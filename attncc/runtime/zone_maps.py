"""Zone maps: the least and the greatest value of an input over each block of its last axis, made before the kernel."""

from __future__ import annotations

import math

from ..analysis.rules import ZoneMap
from ..ir import Input
from ..problem import ArrayFacts, Problem
from ..problem.inputs import merges
from ..schedule.parameters import field_name
from .driver import Function
from .steps import ParamsLayout, Step, StepBuilder, Value
from .strides import contiguous
from .workspace import Workspace

_ELEMENT_BYTES = {"bool": 1, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4}
_AXES = 4  # the kernel sees every input as 4 axes


def input_fields(name: str, declared: Input, facts: ArrayFacts, problem: Problem) -> dict[str, Value]:
    """The strides and sizes of an input (or of its zone map) in `Params`, one for each declared axis.

    Packed batches merge `batch` with the position axis: the array has no batch axis of its own, so its stride is 0.
    """
    axes = list(zip(facts.strides, facts.shape, strict=True))
    if problem.packed and merges(declared):
        batch = [axis.tag for axis in declared.axes].index("batch")
        axes.insert(batch, (0, problem.batch))
    field = field_name(name)
    strides: dict[str, Value] = {f"{field}_stride{axis}": stride for axis, (stride, _) in enumerate(axes)}
    return strides | {f"{field}_size{axis}": size for axis, (_, size) in enumerate(axes)}


class ZoneMapStep:
    """The pre-pass for one zone map of a call."""

    def __init__(
        self, zone_map: ZoneMap, declared: Input, facts: ArrayFacts, problem: Problem, layout: ParamsLayout
    ) -> None:
        self._zone_map, self._declared, self._facts, self._problem = zone_map, declared, facts, problem
        self._shape = (*facts.shape[:-1], -(-facts.shape[-1] // zone_map.block))
        self.entries = math.prod(self._shape)  # of the minima, and of the maxima
        self._builder = StepBuilder(layout)

    def place(self, workspace: Workspace, main: StepBuilder) -> None:
        """Gives the results their places, and tells the main kernel."""
        results = ArrayFacts(self._shape, contiguous(self._shape), self._facts.dtype)
        for name, field in ((self._zone_map.min_name, "minimum"), (self._zone_map.max_name, "maximum")):
            offset = workspace.take(self.entries * _ELEMENT_BYTES[self._declared.dtype])
            self._builder.workspace(field, offset)
            main.workspace(field_name(name), offset)
            main.set(input_fields(name, self._declared, results, self._problem))

    def build(self, operand: int, function: Function, grid: int) -> Step:
        """The launch; `operand` is the input's."""
        facts = self._facts
        lead = _AXES - len(facts.shape)
        sizes, strides = (1,) * lead + facts.shape, (0,) * lead + facts.strides
        self._builder.operand("input", operand)
        self._builder.set({f"size{axis}": size for axis, size in enumerate(sizes)} | {"block": self._zone_map.block})
        self._builder.set({f"stride{axis}": stride for axis, stride in enumerate(strides)})
        return self._builder.build(function, grid)

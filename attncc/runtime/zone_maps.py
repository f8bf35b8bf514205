"""Zone maps: the least and the greatest value of an input over each block of its last axis, made before the kernel."""

from __future__ import annotations

import math

from ..analysis.rules import ZoneMap
from ..ir import Input
from ..problem import ArrayFacts, Problem
from ..problem.inputs import merges
from ..schedule.parameters import field_name, zone_map_parameters
from .driver import Function
from .steps import Step, StepBuilder, Value
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


def zone_map_step(  # noqa: PLR0917
    zone_map: ZoneMap,
    declared: Input,
    facts: ArrayFacts,
    operand: int,
    problem: Problem,
    function: Function,
    workspace: Workspace,
    main: StepBuilder,
) -> Step | None:
    """The pre-pass for one zone map, None if its input is empty; tells the main kernel where the results are."""
    shape = (*facts.shape[:-1], -(-facts.shape[-1] // zone_map.block))
    results = ArrayFacts(shape, contiguous(shape), facts.dtype)
    elements = math.prod(shape)
    builder = StepBuilder(zone_map_parameters(declared.dtype))
    for name, field in ((zone_map.min_name, "minimum"), (zone_map.max_name, "maximum")):
        offset = workspace.take(elements * _ELEMENT_BYTES[declared.dtype])
        builder.workspace(field, offset)
        main.workspace(field_name(name), offset)
        main.set(input_fields(name, declared, results, problem))
    if not elements:
        return None
    builder.operand("input", operand)
    lead = _AXES - len(facts.shape)
    sizes, strides = (1,) * lead + facts.shape, (0,) * lead + facts.strides
    builder.set({f"size{axis}": size for axis, size in enumerate(sizes)} | {"block": zone_map.block})
    builder.set({f"stride{axis}": stride for axis, stride in enumerate(strides)})
    return builder.build(function, elements)

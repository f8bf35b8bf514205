"""Maps of q, k, v and dout for TMA, which some kernels load by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...kernels.hopper.panels import PANEL_COLUMNS, WARPGROUP_ROWS
from ...kernels.pages import box_rows
from ...kernels.registry import facts_of
from ...problem import ArrayFacts, Call, Problem
from ...schedule.plan import KernelPlan
from ..cuda.driver import Driver, TensorBox, TensorMap
from .operands import K, Q, V
from .strides import Strides

UNIT_BYTES = 2  # what a map counts in: an element, or two of 8 bits
_DATA_TYPES = {"fp16": 6, "bf16": 9, "e4m3": 1}  # CUtensorMapDataType; 1: unsigned numbers of 16 bits
_MOST_KEPT = 256  # maps of one operand, by the address of its array; at one more all are dropped
_UNUSED_STRIDE = 128  # bytes; of an axis of one entry


class OperandMap:
    """The map of one operand in calls of one form: made for each address that comes, and kept."""

    def __init__(self, operand: int, box: TensorBox) -> None:
        self.operand, self.box = operand, box
        self._made: dict[int, TensorMap] = {}
        self._make: Callable[[int], TensorMap] | None = None

    def at(self, driver: Driver, context: int, base: int) -> TensorMap:
        made = self._made.get(base)
        if made is None:
            if self._make is None:
                self._make = driver.tensor_maps(context, self.box)
            made = self._make(base)
            if len(self._made) >= _MOST_KEPT:
                self._made.clear()
            self._made[base] = made
        return made


def operand_maps(
    plan: KernelPlan, q: ArrayFacts, k: ArrayFacts, v: ArrayFacts, problem: Problem
) -> tuple[OperandMap, ...]:
    """Those of q, k and v that the kernel loads by maps, which are such as `mappable` asks for. Nothing is read of an
    operand without rows: as it may have no address, its map is made at that of q."""
    _, q_columns, kv_columns = plan.tile_columns
    keys = box_rows(plan.block_kv, problem), kv_columns
    found = facts_of(plan)

    def box(operand: int, facts: ArrayFacts) -> TensorBox:
        if operand == Q and found.packs_heads:
            return _group_box(plan, facts, problem, found.row_heads(problem))
        return _box(plan, facts, problem, *((WARPGROUP_ROWS, q_columns) if operand == Q else keys))

    return tuple(
        OperandMap(operand if _extents(facts, problem)[2] else Q, box(operand, facts))
        for name, operand, facts in (("q", Q, q), ("k", K, k), ("v", V, v))
        if name in found.mapped
    )


def backward_maps(
    plan: KernelPlan, call: Call, dout: tuple[int, ArrayFacts], problem: Problem
) -> tuple[OperandMap, ...]:
    """Those of q, k, v and dout, which comes with its operand. Keys have rows; where q has none, its maps are made at
    k's address."""
    _, q_columns, kv_columns = plan.tile_columns
    keys, rows = (plan.block_kv, kv_columns), (plan.block_q, q_columns)
    operands = ((Q, call.q, rows), (K, call.k, keys), (V, call.v, keys), (*dout, rows))
    return tuple(
        OperandMap(operand if _extents(facts, problem)[2] else K, _box(plan, facts, problem, *box))
        for operand, facts, box in operands
    )


def mapped(plan: KernelPlan) -> tuple[str, ...]:
    """The operands that a kernel loads by maps."""
    return facts_of(plan).mapped


def mappable(plan: KernelPlan, name: str, facts: ArrayFacts, problem: Problem) -> bool:
    """Whether a map can describe the operand of this name: rows follow each other upwards, and no axis goes downwards.

    Heads or sequences that share memory (stride 0) are one entry to the map, and the kernel asks for entry 0. Heads of
    a group that stand together in a tile must be apart.
    """
    strides = Strides.of(facts, problem)
    rows_ascend = strides.row > 0 or _extents(facts, problem)[2] <= 1
    together = name == "q" and facts_of(plan).packs_heads and facts_of(plan).row_heads(problem) > 1
    heads_ascend = strides.head > 0 if together else strides.head >= 0
    return rows_ascend and heads_ascend and strides.batch >= 0


def _extents(facts: ArrayFacts, problem: Problem) -> tuple[int, int, int]:
    """Sequences, heads and rows of an operand; all rows of a packed batch are one sequence."""
    *batch, first, second, _ = facts.shape
    heads, rows = (first, second) if problem.layout == "bhsd" else (second, first)
    return batch[0] if batch else 1, heads, rows


def _box(plan: KernelPlan, facts: ArrayFacts, problem: Problem, rows: int, columns: int) -> TensorBox:
    """Axes (column, row, head, batch), or of 2-D tiles (column, grid column, grid row, head, batch).

    A load brings 64 columns (of 8 bits 128) of `rows` rows: a panel of a tile; a 2-D tile is `columns` wide.
    """
    strides, (batch, heads, length) = Strides.of(facts, problem), _extents(facts, problem)
    width = 1 if plan.grid_2d is None else plan.grid_2d.width
    grid_2d = () if plan.grid_2d is None else ((width, strides.row, columns),)
    axes = (
        *grid_2d,
        (length // width, strides.row * width, rows // columns),
        (heads, strides.head, 1),
        (batch, strides.batch, 1),
    )
    return _box_of(plan, facts, axes)


def _group_box(plan: KernelPlan, facts: ArrayFacts, problem: Problem, group: int) -> TensorBox:
    """Of q where a tile has the rows of `group` heads: axes (column, head of the group, query, group, batch)."""
    strides, (batch, heads, length) = Strides.of(facts, problem), _extents(facts, problem)
    axes = (
        (group, strides.head, group),
        (length, strides.row, WARPGROUP_ROWS // group),
        (heads // group, strides.head * group, 1),
        (batch, strides.batch, 1),
    )
    return _box_of(plan, facts, axes)


def _box_of(plan: KernelPlan, facts: ArrayFacts, axes: Sequence[tuple[int, int, int]]) -> TensorBox:
    """`axes` behind the columns: entries, the stride in elements, and how many a load brings."""
    element_bytes = plan.element_bytes
    return TensorBox(
        _DATA_TYPES[plan.dtype],
        (facts.shape[-1] * element_bytes // UNIT_BYTES, *(size if stride else 1 for size, stride, _ in axes)),
        tuple(stride * element_bytes or _UNUSED_STRIDE for _, stride, _ in axes),
        (PANEL_COLUMNS, *(box for _, _, box in axes)),
    )

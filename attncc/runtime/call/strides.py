"""Strides of q, k, v and out in a call's layout, and whether 16-byte copies can use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...problem import ArrayFacts, Problem
from ...problem.strides import axis_order, contiguous
from ..frameworks.framework import Array, DeviceFramework

ALIGNMENT = 16  # bytes: of bases and of strides


@dataclass(frozen=True, slots=True)
class Strides:
    """Strides of one operand in elements, by what they step over; 0 over an axis of length 1."""

    batch: int
    head: int
    row: int

    @classmethod
    def of(cls, facts: ArrayFacts, problem: Problem) -> Strides:
        steps = [0 if size <= 1 else stride for size, stride in zip(facts.shape, facts.strides, strict=True)]
        head, row = (steps[-3], steps[-2]) if problem.layout == "bhsd" else (steps[-2], steps[-3])
        return cls(steps[0] if len(steps) == 4 else 0, head, row)

    def fields(self, name: str) -> dict[str, int]:
        """The fields of `Params` for the operand of this name."""
        return {f"{name}_stride_batch": self.batch, f"{name}_stride_head": self.head, f"{name}_stride_row": self.row}

    def aligned(self, element_bytes: int) -> bool:
        return all(stride * element_bytes % ALIGNMENT == 0 for stride in (self.batch, self.head, self.row))


def filled(facts: ArrayFacts, columns: int) -> ArrayFacts:
    """Of a contiguous copy whose rows are filled up to so many columns."""
    shape = (*facts.shape[:-1], columns)
    return facts._replace(shape=shape, strides=contiguous(shape))


def result_like(  # noqa: PLR0917
    framework: DeviceFramework, operand: ArrayFacts, shape: tuple[int, ...], dtype: str, columns: int, ordinal: int
) -> Callable[[], Array]:
    """What makes arrays for a result whose axes lie in memory as the operand's. Kernels write so many columns: of more
    than the shape has, callers get a view of the first."""
    order = axis_order(operand.shape, operand.strides)
    whole = framework.allocator((*shape[:-1], columns), dtype, ordinal, order)
    return whole if columns == shape[-1] else lambda: whole()[..., : shape[-1]]

"""Strides of q, k, v and out in a call's layout, and whether 16-byte copies can use them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..problem import ArrayFacts, Problem

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
        return cls(0 if problem.packed else steps[0], head, row)

    def fields(self, name: str) -> dict[str, int]:
        """The fields of `Params` for the operand of this name."""
        return {f"{name}_stride_batch": self.batch, f"{name}_stride_head": self.head, f"{name}_stride_row": self.row}

    def aligned(self, element_bytes: int) -> bool:
        return all(stride * element_bytes % ALIGNMENT == 0 for stride in (self.batch, self.head, self.row))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

"""What tells one form of backward call from another, and the numbers of its operands."""

from __future__ import annotations

from dataclasses import dataclass

from ...problem import Call
from ...problem.gradients import Results
from .operands import INPUTS, LSE, OUT


class BackwardPlaces:
    """The numbers of the operands that only backward calls have; those of forward calls stand before them."""

    def __init__(self, inputs: int) -> None:
        self.dout, self.dlse, self.dq, self.dk, self.dv, self.sums = range(INPUTS + inputs, INPUTS + inputs + 6)
        self.results = {"out": OUT, "lse": LSE, "dout": self.dout, "dlse": self.dlse, "dq": self.dq}  # in order


@dataclass(frozen=True, slots=True)
class BackwardForm:
    """What decides the launches of a backward call besides what is checked."""

    call: Call
    results: Results
    misaligned: tuple[str, ...]  # arrays that don't start at a multiple of 16 bytes
    scale_given: bool
    deterministic: bool

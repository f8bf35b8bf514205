"""What is timed: a function of q, k, v, and how it is launched for each pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import torch

from ..runtime.cuda.timing import Launch
from .case import Arrays, Case, Tensor, Tensors
from .oracle import Result

Layout = Literal["bhsd", "bshd"]


class Unable(Exception):
    """Why a candidate can't be timed on a case, for the user."""


@dataclass(frozen=True)
class Candidate:
    """`how`: which form, and which back end. `call` takes q, k and v in `layout`, and gives out in it."""

    name: str
    how: str
    call: Callable[[Tensor, Tensor, Tensor], Tensor]
    layout: Layout = "bhsd"
    last_resort: bool = False  # tried only where none of its peer's others can be timed

    def laid(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """[batch, heads, length, head dim] tensors as the candidate takes them."""
        return tensors if self.layout == "bhsd" else tuple(item.transpose(1, 2).contiguous() for item in tensors)

    def back(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors if self.layout == "bhsd" else tuple(item.transpose(1, 2) for item in tensors)


def launch_of(candidate: Candidate, case: Case, arrays: Arrays) -> Launch:
    """One call after the other on the copies of the operands, in turn."""
    (dout,) = candidate.laid((arrays.dout,))
    turns = cycle([_launch(candidate, case, qkv, dout) for qkv in arrays.copies])
    return lambda: next(turns)()  # noqa: PLW0108  (the next one at each launch)


def result_of(candidate: Candidate, case: Case, arrays: Arrays) -> Result:
    """What the candidate computes of the first copy."""
    (dout,) = candidate.laid((arrays.dout,))
    found = candidate.back(_launch(candidate, case, arrays.copies[0], dout)())
    if case.pass_name == "forward":
        return Result(found[0])
    dq, dk, dv = found[-3:]
    return Result(found[0] if case.pass_name == "both" else None, (dq, dk, dv))


def _launch(candidate: Candidate, case: Case, qkv: Tensors, dout: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """A call that gives out, the gradients, or both. The backward pass goes through autograd, as users' does."""
    recorded = case.pass_name != "forward"
    q, k, v = (item.detach().requires_grad_(recorded) for item in candidate.laid(qkv))
    if not recorded:
        return lambda: (candidate.call(q, k, v),)
    if case.pass_name == "both":

        def both() -> tuple[Tensor, ...]:
            out = candidate.call(q, k, v)
            return out.detach(), *torch.autograd.grad(out, (q, k, v), dout)

        return both
    out = candidate.call(q, k, v)
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def why(error: BaseException) -> str:
    """The first line of what a library raised."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first:.150}"

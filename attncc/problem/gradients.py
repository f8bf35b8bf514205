"""What the backward pass takes beside the arguments of a call, checked, and what it gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..diagnostics import AttnccError
from .bind import check_last_axis
from .call_arguments import APPENDED, FORWARD_ALONE, Call
from .facts import ArrayFacts, Signature
from .problem import Problem
from .quantized import kv_dtype
from .refusal import check_device, refused, shape_text

Array = Any  # an array of the caller's framework

_OF_FORWARD_CALLS = {
    "return_lse": "leave it out: `lse` itself is an argument",
    "shared_prefix": "leave it out: gradients are those of the call without it",
}


@dataclass(frozen=True)
class Gradients:
    """dq, dk and dv, shaped as q, k and v, and the gradient of each learnable input by its name, shaped as the input
    (0-d for a scalar)."""

    dq: Array
    dk: Array
    dv: Array
    inputs: Mapping[str, Array]


class Results(NamedTuple):
    """The facts of what a forward call gave and of the gradients that flow back into it; and of where dq is to be."""

    dout: ArrayFacts
    out: ArrayFacts | None = None
    lse: ArrayFacts | None = None
    dlse: ArrayFacts | None = None
    dq: ArrayFacts | None = None


def check_backward_names(inputs: Collection[str]) -> None:
    """AttnccError A608 where the inputs of a backward call are named as arguments that only forward calls have."""
    for name in (*FORWARD_ALONE, *(item.name for item in APPENDED)):
        if name in inputs:
            raise refused(
                "A608",
                f"`{name}` is not an argument of `backward`",
                expected="the arguments of the forward call that have a place in the backward pass",
                came=name,
                help=_OF_FORWARD_CALLS.get(name, "there are no gradients of such calls: call the kernel under no_grad"),
            )


def check_deterministic(value: object) -> None:
    """AttnccError A614 for what is no bool."""
    if not isinstance(value, bool | np.bool_):
        raise refused("A614", "`deterministic` can't be used", expected="True or False", came=f"{value!r:.60}")


def bind_results(signature: Signature, call: Call, problem: Problem, results: Results) -> None:
    """Checks the results of a call that `bind` found good, whose problem it gave.

    AttnccError A601, A602, A604, A605, A606 for an array that doesn't suit; A623 for `lse` or `dlse` without softmax,
    and for softmax without `out` or `lse`. A signature without a dtype, the reference's, needs neither `out` nor `lse`.
    """
    if problem.page is not None or (problem.packed and problem.cached):
        what = "packed queries over a cache" if problem.page is None else "a cache in pages"
        raise refused(
            "A625",
            f"there are no gradients of {what}",
            expected="k and v without pages, and queries that aren't packed",
            came="a backward call with " + ("block_table" if problem.page is not None else "cu_seqlens_q and kv_lens"),
            help="call the kernel under no_grad, or pass k and v with kv_lens alone",
        )
    if kv_dtype(call.q, call.k) is not None:
        raise refused(
            "A629",
            "there are no gradients of a cache of 8 bits",
            expected="k and v in q's type",
            came=call.k.dtype,
            help="call the kernel under no_grad, or pass k and v in q's type",
        )
    softmax = signature.variant.normalize == "softmax"
    for name, facts in (("lse", results.lse), ("dlse", results.dlse)):
        if facts is not None and not softmax:
            raise _without_softmax(name, signature)
    for name, facts in (("out", results.out), ("lse", results.lse)):
        if facts is None and softmax and signature.dtype is not None:
            raise refused(
                "A623",
                f"`{name}` is missing",
                expected=f"the {name} that the forward call gave, called with return_lse=True",
                came="None",
                help="the backward pass computes the probabilities again from q, k and lse",
            )
    row = "float64" if signature.dtype == "fp64" else "float32"
    wanted = {
        "dout": (problem.out_shape, call.q.dtype), "out": (problem.out_shape, call.q.dtype),
        "lse": (problem.lse_shape, row), "dlse": (problem.lse_shape, row), "dq": (call.q.shape, call.q.dtype),
    }  # fmt: skip
    for name, facts in results._asdict().items():
        if facts is not None:
            _check(call, name, facts, *wanted[name], any_float=signature.dtype is None)


def _check(call: Call, name: str, facts: ArrayFacts, shape: tuple[int, ...], dtype: str, *, any_float: bool) -> None:
    if facts.shape != shape:
        raise refused("A602", f"`{name}` has the wrong shape", expected=shape_text(shape), came=shape_text(facts.shape))
    if any_float:
        return
    if facts.dtype != dtype:
        raise refused("A604", f"`{name}` has the wrong element type", expected=dtype, came=facts.dtype)
    check_device(call.q, f"`{name}`", facts)
    check_last_axis(name, facts)


def _without_softmax(name: str, signature: Signature) -> AttnccError:
    return refused(
        "A623",
        f"`{name}` has no meaning for this variant",
        expected="None",
        came=f"an array, with `normalize {signature.variant.normalize}`, which has no row sum",
        help="only softmax has a log-sum-exp",
    )

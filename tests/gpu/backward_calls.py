"""Makes the arrays of a backward case on the GPU, calls its kernels, and tells the oracle what the call was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from attncc.problem.gradients import Gradients
from tests.gpu.backward_cases import BackwardCase
from tests.gpu.calls import SEED, heads_first, inputs_of, others_of, qkv
from tests.gpu.torch_oracle import Arguments


@dataclass(frozen=True)
class BackwardCall:
    """A call by the backward kernels that it is given, and what the oracle needs; dout in layout bhsd, dlse None for
    zeros."""

    run: Callable[[Any], Gradients]
    arguments: Arguments
    dout: torch.Tensor
    dlse: torch.Tensor | None


def backward_call(case: BackwardCase, kernel: Any) -> BackwardCall:
    """`kernel` makes the forward call; lse has a gradient in groups of three, and where inputs are learnable: else
    nothing is left of the gradient of what all pairs of a row share."""
    problem, arrays, variant = case.forward.problem, qkv(case.forward), kernel.variant
    inputs, softmax = inputs_of(variant, problem), variant.normalize == "softmax"
    keywords = {**inputs, **others_of(variant, problem)}
    result = kernel(*arrays, return_lse=softmax, **keywords)
    out, lse = result if softmax else (result, None)
    generator = torch.Generator("cuda").manual_seed(2)
    dout = torch.randn(out.shape, generator=generator, device="cuda").to(out.dtype)
    differentiable = softmax and (problem.group == 3 or any(item.learnable for item in variant.inputs))
    dlse = torch.randn(lse.shape, generator=generator, device="cuda") if differentiable else None

    def run(backward_kernel: Any) -> Gradients:
        found: Gradients = backward_kernel.backward(
            dout, *arrays, out, lse, dlse=dlse, deterministic=case.deterministic, **keywords
        )
        return found

    q, k, v, rows_first = (heads_first(problem, item) for item in (*arrays, dout))
    return BackwardCall(run, Arguments(variant, problem, q, k, v, inputs, seed=SEED), rows_first, dlse)

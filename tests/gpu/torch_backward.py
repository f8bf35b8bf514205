"""Gradients of dense attention in torch: by autograd in fp64, and as an unfused implementation rounds them.

The first is independent of the derivatives that attncc derives; the second takes them from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from attncc.analysis.gradient import gradient
from attncc.problem.problem import Sequence
from tests.gpu import torch_oracle
from tests.gpu.torch_oracle import Arguments, Scope, Tensor


@dataclass(frozen=True)
class TorchGradients:
    """dq, dk and dv as q, k and v in layout bhsd; `inputs` of learnable inputs by name."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    inputs: Mapping[str, Tensor]


@dataclass(frozen=True)
class Baseline:
    """dq, dk and dv of an unfused implementation, and by the same names what their terms sum up to without signs: sums
    in fp32 can't be closer than its epsilon times that, however much cancels."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    terms: Mapping[str, Tensor]


def oracle(call: Arguments, dout: Tensor, dlse: Tensor | None) -> TorchGradients:
    """In fp64, by autograd over the dense forward pass."""
    learnable = [item.name for item in call.variant.inputs if item.learnable]
    q, k, v = (item.detach().double().requires_grad_() for item in (call.q, call.k, call.v))
    leaves = {name: call.inputs[name].detach().double().requires_grad_() for name in learnable}
    out, lse = torch_oracle.oracle(replace(call, q=q, k=k, v=v, inputs={**call.inputs, **leaves}))
    total = (out * dout.double()).sum()
    if dlse is not None:
        total = total + torch.where(lse.isinf(), 0, lse).mul(dlse.double()).sum()
    tensors = (q, k, v, *leaves.values())
    if not total.requires_grad:  # there are no rows
        return TorchGradients(*(torch.zeros_like(item) for item in tensors[:3]), dict.fromkeys(leaves, torch.zeros(())))
    found = torch.autograd.grad(total, tensors, allow_unused=True)
    dq, dk, dv, *rest = (torch.zeros_like(x) if y is None else y for x, y in zip(tensors, found, strict=True))
    return TorchGradients(dq, dk, dv, dict(zip(leaves, rest, strict=True)))


def baseline(call: Arguments, dout: Tensor, dlse: Tensor | None, dtype: torch.dtype) -> Baseline:
    """What the rule measures kernels by: S, P, O, dP and dS rounded to the dtype, sums in fp32."""
    sums, terms = (
        tuple(torch.zeros_like(item, dtype=torch.float32) for item in (call.q, call.k, call.v)) for _ in range(2)
    )
    for sequence in call.problem.sequences():
        for h in range(call.problem.num_heads):
            if sequence.q_len and sequence.kv_len:
                _add_head(call, sequence, h, dout, dlse, dtype, sums, terms)
    return Baseline(*(item.to(dtype).double() for item in sums), dict(zip(("dq", "dk", "dv"), terms, strict=True)))


def _add_head(  # noqa: PLR0917
    call: Arguments,
    sequence: Sequence,
    h: int,
    dout: Tensor,
    dlse: Tensor | None,
    dtype: torch.dtype,
    sums: tuple[Tensor, ...],
    terms: tuple[Tensor, ...],
) -> None:
    def rounded(x: Tensor) -> Tensor:
        return x.to(dtype).float()

    scope = torch_oracle._scope(call, sequence, h, torch.float32)
    q, k, v = (item.float() for item in torch_oracle._rows(call, sequence, h))
    lead = () if call.problem.packed else (sequence.b,)
    q_rows = slice(sequence.q_start, sequence.q_start + sequence.q_len)
    kv_rows = slice(sequence.kv_start, sequence.kv_start + sequence.kv_len)
    kv_h, scale = h // call.problem.group, scope.symbols["scale"]
    own_dout = dout[(*lead, h, q_rows)].float()
    raw = rounded(q @ k.T * scale)
    score, kept = torch_oracle._scored(call.variant, scope, raw)
    prob, _ = torch_oracle._normalised(call.variant, scope, score, kept)
    factor = torch_oracle._dropout(call, scope, sequence, h)
    weights, dprob = rounded(prob * factor), rounded(own_dout @ v.T) * factor
    row = -(own_dout * rounded(weights @ v)).sum(1, keepdim=True)  # -delta, and what lse brings
    if dlse is not None:
        row = row + dlse[(*lead, h, q_rows)][:, None].float()
    dscore = _of_score(call, prob, dprob, row, kept)
    slope = Scope({**scope.symbols, "score": raw}, scope.inputs, {}, scope.floats).value(gradient(call.variant).score)
    draw = rounded(torch.where(dscore == 0, 0, dscore * slope))
    size = _of_score(call, prob, dprob.abs(), row.abs(), kept)
    size = torch.where(size == 0, 0, size * slope).abs()
    places = (*lead, h, q_rows), (*lead, kv_h, kv_rows), (*lead, kv_h, kv_rows)
    of_head = draw @ k * scale, draw.T @ q * scale, weights.T @ own_dout
    without_signs = size @ k.abs() * scale, size.T @ q.abs() * scale, weights.abs().T @ own_dout.abs()
    for place, own, whole, own_terms, all_terms in zip(places, of_head, sums, without_signs, terms, strict=True):
        whole[place] += own
        all_terms[place] += own_terms


def _of_score(call: Arguments, prob: Tensor, dprob: Tensor, row: Tensor, kept: Tensor) -> Tensor:
    match call.variant.normalize:
        case "sigmoid":
            return prob * (1 - prob) * dprob
        case "none":
            return torch.where(kept, dprob, 0)
    return prob * (dprob + row)


def untouched(call: Arguments) -> tuple[Tensor, Tensor]:
    """Rows of q that keep nothing [..., heads, q_len], and keys that no row keeps [..., kv heads, kv_len]."""
    rows = torch.ones(call.q.shape[:-1], dtype=torch.bool, device=call.q.device)
    keys = torch.ones(call.k.shape[:-1], dtype=torch.bool, device=call.k.device)
    for sequence in call.problem.sequences():
        lead = () if call.problem.packed else (sequence.b,)
        q_rows = slice(sequence.q_start, sequence.q_start + sequence.q_len)
        kv_rows = slice(sequence.kv_start, sequence.kv_start + sequence.kv_len)
        for h in range(call.problem.num_heads):
            scope = torch_oracle._scope(call, sequence, h, torch.float32)
            score = torch.zeros(sequence.q_len, sequence.kv_len, device=call.q.device)
            _, kept = torch_oracle._scored(call.variant, scope, score)
            rows[(*lead, h, q_rows)] = ~kept.any(1)
            keys[(*lead, h // call.problem.group, kv_rows)] &= ~kept.any(0)
    return rows, keys

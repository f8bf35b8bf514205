"""Dense attention in fp64 with torch: what candidates must agree with before they are timed.

It computes the last sequence and the query heads of its last key head, some query rows at a time, by `case.text` in
fp64. `tests/unit/bench` compares it with `attncc.reference`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import philox
from ..problem import Sequence
from ..problem.arrays import environment
from ..statements import AXIS_INDEX, dropout_rate
from .case import Arrays, Case, Tensor

# Relative errors ||found - exact|| / ||exact|| that rounding explains: forwards, and of gradients.
LIMITS = {"bf16": (1e-2, 2e-2), "fp16": (2e-3, 4e-3), "fp32": (1e-3, 2e-3)}


@dataclass(frozen=True)
class Result:
    """out, and the gradients where the pass makes them; of all heads and sequences, or of those of the oracle."""

    out: Tensor | None
    gradients: tuple[Tensor, Tensor, Tensor] | None = None


def exact(case: Case, arrays: Arrays) -> Result:
    """In fp64: out and dq [group, q_len, head dim], dk and dv [kv_len, head dim]."""
    (q, k, v), backward = arrays.copies[0], case.pass_name != "forward"
    q, dout = q[-1, case.group].double(), arrays.dout[-1, case.group].double()
    k, v = (item[-1, -1].double().requires_grad_(backward) for item in (k, v))
    outs, dqs, dk, dv = [], [], torch.zeros_like(k), torch.zeros_like(v)
    for rows in case.row_pieces(case.problem.group):
        own = q[:, rows].detach().requires_grad_(backward)
        out = _rows(case, rows, own, k, v)
        outs.append(out.detach())
        if backward:
            found = torch.autograd.grad(out, (own, k, v), dout[:, rows])
            dqs.append(found[0])
            dk, dv = dk + found[1], dv + found[2]
    return Result(torch.cat(outs, 1), (torch.cat(dqs, 1), dk.detach(), dv.detach()) if backward else None)


def relative_error(case: Case, found: Result, wanted: Result) -> float:
    """The worst of what the pass makes. NaN where something is NaN."""
    pairs = []
    if found.out is not None and wanted.out is not None:
        pairs.append((found.out[-1, case.group], wanted.out))
    if found.gradients is not None and wanted.gradients is not None:
        dq, dk, dv = found.gradients
        pairs += zip((dq[-1, case.group], dk[-1, -1], dv[-1, -1]), wanted.gradients, strict=True)
    errors = [float((one.double() - other).norm() / other.norm().clamp_min(1e-300)) for one, other in pairs]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def limit(case: Case) -> float:
    forward, backward = LIMITS[case.dtype]
    return forward if case.pass_name == "forward" else backward


def _rows(case: Case, rows: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """out [group, rows, value head dim]."""
    mask_mod, score_mod = case.mods(torch.float64)
    b = torch.tensor(case.problem.batch - 1, device=case.device)
    h = torch.arange(case.group.start, case.group.stop, device=case.device)[:, None, None]
    keys = torch.arange(case.problem.kv_len, device=case.device)
    place = b, h, rows[:, None], keys
    score = q @ k.T * case.scale
    if score_mod is not None:
        score = score_mod(score, *place)
    kept = torch.ones((), dtype=torch.bool, device=case.device) if mask_mod is None else mask_mod(*place)
    return (_probabilities(case, score, kept.expand(score.shape)) * _dropout(case, rows)) @ v


def _probabilities(case: Case, score: Tensor, kept: Tensor) -> Tensor:
    if case.variant.normalize == "sigmoid":
        return torch.where(kept, score.sigmoid(), 0)
    if case.variant.normalize == "none":
        return torch.where(kept, score, 0)
    empty = ~kept.any(-1, keepdim=True)  # such a row has no gradient: autograd must not come by its lse
    score = torch.where(empty, 0, torch.where(kept, score, -math.inf))
    lse = torch.logsumexp(score, -1, keepdim=True)
    if case.variant.sink is not None:
        lse = torch.logaddexp(lse, _sink(case))
    return torch.where(empty, 0, (score - lse).exp())


def _sink(case: Case) -> Tensor:
    """Logits [group, 1, 1]."""
    assert case.variant.sink is not None
    heads = np.arange(case.group.start, case.group.stop)
    at: dict[str, Any] = {"b": case.problem.batch - 1, "h": heads, "kv_h": case.problem.num_kv_heads - 1}
    axes = case.variant.input(case.variant.sink).axes
    logits = case.inputs[case.variant.sink][tuple(at[AXIS_INDEX[axis.tag or "head"]] for axis in axes)]
    return case.tensor(np.broadcast_to(logits, len(heads)).astype(np.float64))[:, None, None]


def _dropout(case: Case, rows: Tensor) -> Tensor | float:
    """What probabilities are multiplied by: 0, or the reciprocal of the rate at which they are kept."""
    if case.variant.dropout is None:
        return 1.0
    problem = case.problem
    sequence = Sequence.whole(0, problem.q_len, problem.kv_len)
    rate = dropout_rate(case.variant, environment(case.variant, problem, sequence, case.inputs, np.float64))
    threshold = philox.threshold(rate)
    heads = (problem.batch - 1) * problem.num_heads + np.arange(case.group.start, case.group.stop)
    kept = philox.keep_mask(case.seed, threshold, heads, rows.cpu().numpy(), np.arange(problem.kv_len))
    return torch.from_numpy(kept).to(case.device).double() * (philox.LEVELS / threshold)

"""The gradients of dense attention, one (batch, key head) at a time: the fp64 oracle of the backward pass, and the
baseline of its accuracy rule.

With D the dropout factors (0, or the reciprocal of the keep rate), Z = P ∘ D and dP = (dO V^T) ∘ D:

    dV = Z^T dO
    softmax   dS = P ∘ (dP - rowsum(P ∘ dP) + dlse)      sigmoid   dS = P ∘ (1 - P) ∘ dP      none   dS = dP
    dQ = scale (dS ∘ f') K      dK = scale (dS ∘ f')^T Q

f' is the derivative of the score lines (`analysis.score.gradient`). A sink's logit has weight exp(sink - lse) in the
normaliser and no value, so its gradient is the sum of exp(sink - lse) (dlse - rowsum(P ∘ dP)) over its head's rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.score.gradient import gradient
from ..analysis.score.learnable import LearnableSums
from ..evaluate import evaluate
from ..ir import Variant
from ..problem import Sequence, Signature
from ..problem.gradient_arrays import BoundBackward, bind_backward_arrays
from ..problem.gradients import Gradients
from ..statements import sink_logits
from .dense import Part, Precision

Array = NDArray[Any]


def backward(
    variant: Variant, dout: Array, q: Array, k: Array, v: Array, *, dlse: Array | None = None, **call: Any
) -> Gradients:
    """dq, dk, dv and the gradients of learnable inputs in fp64, for dout [as out] and dlse [as lse; None: zeros].

    `call` holds the inputs and the keyword arguments of `forward`. Rows of k and v that nothing attends to, rows of q
    that attend to nothing and rows that no sequence owns have gradients of exactly 0. AttnccError A6xx.
    """
    bound = bind_backward_arrays(Signature(variant), dout, q, k, v, dlse=dlse, **call)
    return _Backward(bound, Precision(np.float64, lambda x: x)).run()


def baseline_backward(
    variant: Variant, dout: Array, q: Array, k: Array, v: Array, *, dlse: Array | None = None, **call: Any
) -> Gradients:
    """What an unfused implementation gives in q's type: S, P, O, dP and dS rounded to it, the rest in fp32. dq, dk and
    dv have q's type; the gradients of inputs are fp32."""
    bound = bind_backward_arrays(Signature(variant), dout, q, k, v, dlse=dlse, **call)
    compute = np.float64 if q.dtype == np.float64 else np.float32
    found = _Backward(bound, Precision(compute, lambda x: x.astype(q.dtype).astype(compute))).run()
    dq, dk, dv = (part.astype(q.dtype) for part in (found.dq, found.dk, found.dv))
    return Gradients(dq, dk, dv, found.inputs)


class _Backward:
    """One call; adds up over its sequences, key heads and pieces of rows."""

    def __init__(self, bound: BoundBackward, precision: Precision) -> None:
        self._bound = bound
        self._call = bound.call
        self._precision = precision
        self._dq, self._dk, self._dv = (
            np.zeros(array.shape, precision.compute) for array in (bound.call.q, bound.call.k, bound.call.v)
        )
        self._learnable = LearnableSums(bound.call, precision.compute)

    def run(self) -> Gradients:
        problem = self._call.problem
        for sequence in problem.sequences():
            environment = self._call.environment(sequence, self._precision.compute)
            for kv_h in range(problem.num_kv_heads):
                heads = slice(kv_h * problem.group, (kv_h + 1) * problem.group)
                part = Part(self._call, sequence, environment, heads, self._precision)
                for rows in part.pieces():
                    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                        self._add(part, rows)
        dk, dv = self._call.gradient("k", self._dk), self._call.gradient("v", self._dv)
        return Gradients(self._dq, dk, dv, self._learnable.sums)

    def _add(self, part: Part, rows: slice) -> None:
        """What some query rows of a group contribute."""
        s, rounded = part.sequence, self._precision.rounded
        kv_h = part.heads.start // self._call.problem.group
        dq = self._call.rows(self._dq, s.b, s.q_start, s.q_len)[part.heads, rows]
        dk, dv = (self._call.rows(array, s.b, s.kv_start, s.kv_len)[kv_h] for array in (self._dk, self._dv))
        dout = self._call.rows(self._bound.dout, s.b, s.q_start, s.q_len)[part.heads, rows]
        dout = dout.astype(self._precision.compute)
        raw = part.raw_scores(rows)
        score = part.masked(rows, raw)
        prob, lse = part.probabilities(score)
        weights, v = rounded(part.dropped(prob, rows)), part.operand("v")
        dv += (weights.swapaxes(-1, -2) @ dout).sum(axis=0)
        dprob = part.dropped(rounded(dout @ v.T), rows)
        delta = (dout * rounded(weights @ v)).sum(axis=-1, keepdims=True)
        dscore = self._by_score(part, rows, score, (prob, lse), (dprob, delta))
        environment = part.environment(rows).with_symbols(score=raw)
        self._learnable.add_pairs(s, environment, dscore)
        slope = evaluate(gradient(self._call.variant).score, environment)
        by_raw = rounded(np.where(dscore == 0, 0, dscore * slope) * environment.symbols["scale"])
        dq += by_raw @ part.operand("k")
        dk += (by_raw.swapaxes(-1, -2) @ part.operand("q")[:, rows]).sum(axis=0)

    def _by_score(
        self, part: Part, rows: slice, score: Array, weights: tuple[Array, Array], slopes: tuple[Array, Array]
    ) -> Array:
        """The gradient of the final scores [group, rows, kv_len], from that of the probabilities and from delta =
        rowsum(dO O) (FlashAttention, Appendix B.2); adds that of a sink."""
        (prob, lse), (dprob, delta) = weights, slopes
        match self._call.variant.normalize:
            case "sigmoid":
                return np.asarray(prob * (1 - prob) * dprob)
            case "none":
                return np.where(np.isneginf(score), 0, dprob)
        dlse = self._dlse(part.sequence)[part.heads, rows, None]
        row = dlse - delta
        environment = part.environment(rows)
        sink = sink_logits(self._call.variant, environment)
        if sink is not None:
            weight = np.where(np.isneginf(sink), 0, np.exp(sink - lse[..., None]))
            self._learnable.add_sink(part.sequence, environment, (weight * row).sum(axis=1, keepdims=True))
        return np.asarray(prob * (dprob + row))

    def _dlse(self, sequence: Sequence) -> Array:
        return self._bound.of_lse(self._bound.dlse, sequence).astype(self._precision.compute)

"""Dense attention of any variant, one (batch, key head) at a time: the fp64 oracle, and the baseline of the accuracy
rule, which is the same computation in the precision of an unfused implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..evaluate import Environment
from ..ir import Variant
from ..philox import LEVELS, keep_mask, threshold
from ..problem import BoundCall, Sequence, Signature, bind_arrays
from ..problem.arrays import at_positions
from ..problem.call_arguments import RECORDED
from ..problem.facts import PROB_UNITS, out_dtype
from ..statements import dropout_rate, queries_before, scored, sink_logits

Array = NDArray[Any]

# Query rows are taken in pieces of about so many pairs. Rows don't depend on each other, so this changes no result.
_PAIRS = 2**21
_TAKEN = (*(item.name for item in RECORDED), "shared_prefix")  # arguments of a call


@dataclass(frozen=True)
class Precision:
    """Where dense attention rounds: everything is computed in `compute`; S and P pass through functions that round."""

    compute: DTypeLike
    rounded: Callable[[Array], Array]  # S, and P where nothing else is said
    rounded_prob: Callable[[Array], Array] | None = None

    @property
    def prob(self) -> Callable[[Array], Array]:
        """How P is rounded."""
        return self.rounded_prob or self.rounded

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> Precision:
        """What an unfused implementation has whose operands are of this type. S in 8 bits would mean nothing."""
        compute = np.float64 if dtype == np.float64 else np.float32
        unit = PROB_UNITS.get(dtype.name)
        if unit is None:
            return cls(compute, lambda x: x.astype(dtype).astype(compute))
        return cls(compute, lambda x: x, lambda x: np.asarray((x * unit).astype(dtype).astype(np.float32) / unit))


def forward(variant: Variant, q: Array, k: Array, v: Array, **call: Any) -> tuple[Array, Array | None]:
    """Attention in fp64: out, shaped as the kernels' out, and lse (natural logarithm; None unless softmax).

    q, k and v may have any float type and strides. `call` holds the inputs and what kernels take by keyword, `out` and
    return_lse apart. Packed batches: rows of no sequence are 0 (lse: -inf). AttnccError A6xx for arguments that don't
    suit the variant.
    """
    bound = bind_arrays(Signature(variant), q, k, v, _TAKEN, **call)
    return _attention(bound, Precision(np.float64, lambda x: x))


def baseline(variant: Variant, q: Array, k: Array, v: Array, **call: Any) -> tuple[Array, Array | None]:
    """What an unfused implementation gives in q's type: S rounded to it, score lines and softmax in fp32, P rounded,
    P.V summed in fp32. Arguments as for `forward`; out has q's type, lse is fp32. Of e4m3, S is fp32 and out bf16."""
    bound = bind_arrays(Signature(variant), q, k, v, **call)
    out, lse = _attention(bound, Precision.of(q.dtype))
    return _rounded_out(out, q), lse


def in_kernel_precision(variant: Variant, q: Array, k: Array, v: Array, **call: Any) -> Array:
    """out with the roundings that kernels have: S as computed in fp32 (of fp64: in fp64), P and out rounded. It is inf
    or NaN where a kernel's arithmetic of the score lines is. Arguments as for `forward`."""
    bound = bind_arrays(Signature(variant), q, k, v, **call)
    of_type = Precision.of(q.dtype)
    out, _ = _attention(bound, replace(of_type, rounded=lambda x: x, rounded_prob=of_type.prob))
    return _rounded_out(out, q)


def _rounded_out(out: Array, q: Array) -> Array:
    with np.errstate(over="ignore"):
        return out.astype(out_dtype(q.dtype.name))


def _attention(bound: BoundCall, precision: Precision) -> tuple[Array, Array | None]:
    problem = bound.problem
    out = np.zeros(problem.out_shape, precision.compute)
    lse = np.full(problem.lse_shape, -np.inf, precision.compute)
    for sequence in problem.sequences():
        out_rows = bound.rows(out, sequence.b, sequence.q_start, sequence.q_len)
        lse_rows = bound.lse_rows(lse, sequence)
        environment = bound.environment(sequence, precision.compute)
        heads = [slice(kv_h * problem.group, (kv_h + 1) * problem.group) for kv_h in range(problem.num_kv_heads)]
        parts = [Part(bound, sequence, environment, some, precision) for some in heads]
        for rows in parts[0].pieces():  # the same for all heads, which may share what the mask keeps
            for part in parts:
                out_rows[part.heads, rows], lse_rows[part.heads, rows] = part.attend(rows)
    return out, lse if bound.variant.normalize == "softmax" else None


@dataclass(frozen=True)
class Part:
    """One sequence and the query heads of one key head."""

    bound: BoundCall
    sequence: Sequence
    every_head: Environment
    heads: slice
    precision: Precision

    def pieces(self) -> Iterator[slice]:
        step = max(_PAIRS // max(self.bound.problem.group * self.sequence.kv_len, 1), 1)
        yield from (slice(i, min(i + step, self.sequence.q_len)) for i in range(0, self.sequence.q_len, step))

    def attend(self, rows: slice) -> tuple[Array, Array]:
        """out [group, rows, value head dim] and lse [group, rows] of some query rows."""
        score = self.masked(rows, self.raw_scores(rows))
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            prob, lse = self.probabilities(score)
            prob = self.precision.prob(self.dropped(prob, rows))
            return prob @ self.operand("v"), lse

    def operand(self, name: str) -> Array:
        """q [group, q_len, head_dim], or the one head of k or v [kv_len, head dim]."""
        rows = self.bound.operand(name, self.sequence, self.precision.compute)
        return rows[self.heads] if name == "q" else rows[self.heads.start // self.bound.problem.group]

    def environment(self, rows: slice) -> Environment:
        """What expressions read at the pairs of some query rows."""
        symbols = {name: self.every_head.symbols[name][self.heads] for name in ("h", "kv_h")}
        own = self.every_head.with_symbols(**symbols)
        return at_positions(own, np.arange(rows.start, rows.stop), np.arange(self.sequence.kv_len))

    def raw_scores(self, rows: slice) -> Array:
        """scale * q.k [group, rows, kv_len]."""
        with np.errstate(invalid="ignore", over="ignore"):
            dots = self.operand("q")[:, rows] @ self.operand("k").T
            return self.precision.rounded(dots * self.every_head.symbols["scale"])

    def masked(self, rows: slice, score: Array) -> Array:
        """What the score lines make of raw scores [group, rows, kv_len]; -inf where not kept."""
        environment = self.environment(rows)
        score = np.broadcast_to(scored(self.bound.variant, environment, score), score.shape)
        kept = self.bound.kept(self.bound.variant).of(environment)
        return score if kept is None else np.where(kept, score, -np.inf)

    def probabilities(self, score: Array) -> tuple[Array, Array]:
        """P and lse. A score of -inf weighs 0 under every normalizer."""
        match self.bound.variant.normalize:
            case "sigmoid":
                return 1 / (1 + np.exp(-score)), np.full(score.shape[:-1], -np.inf)
            case "none":
                return np.where(np.isneginf(score), 0, score), np.full(score.shape[:-1], -np.inf)
        return _softmax(score, sink_logits(self.bound.variant, self.environment(slice(0, 0))))

    def dropped(self, prob: Array, rows: slice) -> Array:
        """Values [group, rows, kv_len] with dropout: 0, or scaled by the reciprocal of the actual keep rate."""
        rate = dropout_rate(self.bound.variant, self.every_head)
        if rate == 0:
            return prob
        t = threshold(rate)
        batch_head = self.sequence.b * self.bound.problem.num_heads + np.arange(self.heads.start, self.heads.stop)
        first = queries_before(self.bound.variant, self.every_head)
        q_idx, kv_idx = np.arange(rows.start, rows.stop) + first, np.arange(self.sequence.kv_len)
        kept = keep_mask(self.bound.seed, t, batch_head, q_idx, kv_idx)
        return np.where(kept, prob * (LEVELS / t), 0).astype(prob.dtype, copy=False)


def _softmax(score: Array, sink: Array | None) -> tuple[Array, Array]:
    """P and lse over the last axis. A row of -inf alone gives P = 0 and lse = -inf, or the sink's logit."""
    row_max = score.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        row_max = np.maximum(row_max, sink)
    row_max = np.where(np.isneginf(row_max), 0, row_max)
    weight = np.exp(score - row_max)
    row_sum = weight.sum(axis=-1, keepdims=True)
    if sink is not None:
        row_sum = row_sum + np.exp(sink - row_max)
    lse = row_max + np.log(row_sum)
    return weight / np.where(row_sum == 0, 1, row_sum), lse[..., 0]

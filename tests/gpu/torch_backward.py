"""Gradients of dense attention in torch: by autograd in fp64, and as an unfused implementation rounds them.

The first is independent of the derivatives that attncc derives; the second takes them from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from attncc.analysis.score.gradient import InputGradient, gradient
from attncc.ir import Expr, Load, Type
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
    """dq, dk and dv of an unfused implementation and the gradients of inputs, which it sums in fp32; and of all, by the
    same names, what their terms sum up to without signs: sums in fp32 can't be closer than its epsilon times that,
    however much cancels.

    An entry of an input may be a sum over all rows, whose errors happen to cancel in one implementation and not in
    another. They are independent of each other, so `spread` has the root of the sum of their squares for each entry.
    """

    dq: Tensor
    dk: Tensor
    dv: Tensor
    inputs: Mapping[str, Tensor]
    terms: Mapping[str, Tensor]
    spread: Mapping[str, Tensor]


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
    given = {"dq": call.q, "dk": call.k, "dv": call.v}
    sums, terms = ({name: torch.zeros_like(x, dtype=torch.float32) for name, x in given.items()} for _ in range(2))
    learned = LearnedSums.zeros(call)
    for sequence in call.problem.sequences():
        for h in range(call.problem.num_heads):
            if sequence.q_len:
                head = Head.of(call, sequence, h, dout, dlse, dtype)
                _add_head(call, head, dtype, sums, terms)
                if learned.sums:
                    learned.add(call, head.rounded(dtype), Head.of(call, sequence, h, dout, dlse, None))
    gradients = (item.to(dtype).double() for item in sums.values())
    spread = {name: item.sqrt() for name, item in learned.squares.items()}
    return Baseline(*gradients, learned.sums, terms | learned.terms, spread)


@dataclass(frozen=True)
class Head:
    """One head of a sequence [q_len, kv_len]: in fp64, or as a dtype rounds it, in fp32. `row` is what each row adds
    to dP, -delta and what lse brings; `dscore` the gradient of the final scores, `size` what it is without signs."""

    sequence: Sequence
    scope: Scope
    dout: Tensor
    raw: Tensor
    lse: Tensor
    weights: Tensor
    row: Tensor
    dscore: Tensor
    size: Tensor

    @classmethod
    def of(  # noqa: PLR0917
        cls, call: Arguments, sequence: Sequence, h: int, dout: Tensor, dlse: Tensor | None, dtype: torch.dtype | None
    ) -> Head:
        floats = torch.float64 if dtype is None else torch.float32

        def rounded(x: Tensor) -> Tensor:
            return torch_oracle._rounded(x, dtype)

        scope = torch_oracle._scope(call, sequence, h, floats)
        q, k, v = (item.to(floats) for item in torch_oracle._rows(call, sequence, h))
        own_dout = dout[_q_rows(call, sequence, h)].to(floats)
        raw = rounded(q @ k.T * scope.symbols["scale"])
        score, kept = torch_oracle._scored(call.variant, scope, raw)
        prob, lse = torch_oracle._normalised(call.variant, scope, score, kept)
        factor = torch_oracle._dropout(call, scope, sequence, h)
        weights, dprob = rounded(prob * factor), rounded(own_dout @ v.T) * factor
        row = -(own_dout * rounded(weights @ v)).sum(1, keepdim=True)
        if dlse is not None:
            row = row + dlse[_q_rows(call, sequence, h)][:, None].to(floats)
        dscore = _of_score(call, prob, dprob, row, kept)
        size = _of_score(call, prob, dprob.abs(), row.abs(), kept)
        if call.variant.normalize == "softmax":  # P has the relative error that its exponent has as an absolute one
            size = size * (1 + torch.where(kept, score.abs(), 0))
        return cls(sequence, scope, own_dout, raw, lse, weights, row, dscore, size)

    def rounded(self, dtype: torch.dtype) -> Head:
        """As biases see it in such an implementation: their gradients are sums of the dS that it stores."""
        return replace(self, dscore=torch_oracle._rounded(self.dscore, dtype))

    def times(self, gradient: Tensor, slope: Expr) -> Tensor:
        """0 where the gradient is, whatever the slope is there."""
        value = self.at_scores().value(slope)
        return torch.where(gradient == 0, 0, gradient * value)

    def at_scores(self) -> Scope:
        """Of closed expressions over raw scores."""
        return Scope({**self.scope.symbols, "score": self.raw}, self.scope.inputs, {}, self.scope.floats)


def _q_rows(call: Arguments, sequence: Sequence, h: int) -> tuple[int | slice, ...]:
    rows = slice(sequence.q_start, sequence.q_start + sequence.q_len)
    return (h, rows) if call.problem.packed else (sequence.b, h, rows)


def _add_head(
    call: Arguments, head: Head, dtype: torch.dtype, sums: Mapping[str, Tensor], terms: Mapping[str, Tensor]
) -> None:
    sequence, symbols = head.sequence, head.scope.symbols
    h, scale = symbols["h"], symbols["scale"]
    q, k, _ = (item.float() for item in torch_oracle._rows(call, sequence, h))
    lead = () if call.problem.packed else (sequence.b,)
    at_keys = (*lead, h // call.problem.group, slice(sequence.kv_start, sequence.kv_start + sequence.kv_len))
    slope, weights, dout = gradient(call.variant).score, head.weights, head.dout
    draw, size = torch_oracle._rounded(head.times(head.dscore, slope), dtype), head.times(head.size, slope).abs()
    at_rows = _q_rows(call, sequence, h)
    for name, place, own, without_signs in (
        ("dq", at_rows, draw @ k * scale, size @ k.abs() * scale),
        ("dk", at_keys, draw.T @ q * scale, size.T @ q.abs() * scale),
        ("dv", at_keys, weights.T @ dout, weights.abs().T @ dout.abs()),
    ):
        sums[name][place] += own
        terms[name][place] += without_signs


@dataclass(frozen=True)
class LearnedSums:
    """Of each learnable input, in fp64: the baseline's gradient, its terms without signs, and the squares of the errors
    of what the rows of a head, or its pairs, add to an entry."""

    sums: Mapping[str, Tensor]
    terms: Mapping[str, Tensor]
    squares: Mapping[str, Tensor]

    @classmethod
    def zeros(cls, call: Arguments) -> LearnedSums:
        given = {item.name: call.inputs[item.name] for item in call.variant.inputs if item.learnable}
        return cls(*({name: torch.zeros_like(x, dtype=torch.float64) for name, x in given.items()} for _ in range(3)))

    def add(self, call: Arguments, own: Head, exact: Head) -> None:
        found = gradient(call.variant)
        for read in found.inputs:
            pieces, precise = (item.times(item.dscore, read.value) for item in (own, exact))
            self._add(call, read, exact, pieces, precise, own.times(own.size, read.value))
        if found.sink is not None:
            logit = exact.at_scores().value(Load(Type.FLOAT, found.sink.input, found.sink.indices))
            pieces, precise = (_of_sink(item, logit) for item in (own, exact))
            self._add(call, found.sink, exact, pieces, precise, pieces)

    def _add(  # noqa: PLR0917
        self, call: Arguments, read: InputGradient, head: Head, own: Tensor, exact: Tensor, size: Tensor
    ) -> None:
        """What pairs [q_len, kv_len or 1] add to the entries that they read."""
        if not own.numel() or not self.sums[read.input].numel():
            return
        leaf = torch.zeros_like(self.sums[read.input], requires_grad=True)
        own_leaf = torch_oracle._of_sequence(replace(call, inputs={read.input: leaf}), read.input, head.sequence)
        scope = replace(head.at_scores(), inputs={**head.scope.inputs, read.input: own_leaf})
        entry = scope.value(Load(Type.FLOAT, read.input, read.indices))
        # A row's pairs that read one entry are one piece: their errors aren't independent, of delta for one.
        keys = own.shape[1] if entry.dim() == 2 and entry.shape[1] > 1 else 1
        entry = entry.expand(own.shape[0], keys)

        def added(pieces: Tensor) -> Tensor:
            (found,) = torch.autograd.grad(entry, leaf, pieces, retain_graph=True)
            return found

        pieces, precise, sizes = (item.double().sum_to_size(entry.shape) for item in (own, exact, size.abs()))
        self.sums[read.input].add_(added(pieces))
        self.terms[read.input].add_(added(sizes))
        self.squares[read.input].add_(added((pieces - precise).square()))


def _of_sink(head: Head, logit: Tensor) -> Tensor:
    """Of a sink's logit, by row."""
    weight = torch.where(logit.isneginf(), 0, torch.exp(logit - head.lse[:, None]))
    return weight * head.row


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

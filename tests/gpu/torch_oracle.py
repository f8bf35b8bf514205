"""Dense attention straight from the IR, in torch: a second implementation of what `attncc.reference` computes.

It is independent of the NumPy evaluator, runs in fp64 on the GPU, and so is quick enough at 4096 x 4096.
`tests/gpu/test_torch_oracle.py` compares the two on small problems, without a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attncc import philox
from attncc.ir import Apply, Const, Expr, Keep, Let, Load, Local, Score, Symbol, Type, Variant
from attncc.operators import FLOAT_FUNCTIONS
from attncc.problem.problem import Problem, Sequence

Tensor = torch.Tensor


# -------------------------------------------------------------------- expressions


def _guarded(operation: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Integer division whose result is 0 where the divisor is."""

    def total(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(b == 0, 0, operation(a, torch.where(b == 0, 1, b)))

    return total


def _shift(a: Tensor, count: Tensor, left: bool) -> Tensor:
    legal = (count >= 0) & (count < 64)
    safe = count.clamp(0, 63)
    shifted = torch.bitwise_left_shift(a, safe) if left else torch.bitwise_right_shift(a, safe)
    return torch.where(legal, shifted, torch.zeros_like(a) if left else torch.where(a < 0, -1, 0))


def _floor(x: Tensor) -> Tensor:
    floored = x.double().floor().nan_to_num(0.0)
    inside = floored.clamp(-(2.0**63), 2.0**63 - 1025).long()
    return torch.where(floored >= 2.0**63, torch.iinfo(torch.int64).max, inside)


def _min_max(a: Tensor, b: Tensor, ints: Callable[..., Tensor], floats: Callable[..., Tensor]) -> Tensor:
    return floats(a, b) if a.is_floating_point() else ints(a, b)


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "neg": torch.neg, "abs": torch.abs,
    "min": lambda a, b: _min_max(a, b, torch.minimum, torch.fmin),
    "max": lambda a, b: _min_max(a, b, torch.maximum, torch.fmax),
    "floordiv": _guarded(lambda a, b: torch.div(a, b, rounding_mode="floor")), "mod": _guarded(torch.remainder),
    "bitand": torch.bitwise_and, "bitor": torch.bitwise_or, "bitxor": torch.bitwise_xor, "bitnot": torch.bitwise_not,
    "shl": lambda a, b: _shift(a, b, True), "shr": lambda a, b: _shift(a, b, False),
    "floor": _floor,
    "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne,
    "and": lambda *args: torch.stack(torch.broadcast_tensors(*args)).all(0),
    "or": lambda *args: torch.stack(torch.broadcast_tensors(*args)).any(0),
    "not": torch.logical_not, "select": torch.where,
    **{name: getattr(torch, name, None) or getattr(torch.nn.functional, name, None) for name in FLOAT_FUNCTIONS},
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "round": lambda x: _floor(x.double().round()), "sign": torch.sign,
}  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """What an expression may read; float arithmetic is done in `floats`."""

    symbols: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    lets: Mapping[str, Let]
    floats: torch.dtype

    def value(self, expr: Expr) -> Tensor:
        return self._value(expr, {})

    def _value(self, expr: Expr, known: dict[Expr, Tensor]) -> Tensor:
        """Shared subtrees are computed once."""
        if expr not in known:
            known[expr] = self._compute(expr, known)
        return known[expr]

    def _compute(self, expr: Expr, known: dict[Expr, Tensor]) -> Tensor:
        match expr:
            case Const() | Symbol():
                raw = expr.value if isinstance(expr, Const) else self.symbols[expr.name]
                return torch.as_tensor(raw, dtype=self._dtype(expr.type), device=self.symbols["q_idx"].device)
            case Local():
                return self._value(self.lets[expr.name].value, known)
            case Load():
                return self._load(expr, [self._value(index, known) for index in expr.indices])
            case Apply(op="to_float"):
                return self._value(expr.args[0], known).to(self.floats)
            case Apply():
                return OPERATIONS[expr.op](*(self._value(arg, known) for arg in expr.args))
        raise TypeError(repr(expr))

    def _dtype(self, kind: Type) -> torch.dtype:
        return {Type.INT: torch.int64, Type.BOOL: torch.bool}.get(kind, self.floats)

    def _load(self, expr: Load, at: list[Tensor]) -> Tensor:
        array = self.inputs[expr.input].to(self._dtype(expr.type))
        indices = torch.broadcast_tensors(*at) if at else ()
        inside = torch.ones((), dtype=torch.bool, device=array.device)
        for index, size in zip(indices, array.shape, strict=True):
            inside = inside & (index >= 0) & (index < size)
        if array.numel() == 0:
            return torch.zeros(inside.shape, dtype=array.dtype, device=array.device)
        safe = tuple(index.clamp(0, size - 1) for index, size in zip(indices, array.shape, strict=True))
        return torch.where(inside, array[safe], torch.zeros((), dtype=array.dtype, device=array.device))


# -------------------------------------------------------------------- attention


@dataclass(frozen=True)
class Arguments:
    """One call: q, k, v in layout bhsd (packed: [heads, rows, head dim]), torch tensors; inputs by name."""

    variant: Variant
    problem: Problem
    q: Tensor
    k: Tensor
    v: Tensor
    inputs: Mapping[str, Tensor]
    scale: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Rounding:
    """The types that S, P and out pass through, None for fp32; P is multiplied by the unit for that."""

    score: torch.dtype | None
    prob: torch.dtype
    out: torch.dtype
    unit: float = 1

    @classmethod
    def of(cls, dtype: torch.dtype) -> Rounding:
        if dtype == torch.float8_e4m3fn:
            return cls(None, dtype, torch.bfloat16, 2**8)
        return cls(dtype, dtype, dtype)


def oracle(call: Arguments) -> tuple[Tensor, Tensor]:
    """fp64 out and lse, shaped as q with the value head dim, and as q without its last axis."""
    return _attention(call, rounding=None)


def baseline(call: Arguments, dtype: torch.dtype) -> Tensor:
    """What the accuracy rule measures kernels by: S and P rounded to the dtype, the rest in fp32, out in the dtype."""
    return _attention(call, Rounding.of(dtype))[0]


def lse_bound(call: Arguments, precision: float) -> Tensor:
    """How far lse may be off where each scale q k is, by up to `precision` of the largest in its row; shaped as `lse`.

    Say a score is off by at most d, and f are the score lines. Then f(s) is off by at most D, the larger of
    |f(s + d) - f(s)| and |f(s - d) - f(s)|: so near s, f rises or falls throughout, or is convex or concave. With p the
    probabilities,

        lse' - lse = log(sum of p exp(f(s') - f(s))) <= log(sum of p exp(D)),

    and since -log(sum of p exp(-D)) <= sum of p D <= log(sum of p exp(D)), it isn't lower by more either. Without
    score lines D = d, and so is the bound; where f is steep as in s * s, it is that much more.
    """
    bound = call.q.new_zeros(call.q.shape[:-1], dtype=torch.float64)
    for where, sequence, h in _heads(call):
        if sequence.kv_len:
            bound[where] = _lse_bound_of_head(call, sequence, h, precision)
    return bound


def _lse_bound_of_head(call: Arguments, sequence: Sequence, h: int, precision: float) -> Tensor:
    scope = _scope(call, sequence, h, torch.float64)
    q, k, _ = (item.double() for item in _rows(call, sequence, h))
    score = q @ k.T * scope.symbols["scale"]
    off = precision * score.abs().amax(-1, keepdim=True)  # over all keys, kept or not
    exact, kept = _scored(call.variant, scope, score)
    changes = [(_scored(call.variant, scope, score + d)[0] - exact).abs() for d in (off, -off)]
    _, lse = _normalised(call.variant, scope, exact, kept)
    _, upper = _normalised(call.variant, scope, exact + torch.maximum(*changes), kept)
    return torch.where(torch.isneginf(lse), 0, upper - lse)


def _attention(call: Arguments, rounding: Rounding | None) -> tuple[Tensor, Tensor]:
    out = call.q.new_zeros((*call.q.shape[:-1], call.v.shape[-1]), dtype=torch.float64)
    lse = call.q.new_full(call.q.shape[:-1], -math.inf, dtype=torch.float64)
    for where, sequence, h in _heads(call):
        out[where], lse[where] = _one_head(call, sequence, h, rounding)
    return out, lse


def _heads(call: Arguments) -> Iterator[tuple[tuple[int | slice, ...], Sequence, int]]:
    """Where the rows of each sequence and head are in a tensor like q, the sequence and the head."""
    for sequence in call.problem.sequences():
        rows = slice(sequence.q_start, sequence.q_start + sequence.q_len)
        for h in range(call.problem.num_heads if sequence.q_len else 0):
            yield ((h, rows) if call.problem.packed else (sequence.b, h, rows)), sequence, h


def _one_head(call: Arguments, sequence: Sequence, h: int, rounding: Rounding | None) -> tuple[Tensor, Tensor]:
    floats = torch.float64 if rounding is None else torch.float32
    scope = _scope(call, sequence, h, floats)
    q, k, v = (item.to(floats) for item in _rows(call, sequence, h))
    score = q @ k.T * scope.symbols["scale"]
    if rounding is not None:
        score = _rounded(score, rounding.score)
    prob, lse = _normalised(call.variant, scope, *_scored(call.variant, scope, score))
    prob = prob * _dropout(call, scope, sequence, h)
    if rounding is None:
        return prob @ v, lse
    out = _rounded(prob * rounding.unit, rounding.prob) / rounding.unit @ v
    return _rounded(out, rounding.out).double(), lse.double()


def _rounded(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """To the type and back, which loses what it can't hold."""
    return x if dtype is None else x.to(dtype).to(x.dtype)


def _rows(call: Arguments, sequence: Sequence, h: int) -> tuple[Tensor, Tensor, Tensor]:
    lead = () if call.problem.packed else (sequence.b,)
    q_rows = slice(sequence.q_start, sequence.q_start + sequence.q_len)
    kv_rows = slice(sequence.kv_start, sequence.kv_start + sequence.kv_len)
    kv_h = h // call.problem.group
    return call.q[(*lead, h, q_rows)], call.k[(*lead, kv_h, kv_rows)], call.v[(*lead, kv_h, kv_rows)]


def _scope(call: Arguments, sequence: Sequence, h: int, floats: torch.dtype) -> Scope:
    device, problem = call.q.device, call.problem
    q_idx = torch.arange(sequence.q_len, device=device)[:, None]
    symbols: dict[str, Any] = {
        "b": sequence.b,
        "h": h,
        "kv_h": h // problem.group,
        "q_idx": q_idx,
        "kv_idx": torch.arange(sequence.kv_len, device=device)[None, :],
        "q_pos": q_idx + sequence.q_offset,
        "q_len": sequence.q_len,
        "kv_len": sequence.kv_len,
        "q_offset": sequence.q_offset,
        "num_heads": problem.num_heads,
        "num_kv_heads": problem.num_kv_heads,
        "head_dim": problem.head_dim,
        "scale": problem.head_dim**-0.5,
    }
    inputs = {name: _of_sequence(call, name, sequence) for name in call.inputs}
    scope = Scope(symbols, inputs, call.variant.lets, floats)
    if call.scale is not None:
        symbols["scale"] = call.scale
    elif call.variant.scale is not None:
        symbols["scale"] = float(scope.value(call.variant.scale))
    return scope


def _of_sequence(call: Arguments, name: str, sequence: Sequence) -> Tensor:
    """An input as the variant indexes it. In a packed call, batch is put back before the sequence's own positions."""
    array, axes = call.inputs[name], call.variant.input(name).axes
    tags = [axis.tag for axis in axes]
    positions = [tag for tag in tags if tag in ("q", "kv", "pos")]
    if not (call.problem.packed and "batch" in tags and positions):
        return array
    merged = [tag for tag in tags if tag != "batch"].index(positions[0])
    start, length = (sequence.q_start, sequence.q_len) if positions[0] == "q" else (sequence.kv_start, sequence.kv_len)
    own = array.narrow(merged, start, length).unsqueeze(tags.index("batch"))
    repeats = [sequence.b + 1 if tag == "batch" else -1 for tag in tags]
    return own.expand(repeats)


def _scored(variant: Variant, scope: Scope, score: Tensor) -> tuple[Tensor, Tensor]:
    """Score after all score lines, and what is kept. A let that reads the score has its value where it stands."""
    kept = torch.ones_like(score, dtype=torch.bool)
    symbols, lets = {**scope.symbols, "score": score}, dict(scope.lets)
    for statement in variant.statements:
        now = Scope(symbols, scope.inputs, lets, scope.floats)
        match statement:
            case Let():
                symbols[statement.name] = now.value(statement.value)
                lets[statement.name] = Let(statement.name, Symbol(statement.value.type, statement.name))
            case Score():
                symbols["score"] = now.value(statement.value).expand(score.shape)
            case Keep():
                kept = kept & now.value(statement.condition)
    return symbols["score"], kept


def _normalised(variant: Variant, scope: Scope, score: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """P and lse [q_len] (of `none` and `sigmoid`: -inf, it is not defined there)."""
    undefined = score.new_full((score.shape[0],), -math.inf)
    if variant.normalize != "softmax":
        prob = torch.sigmoid(score) if variant.normalize == "sigmoid" else score
        return torch.where(kept, prob, 0), undefined
    score = torch.where(kept, score, -math.inf)
    logits = score
    if variant.sink is not None:
        axes = variant.input(variant.sink).axes
        indices = tuple(Symbol(Type.INT, {"head": "h", "kv_head": "kv_h", "batch": "b"}[str(a)]) for a in axes)
        sink = scope.value(Load(Type.FLOAT, variant.sink, indices)).expand(score.shape[0], 1)
        logits = torch.cat([score, sink], dim=1)
    if not logits.shape[1]:
        return score, undefined
    # A row of -inf alone has no gradient: autograd must not come by its lse.
    empty = torch.isneginf(logits).all(dim=1)
    lse = torch.logsumexp(torch.where(empty[:, None], 0, logits), dim=1)
    prob = torch.exp(score - lse[:, None])
    return torch.where(torch.isneginf(score), 0, prob), torch.where(empty, undefined, lse)


def _dropout(call: Arguments, scope: Scope, sequence: Sequence, h: int) -> Tensor | float:
    if call.variant.dropout is None:
        return 1.0
    threshold = philox.threshold(float(scope.value(call.variant.dropout)))
    head = np.asarray(sequence.b * call.problem.num_heads + h)
    kept = philox.keep_mask(call.seed, threshold, head, np.arange(sequence.q_len), np.arange(sequence.kv_len))
    return torch.from_numpy(kept).to(call.q.device).to(scope.floats) * (256 / threshold)

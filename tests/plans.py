"""Variants, tile rules and plans made by hand, for tests that must not depend on the parser or on the mask analysis."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from attncc.analysis.rules import MinMaxTable, TileRules
from attncc.ir import Axis, Const, Expr, Input, Keep, Let, Load, Local, Score, Type, Variant, apply, const, symbol
from attncc.schedule.plan import KernelPlan

DTYPES: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64}

Q_POS, KV_IDX, SCORE = symbol("q_pos"), symbol("kv_idx"), symbol("score")
DISTANCE = apply("sub", Q_POS, KV_IDX)


def load(name: str, *indices: Expr, kind: Type = Type.FLOAT) -> Load:
    return Load(kind, name, indices)


def declared(name: str, dtype: str, *axes: str | int | None) -> Input:
    return Input(name, dtype, tuple(Axis(length=a) if isinstance(a, int) else Axis(a) for a in axes))


# -------------------------------------------------------------------- variants

KEEP_CAUSAL = Keep(apply("ge", DISTANCE, const(0)))
KEEP_WINDOW = Keep(apply("lt", DISTANCE, const(40)))

FULL = Variant("full")
CAUSAL = Variant("causal", statements=(KEEP_CAUSAL,))
WINDOW = Variant("window", statements=(KEEP_CAUSAL, KEEP_WINDOW))
_SLOPED = apply("mul", load("slope", symbol("h")), apply("to_float", Local(Type.INT, "distance")))
ALIBI = Variant(
    "alibi",
    inputs=(declared("slope", "f32", "head"), declared("cap", "f32")),
    statements=(
        KEEP_CAUSAL,
        Let("distance", DISTANCE),
        Score(apply("sub", SCORE, _SLOPED)),
        Score(apply("mul", load("cap"), apply("tanh", apply("div", SCORE, load("cap"))))),
    ),
)
_SAME = (load("doc", symbol("b"), position, kind=Type.INT) for position in (Q_POS, KV_IDX))
DOCUMENTS = Variant(
    "documents",
    inputs=(declared("doc", "i32", "batch", "pos"),),
    statements=(KEEP_CAUSAL, Keep(apply("eq", *_SAME))),
)
SINK = Variant("sink", inputs=(declared("logit", "f32", "head"),), statements=(KEEP_CAUSAL,), sink="logit")
SIGMOID = Variant("sigmoid_window", statements=(KEEP_CAUSAL, KEEP_WINDOW), normalize="sigmoid")
UNNORMALISED = Variant("linear", statements=(KEEP_CAUSAL,), normalize="none")
DROPOUT = Variant("dropped", statements=(KEEP_CAUSAL,), dropout=Const(Type.FLOAT, 0.25))
# Head h sees 24 * h positions more than a causal mask: its tile rules depend on the head.
REACH = apply("mul", symbol("h"), const(24))
HEADWISE = Variant("headwise", statements=(Keep(apply("le", KV_IDX, apply("add", Q_POS, REACH))),))
# Scores are 1 + 2 times what came in: the let holds the score of where it stands.
LET_OF_SCORE = Variant(
    "let_of_score",
    statements=(
        Let("before", SCORE),
        Score(apply("mul", SCORE, Const(Type.FLOAT, 2.0))),
        Score(apply("add", SCORE, Local(Type.FLOAT, "before"))),
    ),
)

VARIANTS = (
    FULL, CAUSAL, WINDOW, ALIBI, DOCUMENTS, SINK, SIGMOID, UNNORMALISED, DROPOUT, HEADWISE, LET_OF_SCORE,
)  # fmt: skip

# -------------------------------------------------------------------- rules


def rules(**known: Any) -> TileRules:
    """Rules that say "partial" to everything, but for what is given."""
    nothing: dict[str, Any] = {
        "any_kept": const(True), "all_kept": const(False),
        "kv_begin": const(0), "kv_end": symbol("kv_len"), "full_begin": const(0), "full_end": const(0),
        "min_max_tables": (), "bounds_suffice": True, "decides": bool(known),
        "rows_never_empty": False, "undecided": (),
    }  # fmt: skip
    return TileRules(**{**nothing, **known})


def _pos(q_idx: str) -> Expr:
    return apply("sub", apply("add", symbol(q_idx), symbol("kv_len")), symbol("q_len"))


def _clamped(bound: Expr) -> Expr:
    return apply("min", apply("max", bound, const(0)), symbol("kv_len"))


def _plus(expr: Expr, *terms: Expr | int) -> Expr:
    for term in terms:
        expr = apply("add", expr, const(term) if isinstance(term, int) else term)
    return expr


CAUSAL_RULES = rules(kv_end=_clamped(_plus(_pos("q_last"), 1)), full_end=_clamped(_plus(_pos("q_first"), 1)))
WINDOW_RULES = rules(
    kv_begin=_clamped(_plus(_pos("q_first"), -39)),
    kv_end=_clamped(_plus(_pos("q_last"), 1)),
    full_begin=_clamped(_plus(_pos("q_last"), -39)),
    full_end=_clamped(_plus(_pos("q_first"), 1)),
)
HEADWISE_RULES = rules(
    kv_end=_clamped(_plus(_pos("q_last"), REACH, 1)), full_end=_clamped(_plus(_pos("q_first"), REACH, 1))
)


def document_rules(block: int) -> TileRules:
    """The range of documents in a q tile must meet that in a kv tile; tiles are at most `block` long."""

    def extreme(op: str, name: str, first: Expr, last: Expr) -> Expr:
        blocks = (apply("floordiv", _plus(symbol("kv_start"), end), const(block)) for end in (first, last))
        return apply(op, *(load(name, symbol("b"), number, kind=Type.INT) for number in blocks))

    q, kv = (_pos("q_first"), _pos("q_last")), (symbol("kv_first"), symbol("kv_last"))
    meets = (
        apply("le", extreme("min", "doc__min", *one), extreme("max", "doc__max", *other))
        for one, other in ((q, kv), (kv, q))
    )
    # A q_pos before the first key reads document 0, which is no tile's business here: rows of such tiles stay partial.
    before = apply("lt", _pos("q_first"), const(0))
    any_kept = apply("or", before, apply("and", *meets))
    return rules(
        any_kept=any_kept, kv_end=CAUSAL_RULES.kv_end, min_max_tables=(MinMaxTable("doc", block),), bounds_suffice=False
    )


RULES = {"causal": CAUSAL_RULES, "window": WINDOW_RULES, "headwise": HEADWISE_RULES, "sigmoid_window": WINDOW_RULES}


# -------------------------------------------------------------------- plans and arguments


def plan(
    variant: Variant, dtype: str = "fp32", head_dim: int = 16, value_head_dim: int = 16, **settings: Any
) -> KernelPlan:
    """A plan with small tiles; `settings` replace its fields."""
    block_q, block_kv = settings.get("block_q", 32), settings.get("block_kv", 16)
    by_default = document_rules(max(block_q, block_kv)) if variant is DOCUMENTS else RULES.get(variant.name, rules())
    fields: dict[str, Any] = {
        "variant": variant, "rules": by_default, "pass_name": "forward", "target": "sm_80", "dtype": dtype,
        "family": "portable", "head_dim": head_dim, "value_head_dim": value_head_dim, "loop": "q_outer",
        "block_q": block_q, "block_kv": block_kv, "warps": 2, "stages": 2, "split_kv": 1, "skip": "auto",
    }  # fmt: skip
    return KernelPlan(**{**fields, **settings})


def arguments(variant: Variant, batch: int, num_heads: int, kv_len: int) -> dict[str, Any]:
    """What a call of one of the variants above must bring besides q, k and v."""
    rng = np.random.default_rng(kv_len)
    steps = rng.random((batch, kv_len)) < 0.04
    known: dict[str, Any] = {
        "slope": np.exp2(-np.arange(1, num_heads + 1, dtype=np.float32)), "cap": 5.0,
        "doc": np.cumsum(steps, axis=-1).astype(np.int32),
        "logit": rng.standard_normal(num_heads).astype(np.float32),
    }  # fmt: skip
    wanted = {item.name: known[item.name] for item in variant.inputs}
    return wanted if variant.dropout is None else {**wanted, "seed": 1234}


def qkv(
    dtype: str = "fp32",
    *,
    batch: int = 2,
    heads: tuple[int, int] = (4, 2),
    lengths: tuple[int, int] = (45, 70),
    head_dims: tuple[int, int] = (16, 16),
) -> tuple[Any, Any, Any]:
    """Normal q, k, v in layout bhsd. `heads`: query and key; `lengths`: q and kv; `head_dims`: keys and values."""
    rng = np.random.default_rng(0)
    shapes = (
        (batch, heads[0], lengths[0], head_dims[0]),
        (batch, heads[1], lengths[1], head_dims[0]),
        (batch, heads[1], lengths[1], head_dims[1]),
    )
    q, k, v = (rng.standard_normal(shape).astype(DTYPES[dtype]) for shape in shapes)
    return q, k, v

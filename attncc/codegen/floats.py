"""Floats and bools in CUDA: fp32 arithmetic, accurate functions, comparisons, connectives without branches."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from ..ir import Type
from ..operators import OPERATORS
from .nodes import BOOL, FLOAT, Form, Node, Precedence, recorded

_P = Precedence

# Rules of their own have `and`, `or`, `select`, `to_float`, and a division of scores: codegen/expressions.py.
TO_FLOAT = Form("(float){0}", _P.UNARY, (_P.UNARY,), cost=2, hint="converted")
SELECT = Form("{0} ? {1} : {2}", _P.TERNARY, (_P.EQUALITY, _P.BIT_AND, _P.BIT_AND), hint="choice")
EXACT_PRODUCT = Form("__fmul_rn({0}, {1})", _P.PRIMARY, (_P.TERNARY, _P.TERNARY), hint="product")
RECIPROCAL = Form("1.0f / {0}", _P.PRODUCT, (_P.UNARY,), cost=8, hint="reciprocal")


@cache
def form(op: str, kind: Type) -> Form:
    """How an operator on floats or bools prints, or a comparison of ints."""
    part = OPERATORS[op].on(kind)
    assert part.cuda is not None, op
    return recorded(part.cuda, OPERATORS[op].arity, part.cost)


def connect(op: str, args: tuple[Node, ...], ctype: str = BOOL) -> Node:
    """`and`, `or` of two or more bools, or words of bits: no short circuit, since branches cost more than the terms."""
    symbol, precedence = ("&", _P.BIT_AND) if op == "and" else ("|", _P.BIT_OR)
    text = f" {symbol} ".join(f"{{{number}}}" for number in range(len(args)))
    form = Form(text, precedence, (_P.UNARY,), cost=len(args) - 1, hint="both" if op == "and" else "either")
    return form.node(ctype, *args)


def float_literal(value: float) -> Node:
    single = np.float32(value)
    if not math.isfinite(single):
        bits = {math.inf: "0x7f800000", -math.inf: "0xff800000"}.get(float(single), "0x7fffffff")
        return Node(FLOAT, f"__int_as_float({bits})", hint="constant")
    text = f"{abs(single)!s}"
    negative = bool(np.signbit(single))
    precedence = _P.UNARY if negative else _P.PRIMARY
    return Node(FLOAT, f"{'-' * negative}{text}f", precedence=precedence, hint="constant")


def bool_literal(value: bool) -> Node:
    return Node(BOOL, "true" if value else "false", hint="constant")

"""Floats and bools in CUDA: fp32 arithmetic, accurate functions, comparisons, connectives without branches."""

from __future__ import annotations

import math

import numpy as np

from .nodes import BOOL, FLOAT, LONG, Form, Node, Precedence, call, infix, prefix

_P = Precedence
_LEAF = "functions.cuh"

OPERATORS: dict[str, Form] = {
    "add": infix("+", _P.SUM, _P.SUM, hint="sum"),
    "sub": infix("-", _P.SUM, _P.SUM, hint="difference"),
    "mul": infix("*", _P.PRODUCT, _P.PRODUCT, hint="product"),
    "div": infix("/", _P.PRODUCT, _P.PRODUCT, cost=8, hint="quotient"),
    "neg": prefix("-", hint="negated"),
    "abs": call("fabsf", 1, hint="absolute"),
    "min": call("fminf", 2, hint="smaller"),
    "max": call("fmaxf", 2, hint="larger"),
    "exp": call("expf", 1, cost=8, hint="exponential"),
    "exp2": call("exp2f", 1, cost=4, hint="exponential"),
    "log": call("logf", 1, cost=8, hint="logarithm"),
    "tanh": call("tanh_branchless", 1, cost=16, hint="hyperbolic", include=_LEAF),
    "sigmoid": call("sigmoid", 1, cost=12, hint="sigmoid_value", include=_LEAF),
    "erf": call("erff", 1, cost=16, hint="error"),
    "sqrt": call("sqrtf", 1, cost=8, hint="root"),
    "sin": call("sine", 1, cost=20, hint="sine_value", include="trigonometry.cuh"),
    "cos": call("cosine", 1, cost=20, hint="cosine_value", include="trigonometry.cuh"),
}

# Operators that fix the type of their result, with it.
CONVERSIONS: dict[str, tuple[str, Form]] = {
    "lt": (BOOL, infix("<", _P.RELATION, _P.SUM, hint="less")),
    "le": (BOOL, infix("<=", _P.RELATION, _P.SUM, hint="at_most")),
    "gt": (BOOL, infix(">", _P.RELATION, _P.SUM, hint="more")),
    "ge": (BOOL, infix(">=", _P.RELATION, _P.SUM, hint="at_least")),
    "eq": (BOOL, infix("==", _P.EQUALITY, _P.SUM, hint="same")),
    "ne": (BOOL, infix("!=", _P.EQUALITY, _P.SUM, hint="different")),
    "not": (BOOL, prefix("!", hint="negation")),
    "to_float": (FLOAT, Form("(float){0}", _P.UNARY, (_P.UNARY,), cost=2, hint="converted")),
    "floor": (LONG, call("floor_to_int", 1, cost=4, hint="floored", include=_LEAF)),
}

SELECT = Form("{0} ? {1} : {2}", _P.TERNARY, (_P.EQUALITY, _P.BIT_AND, _P.BIT_AND), hint="choice")
RECIPROCAL = Form("1.0f / {0}", _P.PRODUCT, (_P.UNARY,), cost=8, hint="reciprocal")


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

"""Functions that people bring from Python, NumPy and torch, and what to write instead: code that means the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..diagnostics import Edit
from ..ir import Type
from ..syntax import ast
from ..syntax.printer import ATOM, tight
from .report import brief

# Functions of torch and jax that NumPy hasn't got, and no `Form` below says. None is a misspelt built-in function.
_OF_TORCH = {
    "aminmax", "cond", "cummax", "cummin", "detach", "erfinv", "fork", "ge", "geqrf", "ger", "glu", "hardshrink",
    "is_signed", "lobpcg", "logdet", "log_softmax", "lu", "msort", "prelu", "qr", "rand", "randn", "rnn_tanh",
    "rrelu", "selu", "slogdet", "softmax", "softmin", "softshrink", "sparse_sigmoid", "sym_int", "sym_max",
    "sym_min", "sym_sqrt", "symeig", "tanhshrink", "threshold", "xlogy",
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """An expression over the parameters, which stand in it as `{x}`. It binds as a function call does."""

    parameters: str
    text: str
    beside: str = ""  # what else there is to say

    def filled(self, arguments: Sequence[str]) -> str:
        return self.text.format(**dict(zip(self.parameters.split(", "), arguments, strict=True)))


@dataclass(frozen=True)
class Instead:
    help: str
    edit: Edit | None = None


TRUNCATED = "(floor({x}) if {x} >= 0 else -floor(-{x}))"

# Asked only for names that aren't built in: one that becomes a function of the language needs no change here.
FORMS: dict[str, Form] = {
    **dict.fromkeys(("where", "select"), Form("condition, a, b", "({a} if {condition} else {b})")),
    **dict.fromkeys(("int", "trunc", "fix"), Form("x", TRUNCATED, "`floor(x)` rounds down")),
    "ceil": Form("x", "(-floor(-{x}))"),
    "pow": Form("x, y", "exp2({y} * log2({x}))", "for x > 0; small powers are products"),
    "ln": Form("x", "log({x})", "the natural logarithm"),
    "log10": Form("x", "(log({x}) / log(10))"),
    "log1p": Form("x", "log(1 + {x})"),
    "expm1": Form("x", "(exp({x}) - 1)"),
    "erfc": Form("x", "(1 - erf({x}))"),
    "logit": Form("x", "log({x} / (1 - {x}))"),
    "logaddexp": Form("a, b", "({a} + softplus({b} - {a}))"),
    "rsqrt": Form("x", "(1 / sqrt({x}))"),
    "reciprocal": Form("x", "(1 / {x})"),
    "tan": Form("x", "(sin({x}) / cos({x}))"),
    "sinh": Form("x", "((exp({x}) - exp(-{x})) / 2)"),
    "cosh": Form("x", "((exp({x}) + exp(-{x})) / 2)"),
    **dict.fromkeys(("logsigmoid", "log_sigmoid"), Form("x", "(-softplus(-{x}))")),
    "swish": Form("x", "silu({x})"),
    "relu": Form("x", "max({x}, 0)"),
    "relu6": Form("x", "clamp({x}, 0, 6)"),
    "leaky_relu": Form("x", "max({x}, 0.01 * {x})"),
    **dict.fromkeys(("elu", "celu"), Form("x", "max({x}, exp(min({x}, 0)) - 1)")),
    **dict.fromkeys(("hardtanh", "hard_tanh"), Form("x", "clamp({x}, -1, 1)")),
    **dict.fromkeys(("hardsigmoid", "hard_sigmoid"), Form("x", "clamp({x} / 6 + 0.5, 0, 1)")),
    **dict.fromkeys(("hardswish", "hard_silu", "hard_swish"), Form("x", "({x} * clamp({x} / 6 + 0.5, 0, 1))")),
    **dict.fromkeys(("softsign", "soft_sign"), Form("x", "({x} / (1 + abs({x})))")),
    "mish": Form("x", "({x} * tanh(softplus({x})))"),
    **dict.fromkeys(("rint", "around"), Form("x", "round({x})", "it gives an int")),
    "sgn": Form("x", "sign({x})"),
    "isnan": Form("x", "({x} != {x})"),
    "square": Form("x", "({x} * {x})"),
    "hypot": Form("x, y", "sqrt({x} * {x} + {y} * {y})"),
    **dict.fromkeys(("fabs", "absolute"), Form("x", "abs({x})")),
    **dict.fromkeys(("minimum", "fmin"), Form("a, b", "min({a}, {b})")),
    **dict.fromkeys(("maximum", "fmax"), Form("a, b", "max({a}, {b})")),
    "clip": Form("x, low, high", "clamp({x}, {low}, {high})"),
    "clamp_min": Form("x, low", "max({x}, {low})"),
    "clamp_max": Form("x, high", "min({x}, {high})"),
    "logical_and": Form("a, b", "({a} and {b})"),
    "logical_or": Form("a, b", "({a} or {b})"),
    "logical_not": Form("a", "(not {a})"),
}

# By the types of the arguments: of ints, and of floats.
OF_INTS = {
    **dict.fromkeys(("mod", "remainder"), Form("a, b", "({a} % {b})")),
    "floor_divide": Form("a, b", "({a} // {b})"),
    "float": Form("x", "(1.0 * {x})", "an int becomes a float by itself where one is needed"),
}
OF_FLOATS = {
    **dict.fromkeys(("mod", "remainder"), Form("a, b", "({a} - floor({a} / {b}) * {b})")),
    "floor_divide": Form("a, b", "floor({a} / {b})"),
    "float": Form("x", "{x}", "it is a float already"),
}
_TO_BOOL = Form("x", "({x} != 0)")

# What no expression says.
WORDS = {
    "range": "`range` stands only in `any(... for i in range(n))`, and in `all` and `sum`",
    "len": "write `q_len` or `kv_len`",
}


def is_elsewhere(name: str) -> bool:
    """Whether Python, NumPy or torch has a function of this name: it isn't another one's, misspelt."""
    return name in _OF_TORCH or name in dir(math) or name in dir(np)


def instead(node: ast.Call, types: Sequence[Type]) -> Instead | None:
    """What to write instead of a call; `types` are those of its arguments, empty where one is wrong."""
    name = node.function.name
    if name in WORDS:
        return Instead(WORDS[name])
    form = FORMS.get(name) or _by_type(name, types)
    if form is None:
        return None
    beside = f"; {form.beside}" if form.beside else ""
    count = len(form.parameters.split(", "))
    if len(node.arguments) != count or name == "pow":
        return _power(node) or Instead(f"write `{_bare(form.filled(form.parameters.split(', ')))}`{beside}")
    filled = form.filled([tight(argument, ATOM) for argument in node.arguments])
    shown = brief(filled, form.filled(form.parameters.split(", ")))
    return Instead(f"write `{_bare(shown)}`{beside}", Edit(node.span, filled))


def _by_type(name: str, types: Sequence[Type]) -> Form | None:
    if name == "bool":
        return None if Type.BOOL in types else _TO_BOOL
    return (OF_FLOATS if Type.FLOAT in types else OF_INTS).get(name)


def _power(node: ast.Call) -> Instead | None:
    """x * x for pow(x, 2), and so on to 4."""
    if node.function.name != "pow" or len(node.arguments) != 2:
        return None
    base, exponent = node.arguments
    if not isinstance(exponent, ast.Number) or exponent.value not in (2, 3, 4):
        return None
    text = " * ".join([tight(base, ATOM)] * int(exponent.value))
    return Instead(f"write `{brief(text, 'x * x')}`", Edit(node.span, f"({text})"))


def _bare(text: str) -> str:
    """Without the parentheses around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text

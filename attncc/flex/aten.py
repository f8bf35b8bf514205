"""ATen's pointwise operators as terms: for each the function that makes its term from the terms of its operands.

Names are those of the dispatcher, without namespace and overload. Numbers come as terms too, `None`, texts and lists as
they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..import_flex.fold import known
from ..import_flex.terms import Term
from ..operators import FLOAT_FUNCTIONS
from .terms import Maker

Rule = Callable[..., Term]


class Untranslated(Exception):
    """An operator, or an option of one, that `.attn` lacks; the text says what to do."""


def _plain(op: str) -> Rule:
    def rule(make: Maker, *args: Term, **_: Any) -> Term:
        return make(op, *args)

    return rule


def _comparison(op: str) -> Rule:
    def rule(make: Maker, left: Term, right: Term) -> Term:
        return make.compare(op, left, right)

    return rule


def _same(make: Maker, x: Term, *_: Any, **options: Any) -> Term:
    return x


def _scaled(op: str) -> Rule:
    """`x + alpha * y`."""

    def rule(make: Maker, left: Term, right: Term, alpha: Term | None = None) -> Term:
        one = alpha is None or known(alpha) == 1
        return make(op, left, right if one or alpha is None else make("mul", alpha, right))

    return rule


def _rsub(make: Maker, left: Term, right: Term, alpha: Term | None = None) -> Term:
    return _scaled("sub")(make, right, left, alpha)


def _div(make: Maker, left: Term, right: Term, rounding_mode: str | None = None) -> Term:
    if rounding_mode is None:
        return make("truediv", left, right)
    return make("floordiv" if rounding_mode == "floor" else "truncdiv", left, right)


def _fmod(make: Maker, left: Term, right: Term) -> Term:
    return make("sub", left, make("mul", make("truncdiv", left, right), right))


def _log_of(base: float) -> Rule:
    return lambda make, x: make("truediv", make("log", x), make.number(math.log(base)))


def _rsqrt(make: Maker, x: Term) -> Term:
    return make("truediv", make.number(1.0), make("sqrt", x))


def _reciprocal(make: Maker, x: Term) -> Term:
    return make("truediv", make.number(1.0), x)


def _ceil(make: Maker, x: Term) -> Term:
    return make("neg", make("floor", make("neg", x)))


def _trunc(make: Maker, x: Term) -> Term:
    return make("to_float", make("to_int", x))


def _round(make: Maker, x: Term, decimals: Term | None = None) -> Term:
    if decimals is not None and known(decimals) != 0:
        raise Untranslated("write torch.round(x * 10**n) / 10**n")
    return make("round", x)


def _tan(make: Maker, x: Term) -> Term:
    return make("truediv", make("sin", x), make("cos", x))


def _gelu(make: Maker, x: Term, approximate: str = "none") -> Term:
    return make("gelu_tanh" if approximate == "tanh" else "gelu", x)


def _softplus(make: Maker, x: Term, beta: Term | None = None, threshold: Term | None = None) -> Term:
    """Beyond the threshold x itself; beyond 20, torch's default, f32 can't tell the two apart."""
    inner = x if beta is None or known(beta) == 1 else make("mul", x, beta)
    soft = make("softplus", x) if beta is None or inner is x else make("truediv", make("softplus", inner), beta)
    if threshold is None or known(threshold) == 20:
        return soft
    return make("where", make.compare(">", inner, threshold), x, soft)


def _elu(make: Maker, x: Term, alpha: Term | None = None, scale: Term | None = None, inner: Term | None = None) -> Term:
    one = make.number(1.0)
    below = make("sub", make("exp", make("mul", x, inner or one)), one)
    down = make("mul", alpha or one, below)
    return make("mul", scale or one, make("where", make.compare(">", x, make.number(0)), x, down))


def _mish(make: Maker, x: Term) -> Term:
    return make("mul", x, make("tanh", make("softplus", x)))


def _relu(make: Maker, x: Term) -> Term:
    return make("max", x, make.number(0))


def _leaky(make: Maker, x: Term, slope: Term | None = None) -> Term:
    down = make("mul", x, make.number(0.01) if slope is None else slope)
    return make("where", make.compare(">", x, make.number(0)), x, down)


def _clamp(make: Maker, x: Term, low: Term | None = None, high: Term | None = None, **named: Term | None) -> Term:
    low, high = named.get("min", low), named.get("max", high)
    if low is not None and high is not None:
        return make("clamp", x, low, high)
    if low is not None:
        return make("max", x, low)
    return x if high is None else make("min", x, high)


def _masked_fill(make: Maker, x: Term, mask: Term, value: Term) -> Term:
    """The result has the type of x, even where a float fills ints."""
    return make("where", mask, make("to_int", value) if make.ints else value, x)


def _logical_xor(make: Maker, left: Term, right: Term) -> Term:
    return make("xor", make("to_bool", left), make("to_bool", right))


def _isnan(make: Maker, x: Term) -> Term:
    return make.compare("!=", x, x)


def _addcmul(make: Maker, x: Term, left: Term, right: Term, value: Term | None = None) -> Term:
    return _scaled("add")(make, x, make("mul", left, right), value)


def _lerp(make: Maker, start: Term, end: Term, weight: Term) -> Term:
    return make("add", start, make("mul", weight, make("sub", end, start)))


def _cast(make: Maker, x: Term, *_: Any, dtype: Any = None, **options: Any) -> Term:
    """The dtype as the tracer gives it: the name of a conversion."""
    return x if dtype is None else make(dtype, x)


_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COPIES = ("clone", "alias", "detach", "lift", "lift_fresh", "lift_fresh_copy", "positive", "contiguous")
_ELSEWHERE = ("floor", "round", "gelu", "gelu_tanh", "softplus")

POINTWISE: dict[str, Rule] = {
    **{name: _plain(name) for name in FLOAT_FUNCTIONS if name not in _ELSEWHERE},
    **{name: _plain(name) for name in ("mul", "neg", "abs", "sign", "where", "pow", "floor")},
    **{name: _plain(name) for name in ("logical_and", "logical_or", "logical_not")},
    **{f"bitwise_{name}": _plain(name) for name in ("and", "or", "xor")},
    **{name: _comparison(op) for name, op in _COMPARISONS.items()},
    **dict.fromkeys(_COPIES, _same),
    "bitwise_not": _plain("invert"),
    "bitwise_left_shift": _plain("shl"),
    "__lshift__": _plain("shl"),
    "bitwise_right_shift": _plain("shr"),
    "__rshift__": _plain("shr"),
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "rsub": _rsub,
    "div": _div,
    "true_divide": _plain("truediv"),
    "floor_divide": _plain("floordiv"),
    "remainder": _plain("mod"),
    "fmod": _fmod,
    "maximum": _plain("max"),
    "minimum": _plain("min"),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda make, x, high: make("min", x, high),
    "hardtanh": lambda make, x, low, high: make("clamp", x, low, high),
    "sgn": _plain("sign"),
    "log10": _log_of(10.0),
    "log1p": lambda make, x: make("log", make("add", x, make.number(1.0))),
    "expm1": lambda make, x: make("sub", make("exp", x), make.number(1.0)),
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "square": lambda make, x: make("mul", x, x),
    "ceil": _ceil,
    "trunc": _trunc,
    "round": _round,
    "tan": _tan,
    "gelu": _gelu,
    "softplus": _softplus,
    "elu": _elu,
    "mish": _mish,
    "relu": _relu,
    "leaky_relu": _leaky,
    "masked_fill": _masked_fill,
    "logical_xor": _logical_xor,
    "isnan": _isnan,
    "addcmul": _addcmul,
    "lerp": _lerp,
    "_to_copy": _cast,
}  # fmt: skip

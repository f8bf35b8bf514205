"""The records of what is written with signs and keywords, and of the functions that ints have too."""

from __future__ import annotations

import numpy as np

from . import float_ranges, meaning, ranges
from .record import Cuda, Function, OnBools, OnFloats, OnInts, Operator, Partial, Quantity, Type, Where

_Two = tuple[Partial, Partial]


def _minimum(a: Quantity, b: Quantity, value: Quantity) -> _Two:
    """A tie is split evenly."""
    half = a.compare("eq", b).then(0.5, 1.0)
    return Where(a.compare("le", b), half), Where(a.compare("ge", b), half)


def _maximum(a: Quantity, b: Quantity, value: Quantity) -> _Two:
    half = a.compare("eq", b).then(0.5, 1.0)
    return Where(a.compare("ge", b), half), Where(a.compare("le", b), half)


def _quotient(a: Quantity, b: Quantity, value: Quantity) -> _Two:
    return 1.0 / b, -(value / b)


def _sign(x: Quantity, value: Quantity) -> Quantity:
    return x.compare("gt", 0.0).then(1.0, x.compare("lt", 0.0).then(-1.0, 0.0))


ARITHMETIC = (
    Operator(
        name="add",
        arity=2,
        infix="+",
        on_ints=OnInts(numpy=np.add, range=ranges.add, cuda=Cuda("+", "sum"), wraps=True),
        on_floats=OnFloats(
            numpy=np.add, derivative=lambda a, b, value: (1.0, 1.0), cuda=Cuda("+", "sum"), cost=1,
            range=float_ranges.add,
        ),
    ),
    Operator(
        name="sub",
        arity=2,
        infix="-",
        on_ints=OnInts(numpy=np.subtract, range=ranges.sub, cuda=Cuda("-", "difference"), wraps=True),
        on_floats=OnFloats(
            numpy=np.subtract, derivative=lambda a, b, value: (1.0, -1.0), cuda=Cuda("-", "difference"), cost=1,
            range=float_ranges.sub,
        ),
    ),
    Operator(
        name="mul",
        arity=2,
        infix="*",
        on_ints=OnInts(numpy=np.multiply, range=ranges.mul, cuda=Cuda("*", "product"), wraps=True),
        on_floats=OnFloats(
            numpy=np.multiply, derivative=lambda a, b, value: (b, a), cuda=Cuda("*", "product"), cost=1,
            range=float_ranges.mul,
        ),
    ),
    Operator(
        name="neg",
        arity=1,
        on_ints=OnInts(numpy=np.negative, range=ranges.neg, cuda=Cuda("-", "negated"), wraps=True),
        on_floats=OnFloats(
            numpy=np.negative, derivative=lambda x, value: -1.0, cuda=Cuda("-", "negated"), cost=1,
            range=float_ranges.neg,
        ),
    ),
    Operator(
        name="div",
        arity=2,
        infix="/",
        on_floats=OnFloats(
            numpy=np.divide, derivative=_quotient, cuda=Cuda("/", "quotient"), cost=4,
            range=float_ranges.div,
        ),
    ),
    Operator(name="floordiv", arity=2, infix="//", on_ints=OnInts(
        numpy=meaning.floordiv, range=ranges.floordiv, cuda=None, cost=6)),
    Operator(name="mod", arity=2, infix="%", on_ints=OnInts(
        numpy=meaning.mod, range=ranges.mod, cuda=None, cost=6)),
    Operator(name="bitand", arity=2, infix="&", on_ints=OnInts(
        numpy=np.bitwise_and, range=ranges.bitand, cuda=Cuda("&", "bits"))),
    Operator(name="bitor", arity=2, infix="|", on_ints=OnInts(
        numpy=np.bitwise_or, range=ranges.bitor, cuda=Cuda("|", "bits"))),
    Operator(name="bitxor", arity=2, infix="^", on_ints=OnInts(
        numpy=np.bitwise_xor, range=ranges.bitxor, cuda=Cuda("^", "bits"))),
    Operator(name="bitnot", arity=1, on_ints=OnInts(
        numpy=np.bitwise_not, range=ranges.bitnot, cuda=Cuda("~", "bits"))),
    Operator(name="shl", arity=2, infix="<<", on_ints=OnInts(numpy=meaning.shl, range=ranges.shl, cuda=None)),
    Operator(name="shr", arity=2, infix=">>", on_ints=OnInts(numpy=meaning.shr, range=ranges.shr, cuda=None)),
)  # fmt: skip

# CUDA's fminf and fmaxf return the other argument where one is NaN.
OF_BOTH = (
    Operator(
        name="abs",
        arity=1,
        function=Function("x", "the absolute value"),
        torch=("abs", "absolute"),
        on_ints=OnInts(numpy=np.abs, range=ranges.absolute, cuda=Cuda("abs", "absolute"), wraps=True),
        on_floats=OnFloats(
            numpy=np.abs,
            derivative=_sign,
            cuda=Cuda("fabsf", "absolute"),
            cost=1,
            never_negative=True,
            range=float_ranges.absolute,
        ),
    ),
    Operator(
        name="sign",
        arity=1,
        function=Function("x", "-1 below 0, 0 at 0, 1 above"),
        torch=("sign",),
        on_ints=OnInts(
            numpy=meaning.sign, range=ranges.sign, cuda=Cuda("sign", "sign_value", "common/rounding.cuh"), grows=True
        ),
        on_floats=OnFloats(
            numpy=meaning.sign,
            derivative=lambda x, value: 0.0,
            cuda=Cuda("sign", "sign_value", "common/rounding.cuh"),
            cost=4,
            range=float_ranges.sign,
        ),
    ),
    Operator(
        name="min",
        arity=2,
        function=Function("a, b, ...", "the least", 2, None),
        on_ints=OnInts(numpy=np.minimum, range=ranges.least, cuda=Cuda("min", "smaller")),
        on_floats=OnFloats(
            numpy=np.fmin, derivative=_minimum, cuda=Cuda("fminf", "smaller"), cost=1, range=float_ranges.least
        ),
    ),
    Operator(
        name="max",
        arity=2,
        function=Function("a, b, ...", "the greatest", 2, None),
        on_ints=OnInts(numpy=np.maximum, range=ranges.greatest, cuda=Cuda("max", "larger")),
        on_floats=OnFloats(
            numpy=np.fmax, derivative=_maximum, cuda=Cuda("fmaxf", "larger"), cost=1, range=float_ranges.greatest
        ),
    ),
)


def _comparison(name: str, sign: str, numpy: np.ufunc, hint: str, *, of_bools: bool = False) -> Operator:
    cuda = Cuda(sign, hint)
    return Operator(
        name=name,
        arity=2,
        infix=sign,
        gives=Type.BOOL,
        on_ints=OnInts(numpy=numpy, range=None, cuda=cuda),
        on_floats=OnFloats(numpy=numpy, derivative=None, cuda=cuda, cost=1),
        on_bools=OnBools(numpy=numpy, cuda=cuda) if of_bools else None,
    )


COMPARED = (
    _comparison("lt", "<", np.less, "less"),
    _comparison("le", "<=", np.less_equal, "at_most"),
    _comparison("gt", ">", np.greater, "more"),
    _comparison("ge", ">=", np.greater_equal, "at_least"),
    _comparison("eq", "==", np.equal, "same", of_bools=True),
    _comparison("ne", "!=", np.not_equal, "different", of_bools=True),
)

LOGIC = (
    Operator(name="and", arity=-1, infix="and", on_bools=OnBools(numpy=meaning.logical(np.logical_and), cuda=None)),
    Operator(name="or", arity=-1, infix="or", on_bools=OnBools(numpy=meaning.logical(np.logical_or), cuda=None)),
    Operator(name="not", arity=1, on_bools=OnBools(numpy=np.logical_not, cuda=Cuda("!", "negation"))),
    Operator(  # select(condition, then, otherwise)
        name="select",
        arity=3,
        on_ints=OnInts(numpy=np.where, range=ranges.Range.join, cuda=None),
        on_floats=OnFloats(
            numpy=np.where,
            derivative=lambda condition, a, b, value: (None, Where(condition, 1.0), Where(condition, 1.0, holds=False)),
            cuda=None,
            cost=1,
            range=float_ranges.FloatRange.join,
        ),
        on_bools=OnBools(numpy=np.where, cuda=None),
    ),
    Operator(  # float32 where float32 is computed with: `evaluate` sees to it
        name="to_float",
        arity=1,
        gives=Type.FLOAT,
        on_ints=OnInts(numpy=np.float64, range=None, cuda=None, cost=2),
    ),
)

RECORDS = (*ARITHMETIC, *OF_BOTH, *COMPARED, *LOGIC)

"""The records of functions of one float. A new function is one more of them."""

from __future__ import annotations

import math

import numpy as np

from . import meaning
from .record import Cuda, Function, OnFloats, Operator, Quantity, Type


def _erf_slope(x: Quantity, value: Quantity) -> Quantity:
    return 2 / math.sqrt(math.pi) * (-(x * x)).apply("exp")


def _silu_slope(x: Quantity, value: Quantity) -> Quantity:
    probability = x.apply("sigmoid")
    return probability + value * (1.0 - probability)


def _gelu_slope(x: Quantity, value: Quantity) -> Quantity:
    probability = 0.5 + 0.5 * (x * math.sqrt(0.5)).apply("erf")
    return probability + x * (x * x * -0.5).apply("exp") * (1 / math.sqrt(2 * math.pi))


def _gelu_tanh_slope(x: Quantity, value: Quantity) -> Quantity:
    factor = 2 * math.sqrt(2 / math.pi)
    probability = (x * (factor + 0.044715 * factor * x * x)).apply("sigmoid")
    return probability + value * (1.0 - probability) * (factor + 3 * 0.044715 * factor * x * x)


RECORDS = (
    Operator(
        name="exp",
        arity=1,
        function=Function("x", "e to the power of x"),
        torch=("exp",),
        on_floats=OnFloats(
            numpy=np.exp,
            derivative=lambda x, value: value,
            cuda=Cuda("expf", "exponential"),
            cost=6,
            never_negative=True,
        ),
    ),
    Operator(
        name="exp2",
        arity=1,
        function=Function("x", "2 to the power of x"),
        torch=("exp2",),
        on_floats=OnFloats(
            numpy=np.exp2,
            derivative=lambda x, value: value * math.log(2),
            cuda=Cuda("exp2f", "exponential"),
            cost=4,
            never_negative=True,
        ),
    ),
    Operator(
        name="log",
        arity=1,
        function=Function("x", "the natural logarithm"),
        torch=("log",),
        on_floats=OnFloats(
            numpy=np.log,
            derivative=lambda x, value: 1.0 / x,
            cuda=Cuda("logf", "logarithm"),
            cost=8,
        ),
    ),
    Operator(
        name="log2",
        arity=1,
        function=Function("x", "the logarithm to the base 2"),
        torch=("log2",),
        on_floats=OnFloats(
            numpy=np.log2,
            derivative=lambda x, value: 1 / math.log(2) / x,
            cuda=Cuda("log2f", "logarithm"),
            cost=8,
        ),
    ),
    Operator(
        name="tanh",
        arity=1,
        function=Function("x", "the hyperbolic tangent"),
        torch=("tanh",),
        on_floats=OnFloats(
            numpy=np.tanh,
            derivative=lambda x, value: 1.0 - value * value,
            cuda=Cuda("tanh_branchless", "hyperbolic", "common/functions.cuh"),
            cost=12,
            at_most=1.0,
        ),
    ),
    Operator(
        name="sigmoid",
        arity=1,
        function=Function("x", "1 / (1 + exp(-x))"),
        torch=("sigmoid", "expit"),
        on_floats=OnFloats(
            numpy=meaning.sigmoid,
            derivative=lambda x, value: value * (1.0 - value),
            cuda=Cuda("sigmoid", "sigmoid_value", "common/functions.cuh"),
            cost=10,
            never_negative=True,
            at_most=1.0,
        ),
    ),
    Operator(
        name="erf",
        arity=1,
        function=Function("x", "the error function"),
        torch=("erf",),
        on_floats=OnFloats(numpy=meaning.erf, derivative=_erf_slope, cuda=Cuda("erff", "error"), cost=16, at_most=1.0),
    ),
    Operator(
        name="sqrt",
        arity=1,
        function=Function("x", "the square root"),
        torch=("sqrt",),
        on_floats=OnFloats(
            numpy=np.sqrt,
            derivative=lambda x, value: 0.5 / value,
            cuda=Cuda("sqrtf", "root"),
            cost=8,
            never_negative=True,
        ),
    ),
    Operator(
        name="sin",
        arity=1,
        function=Function("x", "the sine of x in radians"),
        torch=("sin",),
        on_floats=OnFloats(
            numpy=np.sin,
            derivative=lambda x, value: x.apply("cos"),
            cuda=Cuda("sine", "sine_value", "common/trigonometry.cuh"),
            cost=20,
            seldom=30,  # what large angles take
            at_most=1.0,
        ),
    ),
    Operator(
        name="cos",
        arity=1,
        function=Function("x", "the cosine of x in radians"),
        torch=("cos",),
        on_floats=OnFloats(
            numpy=np.cos,
            derivative=lambda x, value: -x.apply("sin"),
            cuda=Cuda("cosine", "cosine_value", "common/trigonometry.cuh"),
            cost=20,
            seldom=30,
            at_most=1.0,
        ),
    ),
    Operator(
        name="softplus",
        arity=1,
        function=Function("x", "log(1 + exp(x))"),
        torch=("softplus",),
        on_floats=OnFloats(
            numpy=meaning.softplus,
            derivative=lambda x, value: x.apply("sigmoid"),
            cuda=Cuda("softplus", "softplus_value", "common/activations.cuh"),
            cost=30,
            never_negative=True,
        ),
    ),
    Operator(
        name="silu",
        arity=1,
        function=Function("x", "x * sigmoid(x)"),
        torch=("silu", "swish"),
        on_floats=OnFloats(
            numpy=meaning.silu,
            derivative=_silu_slope,
            cuda=Cuda("silu", "silu_value", "common/activations.cuh"),
            cost=12,
        ),
    ),
    Operator(
        name="gelu",
        arity=1,
        function=Function("x", "x * (1 + erf(x / sqrt(2))) / 2"),
        torch=("gelu",),
        on_floats=OnFloats(
            numpy=meaning.gelu,
            derivative=_gelu_slope,
            cuda=Cuda("gelu", "gelu_value", "common/activations.cuh"),
            cost=30,
        ),
    ),
    Operator(
        name="gelu_tanh",
        arity=1,
        function=Function("x", "gelu by tanh: x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))) / 2"),
        torch=(),
        on_floats=OnFloats(
            numpy=meaning.gelu_tanh,
            derivative=_gelu_tanh_slope,
            cuda=Cuda("gelu_tanh", "gelu_value", "common/activations.cuh"),
            cost=18,
        ),
    ),
    Operator(
        name="floor",
        arity=1,
        gives=Type.INT,
        function=Function("x", "the greatest int that isn't above x"),
        torch=("floor",),
        on_floats=OnFloats(
            numpy=meaning.floor,
            derivative=None,
            cuda=Cuda("floor_to_int", "floored", "common/functions.cuh"),
            cost=4,
        ),
    ),
    Operator(
        name="round",
        arity=1,
        gives=Type.INT,
        function=Function("x", "the nearest int, of two the even one"),
        torch=("round",),
        on_floats=OnFloats(
            numpy=meaning.round_half_even,
            derivative=None,
            cuda=Cuda("round_to_int", "rounded", "common/rounding.cuh"),
            cost=4,
        ),
    ),
)

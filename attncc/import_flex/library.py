"""What the functions of torch, math, NumPy and FlexAttention mean, said in Python that the machine reads.

A function whose name begins with `_` is one that the machine itself knows: an operator of terms, or one of
`intrinsics.INTRINSICS`. `math_floor` is `math.floor` where that differs from `torch.floor`, `Tensor_where` a method.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from functools import cache

from ..operators import OPERATORS as LANGUAGE
from ..source import SourceFile, Span
from .terms import OPERATORS, Number
from .text import PythonText, parse_python
from .values import Library, Scope, Value

PRELUDE = """
def and_masks(*mask_mods):
    if not mask_mods:
        return noop_mask
    def mask(b, h, q_idx, kv_idx):
        return _reduce(lambda x, y: x & y, [mask_mod(b, h, q_idx, kv_idx) for mask_mod in mask_mods])
    return mask

def or_masks(*mask_mods):
    def mask(b, h, q_idx, kv_idx):
        return _reduce(lambda x, y: x | y, [mask_mod(b, h, q_idx, kv_idx) for mask_mod in mask_mods])
    return mask

def noop_mask(b, h, q_idx, kv_idx):
    return True

def create_block_mask(mask_mod, B=None, H=None, Q_LEN=None, KV_LEN=None, *more, **options):
    return mask_mod

create_mask = create_block_mask

def expm1(input): return _exp(input) - 1
def math_log(x, base=None): return _log(x) if base is None else _log(x) / _log(base)
def log10(input): return _log(input) / _log(10)
def log1p(input): return _log(1 + input)
def rsqrt(input): return 1 / _sqrt(input)
def tan(input): return _sin(input) / _cos(input)
def sinh(input): return (_exp(input) - _exp(-input)) / 2
def cosh(input): return (_exp(input) + _exp(-input)) / 2
def square(input): return input * input
def hypot(input, other): return _sqrt(input * input + other * other)
def reciprocal(input): return 1 / input

def relu(input): return _max(input, 0)
def softplus(input, beta=1, threshold=20):
    soft = _softplus(input) if beta == 1 else _softplus(input * beta) / beta
    return soft if threshold == 20 else _where(input * beta > threshold, input, soft)
def logsigmoid(input): return -_softplus(-input)
def mish(input): return input * _tanh(_softplus(input))
def gelu(input, approximate="none"):
    return _gelu(input) if approximate == "none" else _gelu_tanh(input)

def neg(input): return -input
def pos(input): return input
def add(input, other, alpha=1): return input + other if alpha == 1 else input + alpha * other
def sub(input, other, alpha=1): return input - other if alpha == 1 else input - alpha * other
def mul(input, other): return input * other
def div(input, other, rounding_mode=None):
    if rounding_mode is None:
        return input / other
    return input // other if rounding_mode == "floor" else _truncdiv(input, other)
def floor_divide(input, other): return input // other
def remainder(input, other): return input % other
def fmod(input, other): return input - _truncdiv(input, other) * other
def divmod(input, other): return input // other, input % other
def pow(input, exponent): return input ** exponent
def lerp(input, end, weight): return input + weight * (end - input)
def minimum(input, other): return _min(input, other)
def maximum(input, other): return _max(input, other)
def clamp(input, min=None, max=None):
    if min is None:
        return input if max is None else _min(input, max)
    return _max(input, min) if max is None else _clamp(input, min, max)
def clamp_min(input, min): return _max(input, min)
def clamp_max(input, max): return _min(input, max)
def ceil(input): return -_floor(-input)
def round(input, decimals=0):
    return _round(input) if decimals == 0 else _round(input * 10.0 ** decimals) / 10.0 ** decimals
def math_floor(x): return _to_int(_floor(x))
def math_ceil(x): return _to_int(-_floor(-x))
def trunc(input): return _truncate(input)

def any(input, dim=None, keepdim=False): return _over("any", input, dim, keepdim)
def all(input, dim=None, keepdim=False): return _over("all", input, dim, keepdim)
def sum(input, dim=None, keepdim=False, dtype=None): return _over("sum", input, dim, keepdim)
def mean(input, dim=None, keepdim=False, dtype=None): return _over("mean", input, dim, keepdim)
def amax(input, dim=None, keepdim=False): return _over("amax", input, dim, keepdim)
def amin(input, dim=None, keepdim=False): return _over("amin", input, dim, keepdim)
def max(input, other=None, dim=None, keepdim=False): return _extreme("max", input, other, dim)
def min(input, other=None, dim=None, keepdim=False): return _extreme("min", input, other, dim)
def unsqueeze(input, dim): return _unsqueeze(input, dim)
def squeeze(input, dim=None): return _squeeze(input, dim)
def dot(input, tensor): return _dot(input, tensor)
def isin(elements, test_elements): return _isin(elements, test_elements)
def bucketize(input, boundaries, right=False, **options): return _bucketize(input, boundaries, right)
def searchsorted(sorted_sequence, input, right=False, side="left", **options):
    return _bucketize(input, sorted_sequence, right or side == "right")
def arange(*bounds, dtype=None, **options): return _arange(*bounds)

def where(condition, input, other): return _where(condition, input, other)
def Tensor_where(self, condition, other): return _where(condition, self, other)
def masked_fill(input, mask, value): return _where(mask, value, input)

def eq(input, other): return input == other
def ne(input, other): return input != other
def lt(input, other): return input < other
def le(input, other): return input <= other
def gt(input, other): return input > other
def ge(input, other): return input >= other
def logical_and(input, other): return _logical_and(input, other)
def logical_or(input, other): return _logical_or(input, other)
def logical_not(input): return _logical_not(input)
def logical_xor(input, other): return _to_bool(input) ^ _to_bool(other)
def bitwise_and(input, other): return input & other
def bitwise_or(input, other): return input | other
def bitwise_xor(input, other): return input ^ other
def bitwise_not(input): return ~input
def bitwise_left_shift(input, other): return input << other
def bitwise_right_shift(input, other): return input >> other

negative = neg
positive = pos
subtract = sub
multiply = mul
divide = div
true_divide = truediv = div
floordiv = floor_divide
mod = remainder
power = float_power = pow
clip = clamp
fix = trunc
less = lt
less_equal = le
greater = gt
greater_equal = ge
equal = eq
not_equal = ne
and_ = bitwise_and
or_ = bitwise_or
xor = bitwise_xor
not_ = logical_not
invert = inv = bitwise_not
lshift = bitwise_left_shift
rshift = bitwise_right_shift

def Tensor_to(self, *where, dtype=None, device=None, **options): return _cast(self, dtype, *where)
def Tensor_type(self, dtype): return _cast(self, dtype)
def Tensor_type_as(self, other): return _cast(self, other.dtype)
def Tensor_float(self): return _to_float(self)
def Tensor_double(self): return _to_float(self)
def Tensor_half(self): return _to_float(self)
def Tensor_bfloat16(self): return _to_float(self)
def Tensor_int(self): return _to_int(self)
def Tensor_long(self): return _to_int(self)
def Tensor_bool(self): return _to_bool(self)
def Tensor_item(self): return self
def Tensor_clone(self): return _to_like(self, self)
def Tensor_contiguous(self): return self
def Tensor_new_ones(self, size, dtype=None, **options): return _full(size, 1, dtype)
def Tensor_new_zeros(self, size, dtype=None, **options): return _full(size, 0, dtype)
def Tensor_new_full(self, size, fill_value, dtype=None, **options): return _full(size, fill_value, dtype)
def Tensor_new_tensor(self, data, dtype=None, **options): return _tensor(data, dtype)

def tensor(data, dtype=None, **options): return _tensor(data, dtype)
as_tensor = asarray = scalar_tensor = tensor
def full(size, fill_value, dtype=None, **options): return _full(size, fill_value, dtype)
def ones(*size, dtype=None, **options): return _full(size, 1, dtype)
def zeros(*size, dtype=None, **options): return _full(size, 0, dtype)
def full_like(input, fill_value, dtype=None, **options): return _cast(fill_value, dtype)
def ones_like(input, dtype=None, **options): return _cast(1, input.dtype if dtype is None else dtype)
def zeros_like(input, dtype=None, **options): return _cast(0, input.dtype if dtype is None else dtype)
"""

_OVER_AXES = ("over", "extreme", "unsqueeze", "squeeze", "dot", "isin", "bucketize", "arange")

# Modules whose functions the prelude explains.
EXPLAINED = frozenset(
    {"torch", "math", "numpy", "operator", "builtins", "torch.nn.functional", "torch.special", "torch.Tensor",
     "torch.nn.attention.flex_attention"}
)  # fmt: skip

# Never read, wherever their files lie.
KNOWN = frozenset({"torch", "numpy", "math", "functools", "operator", "builtins", "itertools", "typing", "dataclasses"})

_OF_PYTHON = (
    *("abs", "all", "any", "bool", "divmod", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min"),
    *("pow", "print", "range", "reversed", "round", "sum", "tuple", "zip", "super", "getattr", "hasattr", "str"),
)
_OF_FLEX = ("and_masks", "or_masks", "noop_mask", "create_block_mask")

# What a name means in a file that doesn't say so: Python's own functions, and modules that a snippet leaves out.
IMPLIED = {
    **{name: f"builtins.{name}" for name in _OF_PYTHON},
    **{name: f"torch.nn.attention.flex_attention.{name}" for name in _OF_FLEX},
    **{"torch": "torch", "math": "math", "np": "numpy", "F": "torch.nn.functional"},
}

_CONSTANTS: dict[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf, "nan": math.nan}
_OF_MODULES = ("math", "torch", "numpy")
_LIMITS = {"float32": 3.4028234663852886e38, "bfloat16": 3.3895313892515355e38, "float16": 65504.0}

_ONE_PAIR = "a mod sees one pair at a time"
_REDUCE = f"{_ONE_PAIR}; over an axis of a captured tensor write any(t[b, i] == kv_idx for i in range(n))"
_NO_AXES = f"{_ONE_PAIR}, without axes: leave it out, or write any(t[b, i] == kv_idx for i in range(n))"
_BY_RANDOM = "for dropout of the probabilities, add `dropout 0.1` to the .attn file; other noise comes as an input"
_AS_PRODUCT = "a dot product for each pair belongs into q and k: append its vectors to theirs, as further head dims"

# What to write instead of functions that people use, and that have no place in a mod.
ADVICE: dict[str, str] = {
    "floor": "write torch.floor(x)",
    "pow": "write x * x, torch.exp2(y), torch.sqrt(x), or torch.exp(y * torch.log(x))",
    "isin": "compare with each element: any(t[i] == x for i in range(n))",
    **dict.fromkeys(("any", "all", "sum", "mean", "amax", "prod", "cumsum", "softmax", "stack", "cat"), _REDUCE),
    **dict.fromkeys(("max", "min"), "write torch.maximum(a, b) or torch.minimum(a, b)"),
    **dict.fromkeys(("dot", "matmul", "mm", "bmm", "einsum", "vdot", "inner"), _AS_PRODUCT),
    **dict.fromkeys(("rand", "randn", "rand_like", "randn_like", "randint", "bernoulli", "dropout"), _BY_RANDOM),
    **dict.fromkeys(("gather", "index_select", "take", "embedding"), "index the tensor: t[b, i]"),
    **dict.fromkeys(("view", "reshape", "unsqueeze", "squeeze", "expand"), _NO_AXES),
    **dict.fromkeys(("apply",), "write the function itself, as in torch.tanh(x): its gradient is derived"),
}
BRING_IT = "write it out in this file, or compute it outside of the mod and index the result"  # of all others
RANDOM = frozenset({"rand", "randn", "rand_like", "randn_like", "randint", "bernoulli", "dropout", "normal"})


def functions(run: Callable[[Sequence[ast.stmt], Scope], Value | None]) -> Scope:
    """The scope of the prelude, read by the machine that this is the `run` of."""
    scope = Scope(_prelude(), label="torch")
    own = (*OPERATORS, "cast", "full", "tensor", "reduce", "truncate", *_OVER_AXES)
    scope.names.update({f"_{name}": Library(f"attncc.{name}") for name in own})
    run(scope.text.statements, scope)
    return scope


@cache
def _prelude() -> PythonText:
    """With the functions that the language has, by the names in their records. They come last, and so replace what the
    prelude would compose; where it has options to say more of, it calls them itself."""
    with_options = re.findall(r"^def (\w+)\(\w+, ", PRELUDE, re.MULTILINE)
    names = [(name, item.name) for item in LANGUAGE.values() for name in item.torch if name not in with_options]
    own = [f"def {name}(input): return _{op}(input)\n" for name, op in names]
    return parse_python(SourceFile("<torch>", PRELUDE + "".join(own)))


def explanation(path: str, scope: Scope) -> str | None:
    """The prelude's name for a library function, if it has one."""
    module, _, name = path.rpartition(".")
    if module not in EXPLAINED:
        return None
    special = {"math": f"math_{name}", "torch.Tensor": f"Tensor_{name}"}.get(module, name)
    return next((found for found in (special, name) if found in scope.names and not found.startswith("_")), None)


def constant(path: str, span: Span) -> Number | None:
    """A number that a library defines: `math.pi`, `torch.inf`, `torch.finfo(torch.float32).min`."""
    module, _, name = path.rpartition(".")
    if module in _OF_MODULES and name in _CONSTANTS:
        return Number(value=_CONSTANTS[name], span=span)
    limit = _LIMITS.get(module.removeprefix("torch.finfo."))
    if limit is not None and name in ("min", "max"):
        return Number(value=-limit if name == "min" else limit, span=span)
    return None

"""What the definition of a captured tensor shows of its dtype, without running it."""

from __future__ import annotations

import ast

from ..operators import FLOAT_FUNCTIONS, OPERATORS

_DTYPES = {
    **dict.fromkeys(("bool", "bool_"), "bool"),
    **dict.fromkeys(("int8", "uint8", "int16", "short", "int32", "int"), "i32"),
    **dict.fromkeys(("int64", "long"), "i64"),
    **dict.fromkeys(("float16", "half"), "f16"),
    "bfloat16": "bf16",
    **dict.fromkeys(("float32", "float64", "float", "double"), "f32"),
}

# What functions give that are told no dtype.
_MADE_BY = {
    **dict.fromkeys(("rand", "randn", "linspace"), "f32"),
    **dict.fromkeys((name for function in FLOAT_FUNCTIONS for name in OPERATORS[function].torch), "f32"),
    **dict.fromkeys(("randint", "bincount", "argsort", "argmax", "searchsorted", "bucketize", "randperm"), "i64"),
    "arange": "i64",  # of ints
}
# Methods whose result has the shape of their tensor.
KEEP_SHAPE = frozenset(
    {"to", "cuda", "cpu", "contiguous", "clone", "detach", "requires_grad_", "int", "long", "bool", "float", "half",
     "bfloat16", "type", "type_as", "abs", "neg", "exp", "log", "sqrt", "sigmoid", "softmax", "cumsum"}
)  # fmt: skip
_OF_ARGUMENT = ("Parameter", "repeat_interleave")  # functions: of their first argument
_KEEPS_DTYPE = ("to", "cuda", "cpu", "contiguous", "clone", "detach", "flatten", "view", "reshape", *_OF_ARGUMENT)
_PROMOTED = ("bool", "i32", "i64", "f16", "bf16", "f32")  # of two, the later one


def dtype(node: ast.expr) -> str | None:
    """The `.attn` dtype of `torch.zeros(n, dtype=torch.int32)`, `x.to(torch.bool)`, `torch.randn(n)`, else None."""
    match node:
        case ast.Compare():
            return "bool"
        case ast.UnaryOp():
            return dtype(node.operand)
        case ast.BinOp():
            return _of_both(node)
        case ast.Call():
            return _of_call(node)
    return None


def _of_call(node: ast.Call) -> str | None:
    named = [item.value for item in node.keywords if item.arg == "dtype"]
    function = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if named or function == "to":
        found = next((kind for item in (*named, *node.args) if (kind := _DTYPES.get(_last(item)))), None)
        if found or named:
            return found
    if function in _DTYPES and isinstance(node.func, ast.Attribute) and not node.args:
        return _DTYPES[function]
    if function in _MADE_BY:
        return "f32" if function == "arange" and any(map(_is_float, node.args)) else _MADE_BY[function]
    if function not in _KEEPS_DTYPE:
        return None
    inner = node.args[0] if function in _OF_ARGUMENT and node.args else getattr(node.func, "value", node)
    return dtype(inner)


def _of_both(node: ast.BinOp) -> str | None:
    """Of arithmetic: the wider of two dtypes of one sort, as torch promotes them. A number makes ints floats alone."""
    sides = [dtype(side) for side in (node.left, node.right) if not isinstance(side, ast.Constant)]
    if None in sides or not sides:
        return None
    if {"f16", "bf16"} <= {*sides}:
        return "f32"
    widest = max(map(str, sides), key=_PROMOTED.index)
    if widest == "bool" and len(sides) == 1:  # beside a number
        widest = "i64"
    is_float = isinstance(node.op, ast.Div) or any(map(_is_float, (node.left, node.right)))
    return "f32" if is_float and widest in ("bool", "i32", "i64") else widest


def is_parameter(node: ast.expr) -> bool:
    """`nn.Parameter(...)`, or a tensor with `requires_grad=True`."""
    if not isinstance(node, ast.Call):
        return False
    wants = any(
        item.arg == "requires_grad" and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in node.keywords
    )
    return wants or names_parameter(node.func)


def names_parameter(node: ast.expr | None) -> bool:
    """`nn.Parameter`, called or as an annotation."""
    return _last(node) == "Parameter"


def _is_float(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float)


def _last(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""

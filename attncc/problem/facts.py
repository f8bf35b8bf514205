"""What a call is, told without any framework: neutral, hashable facts, so that a launcher can key a cache by them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from ..ir import Expr, Input, Let, Load, Local, Symbol, Variant, walk

# Names of element types are NumPy's (`str(array.dtype)`), which CuPy and torch share.
KERNEL_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "e4m3": "float8_e4m3fn"}
KV_DTYPES = {"e4m3": "float8_e4m3fn", "int8": "int8"}  # of k and v where q has 16 bits
OUT_DTYPES = {"e4m3": "bf16"}  # of outputs, where they have another than q, k and v
_OUT_OF = {KERNEL_DTYPES[q]: KERNEL_DTYPES[out] for q, out in OUT_DTYPES.items()}
# What probabilities are multiplied by before they are rounded to a type, so that small ones don't become 0.
PROB_UNITS = {"float8_e4m3fn": 2.0**8}
INPUT_DTYPES = {
    "bool": "bool", "i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32",
}  # fmt: skip

# Names that NumPy knows once ml_dtypes is there, and the bytes of an element: calls on a GPU do without it.
OF_ML_DTYPES = {"bfloat16": 2, "float8_e4m3fn": 1}

LAYOUTS = ("bhsd", "bshd")


def out_dtype(q_dtype: str) -> str:
    """The element type of out, by that of q."""
    return _OUT_OF.get(q_dtype, q_dtype)


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of this name, those of ml_dtypes too: only what reads arrays as NumPy's needs that."""
    if name not in OF_ML_DTYPES:
        return np.dtype(name)
    import ml_dtypes

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


class ArrayFacts(NamedTuple):
    """Shape and strides (in elements), element type (NumPy's name) and device ("cpu", "cuda:0") of one array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str = "cpu"


@dataclass(frozen=True)
class Signature:
    """What a kernel was built for, as far as its arguments go.

    `dtype` is one of `KERNEL_DTYPES`; None (the dense reference) takes any float for q, k, v and any width of the
    declared sort for inputs. `head_dim` None takes any.
    """

    variant: Variant
    dtype: str | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None

    @cached_property
    def inputs(self) -> dict[str, Input]:
        return {item.name: item for item in self.variant.inputs}

    @cached_property
    def positions_by_q_idx(self) -> tuple[str, ...]:
        """Inputs whose `pos` axis is indexed by q_idx itself, which is right only where q_len = kv_len."""
        return tuple(sorted({load.input for load in _loads(self.variant) if self._indexes_pos_by_q_idx(load)}))

    def _indexes_pos_by_q_idx(self, load: Load) -> bool:
        axes = self.inputs[load.input].axes
        lets = self.variant.lets
        return any(axis.tag == "pos" and _is_q_idx(index, lets) for axis, index in zip(axes, load.indices, strict=True))

    def input_dtypes(self, declared: Input) -> tuple[str, ...]:
        """The element types that an input may have: int64 stands for int32, too, whose values it then holds; fp64
        kernels (for gradient checks) also take float64 inputs."""
        exact = INPUT_DTYPES[declared.dtype]
        if self.dtype is None:
            return _SORTS[declared.type.value]
        if exact == "int32":
            return exact, "int64"
        return (exact, "float64") if self.dtype == "fp64" and declared.type.value == "float" else (exact,)


_SORTS = {
    "float": ("float32", "float64", "float16", "bfloat16"),
    "int": ("int32", "int64"),
    "bool": ("bool",),
}


def _loads(variant: Variant) -> list[Load]:
    roots = [
        statement.condition if hasattr(statement, "condition") else statement.value for statement in variant.statements
    ]
    return [node for node in walk(*roots) if isinstance(node, Load)]


def _is_q_idx(index: Expr, lets: dict[str, Let]) -> bool:
    while isinstance(index, Local):
        index = lets[index.name].value
    return isinstance(index, Symbol) and index.name == "q_idx"

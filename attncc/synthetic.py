"""Random arrays that suit a variant's declarations: what `attncc run`, `attncc show` and the tests work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .ir import Apply, Input, Keep, Load, Variant, reads, walk

Array = NDArray[Any]

NUMPY_DTYPES: dict[str, Any] = {
    "bool": np.bool_, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64,
}  # fmt: skip

POSITION_TAGS = ("q", "kv", "pos")
FREE_AXIS = 64  # length of an axis `_`
SEGMENTS = 6  # a nondecreasing input has about so many different values in a row


@dataclass(frozen=True)
class Sizes:
    """The run-time sizes of one call. In a packed call q_len and kv_len count all rows, batch the sequences."""

    batch: int = 1
    num_heads: int = 1
    num_kv_heads: int = 1
    q_len: int = 1
    kv_len: int = 1
    packed: bool = False

    def axis(self, tag: str | None) -> int:
        lengths = {
            "batch": self.batch,
            "head": self.num_heads,
            "kv_head": self.num_kv_heads,
            "q": self.q_len,
            "kv": self.kv_len,
            "pos": self.kv_len,
        }
        return FREE_AXIS if tag is None else lengths[tag]


def input_shape(declared: Input, sizes: Sizes) -> tuple[int, ...]:
    """The shape that an input has in a call; a packed call merges `batch` with a position axis."""
    tags = {axis.tag for axis in declared.axes}
    merged = sizes.packed and "batch" in tags and not tags.isdisjoint(POSITION_TAGS)
    axes = [axis for axis in declared.axes if not (merged and axis.tag == "batch")]
    return tuple(sizes.axis(axis.tag) if axis.length is None else axis.length for axis in axes)


def inputs(variant: Variant, sizes: Sizes, rng: np.random.Generator) -> dict[str, Array]:
    """One random array for each input of the variant, in its declared dtype; scalars are 0-d arrays."""
    return {item.name: _draw(variant, item, sizes, rng) for item in variant.inputs}


def qkv(
    sizes: Sizes, dtype: str, head_dim: int, value_head_dim: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Normal q, k and v in layout bhsd: [batch, heads, length, head dim], or [heads, length, head dim] if packed."""
    lead = () if sizes.packed else (sizes.batch,)
    shapes = (
        (*lead, sizes.num_heads, sizes.q_len, head_dim),
        (*lead, sizes.num_kv_heads, sizes.kv_len, head_dim),
        (*lead, sizes.num_kv_heads, sizes.kv_len, value_head_dim),
    )
    q, k, v = (rng.standard_normal(shape, np.float32).astype(NUMPY_DTYPES[dtype]) for shape in shapes)
    return q, k, v


def _draw(variant: Variant, declared: Input, sizes: Sizes, rng: np.random.Generator) -> Array:
    shape = input_shape(declared, sizes)
    return np.asarray(_values(variant, declared, shape, sizes, rng)).astype(NUMPY_DTYPES[declared.dtype])


def _values(variant: Variant, declared: Input, shape: tuple[int, ...], sizes: Sizes, rng: np.random.Generator) -> Any:
    if declared.dtype == "bool":
        return rng.random(shape) < 0.75
    if declared.dtype.startswith("i"):
        return _ints(variant, declared, shape, sizes, rng)
    if _is_dropout_rate(variant, declared.name):
        return 0.125
    magnitude = np.exp2(rng.uniform(0, 4, shape) if not shape else -rng.uniform(0, 8, shape))
    return np.sort(magnitude) if declared.nondecreasing else magnitude * (rng.choice((-1, 1), shape) if shape else 1)


def _ints(variant: Variant, declared: Input, shape: tuple[int, ...], sizes: Sizes, rng: np.random.Generator) -> Any:
    if declared.nondecreasing:
        steps = rng.random(shape) < SEGMENTS / max(shape[-1], SEGMENTS)
        return np.cumsum(steps, axis=-1)
    if _is_label(variant, declared.name):
        return rng.integers(0, 3, shape)
    return rng.integers(0 if shape else 1, sizes.kv_len + 1, shape)


def _is_label(variant: Variant, name: str) -> bool:
    """Whether the input is compared with itself for equality, as document or image numbers are."""
    roots = [item.condition if isinstance(item, Keep) else item.value for item in variant.statements]
    comparisons = [node for node in walk(*roots) if isinstance(node, Apply) and node.op in ("eq", "ne")]
    return any(all(name in reads(variant, arg) for arg in node.args) for node in comparisons)


def _is_dropout_rate(variant: Variant, name: str) -> bool:
    return isinstance(variant.dropout, Load) and variant.dropout.input == name

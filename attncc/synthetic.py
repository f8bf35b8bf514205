"""Random arrays that suit a variant's declarations: what `attncc run`, `attncc show` and the tests work on."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
from numpy.typing import NDArray

from .ir import Apply, Input, Keep, Load, Variant, reads, walk
from .problem.facts import INPUT_DTYPES, KERNEL_DTYPES
from .problem.inputs import passed_axes
from .problem.problem import Problem

Array = NDArray[Any]

FREE_AXIS = 64  # length of an axis `_`
SEGMENTS = 6  # a nondecreasing input has about so many different values in a row


def input_shape(declared: Input, problem: Problem) -> tuple[int, ...]:
    """The shape that an input has in a call; a packed call merges `batch` with a position axis."""
    lengths = {
        None: FREE_AXIS,
        "batch": problem.batch,
        "head": problem.num_heads,
        "kv_head": problem.num_kv_heads,
        "q": problem.q_len,
        "kv": problem.kv_len,
        "pos": problem.kv_len,
    }
    return tuple(lengths[a.tag] if a.length is None else a.length for a in passed_axes(declared, problem))


def inputs(variant: Variant, problem: Problem, rng: np.random.Generator) -> dict[str, Array]:
    """One random array for each input of the variant, in its declared dtype; scalars are 0-d arrays.

    Ints are positions in [0, kv_len], or few different numbers where the variant compares them with each other;
    floats have magnitudes from 1/256 to 1, scalars from 1 to 16.
    """
    return {item.name: _draw(variant, item, problem, rng) for item in variant.inputs}


def qkv(problem: Problem, dtype: str, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Normal q, k and v in the problem's layout and a kernel dtype such as `bf16`."""
    shapes = (
        problem.rows_shape(problem.num_heads, problem.q_len, problem.head_dim),
        problem.rows_shape(problem.num_kv_heads, problem.kv_len, problem.head_dim),
        problem.rows_shape(problem.num_kv_heads, problem.kv_len, problem.value_head_dim),
    )
    q, k, v = (rng.standard_normal(shape, np.float32).astype(KERNEL_DTYPES[dtype]) for shape in shapes)
    return q, k, v


def _draw(variant: Variant, declared: Input, problem: Problem, rng: np.random.Generator) -> Array:
    shape = input_shape(declared, problem)
    if declared.dtype == "bool":
        values: Any = rng.random(shape) < 0.75
    elif declared.dtype in ("i32", "i64"):
        values = _ints(variant, declared, shape, problem.kv_len, rng)
    else:
        values = _floats(variant, declared, shape, rng)
    return np.asarray(values).astype(INPUT_DTYPES[declared.dtype])


def _ints(variant: Variant, declared: Input, shape: tuple[int, ...], kv_len: int, rng: np.random.Generator) -> Any:
    if declared.nondecreasing:
        return np.cumsum(rng.random(shape) < SEGMENTS / max(shape[-1], SEGMENTS), axis=-1)
    if _is_label(variant, declared.name):
        return rng.integers(0, 3, shape)
    return rng.integers(0 if shape else min(1, kv_len), kv_len + 1, shape)


def _floats(variant: Variant, declared: Input, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    if isinstance(variant.dropout, Load) and variant.dropout.input == declared.name:
        return 0.125
    if not shape:
        return np.exp2(rng.uniform(0, 4))
    return np.exp2(-rng.uniform(0, 8, shape)) * rng.choice((-1, 1), shape)


def _is_label(variant: Variant, name: str) -> bool:
    """Whether the input is compared with itself for equality, as document or image numbers are."""
    roots = [item.condition if isinstance(item, Keep) else item.value for item in variant.statements]
    comparisons = [node for node in walk(*roots) if isinstance(node, Apply) and node.op in ("eq", "ne")]
    return any(all(name in reads(variant, arg) for arg in node.args) for node in comparisons)

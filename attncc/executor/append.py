"""`attncc.append` with NumPy arrays: new keys, rotated, and new values go to their places in a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem import Problem
from ..problem.quantized import scales_by_page
from ..problem.strides import zeros_like

Array = NDArray[Any]


def append(problem: Problem, arrays: Mapping[str, Array], *, interleaved: bool) -> Array | None:
    """Writes into `k_cache` and `v_cache`; the rotated q, if there is one. Sums are in fp32, in fp64 of such arrays.

    `arrays` are those of the call by name, `problem` its sizes, lengths known.
    """
    q = arrays.get("q")
    out = None if q is None else zeros_like(q.shape, q.dtype, q)
    for b, start, new, _, length, offset in problem.sequences():
        before = min(max(-offset, 0), new)  # rows that stand before the first key: padding
        rows, positions = slice(start + before, start + new), np.arange(offset + before, length)
        first, row = _places(problem, arrays.get("block_table"), b, positions)
        for name in ("k", "v"):
            x = _heads_first(problem, arrays[f"{name}_new"], b)[:, rows]
            x = x if name == "v" else _rotated(x, positions, arrays, interleaved)
            cache = arrays[f"{name}_cache"]
            heads_first = cache if problem.layout == "bhsd" else cache.swapaxes(1, 2)
            if cache.dtype != x.dtype:
                x = quantized(x, _scales(problem, arrays, name, b, positions), cache.dtype)
            heads_first[first, :, row] = x.swapaxes(0, 1)
        if q is not None and out is not None:
            x = _heads_first(problem, q, b)[:, rows]
            _heads_first(problem, out, b)[:, rows] = _rotated(x, positions, arrays, interleaved)
    return out


def _heads_first(problem: Problem, array: Array, b: int) -> Array:
    """A view [heads, rows, head dim] of a sequence's part of new rows; of a packed batch, those of all."""
    whole: Array = array if problem.packed else array[b]
    return whole if problem.layout == "bhsd" else whole.swapaxes(0, 1)


def _rotated(x: Array, positions: Array, arrays: Mapping[str, Array], interleaved: bool) -> Array:
    """[heads, rows, head dim] rotated at these positions (RoPE, Su et al. 2021, section 3.4.2)."""
    if "cos" not in arrays:
        return x
    wide = np.promote_types(x.dtype, np.float32)
    cos, sin = (arrays[name][positions].astype(wide) for name in ("cos", "sin"))
    pairs = cos.shape[-1]
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    if interleaved:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = x[..., first].astype(wide), x[..., second].astype(wide)
    result = x.copy()
    result[..., first] = a * cos - b * sin
    result[..., second] = b * cos + a * sin
    return result


def _scales(problem: Problem, arrays: Mapping[str, Array], name: str, b: int, positions: Array) -> Array:
    """[kv_heads, rows or 1, 1]: those of the sequence, or of the pages that the rows go to."""
    scale, pages = arrays.get(f"{name}_scale"), len(arrays[f"{name}_cache"])
    if scale is None:
        return np.ones((1, 1, 1), np.float32)
    if len(scale) == 1:
        return np.asarray(scale[0][:, None, None])
    if scales_by_page(scale, problem, pages):
        return np.asarray(scale[_places(problem, arrays.get("block_table"), b, positions)[0]].T[..., None])
    return np.asarray(scale[b][:, None, None])


def quantized(x: Array, scale: Array, dtype: np.dtype[Any]) -> Array:
    """x / scale in fp32, rounded to nearest, ties to even. What is too large becomes the largest number of the type; a
    NaN is 0 in int8."""
    with np.errstate(all="ignore"):
        numbers = x.astype(np.float32) / scale
        if dtype == np.int8:
            return np.rint(np.clip(np.nan_to_num(numbers, posinf=np.inf, neginf=-np.inf), -128, 127)).astype(dtype)
        return np.where(np.isnan(numbers), np.float32(np.nan), np.clip(numbers, -448, 448)).astype(dtype)


def _places(problem: Problem, table: Array | None, b: int, positions: Array) -> tuple[Any, Array]:
    """Where keys of a sequence are: on the first axis of the cache, and on that of rows."""
    if problem.page is None or table is None:
        return b, positions
    return table[b, positions // problem.page], positions % problem.page

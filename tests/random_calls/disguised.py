"""The same call in another form: layouts, strides, one K and V for all, int64, scalars as arrays, pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.random_variants.calls import RandomCall

Array = NDArray[Any]


@dataclass(frozen=True)
class CacheCall(RandomCall):
    """A dense call over a cache, or at other positions."""

    kv_lens: Array | None = None
    q_offset: Any = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {**super().arguments, "kv_lens": self.kv_lens, "q_offset": self.q_offset}


@dataclass(frozen=True)
class Disguised:
    """How a user makes the call. `undone` gives results of its form as those of the plain call."""

    arrays: tuple[Array, Array, Array]
    keywords: dict[str, Any]
    features: tuple[str, ...]
    bshd: bool
    paged: bool

    def form(self, array: Array) -> Array:
        """An array shaped as q of the plain call."""
        return array.swapaxes(-3, -2) if self.bshd else array

    undone = form  # the axes change places


def disguised(call: RandomCall, random: Random) -> Disguised:
    """Values that nobody may read are NaN."""
    features: list[str] = []

    def chance(name: str, share: float) -> bool:
        drawn = random.random() < share
        features.extend([name] * drawn)
        return drawn

    keywords = {name: _plain(name, value, chance) for name, value in call.arguments.items() if value is not None}
    k, v = call.k, call.v
    if isinstance(call, CacheCall) and call.kv_lens is not None:
        k, v = (_behind(array, call.kv_lens) for array in (k, v))
    paged = isinstance(call, CacheCall) and call.kv_lens is not None and chance("block_table", 0.6)
    if paged:
        k, v, keywords["block_table"] = _pages(k, v, keywords["kv_lens"], random)
    bshd = chance("bshd", 0.4)
    if bshd:
        keywords["layout"] = "bshd"
    arrays = tuple(_laid_out(array, bshd, chance) for array in (call.q, k, v))
    if call.cu is None and not paged and len(call.q) > 1 and all((a == a[:1]).all() for a in (k, v)):
        features.append("one k and v")
        arrays = arrays[0], arrays[1][:1], arrays[2][:1]
    if call.cu is not None:
        features.append("cu_seqlens")
    return Disguised((arrays[0], arrays[1], arrays[2]), keywords, tuple(features), bshd, paged)


def _plain(name: str, value: Any, chance: Callable[[str, float], bool]) -> Any:
    """Ints as torch has them, scalars as numbers or arrays."""
    if name == "seed":
        return np.array(value, np.int64) if chance("seed as an array", 0.4) else value
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype != np.float16 and chance("a number", 0.5):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype == np.int32 and chance("int64", 0.4):
        return value.astype(np.int64)
    return value


def _behind(array: Array, lengths: Array) -> Array:
    """With garbage behind the keys of each sequence."""
    array = array.copy()
    for sequence, length in enumerate(lengths):
        array[sequence, :, length:] = np.nan
    return array


def _pages(k: Array, v: Array, lengths: Array, random: Random) -> tuple[Array, Array, Array]:
    """Pools of pages in any order, some of nobody, and the table. It holds no pages behind a sequence's keys."""
    batch, heads, rows, _ = k.shape
    page = random.choice([size for size in range(1, rows + 1) if rows % size == 0])
    each = rows // page
    numbers = np.array(random.sample(range(batch * each + 3), batch * each), np.int32).reshape(batch, each)
    pools = []
    for array in (k, v):
        pool = np.full((batch * each + 3, heads, page, array.shape[-1]), np.nan, array.dtype)
        pool[numbers] = array.reshape(batch, heads, each, page, -1).swapaxes(1, 2)
        pools.append(pool)
    numbers[np.arange(each) * page >= lengths[:, None]] = random.choice((-1, 10**9))
    return pools[0], pools[1], numbers


def _laid_out(array: Array, bshd: bool, chance: Callable[[str, float], bool]) -> Array:
    """Shaped for the layout; in memory contiguous, heads and rows swapped, with gaps, or off by one element."""
    array = array.swapaxes(-3, -2) if bshd else array
    if chance("axes swapped in memory", 0.25):
        return np.ascontiguousarray(array.swapaxes(-3, -2)).swapaxes(-3, -2)
    if chance("gaps", 0.25):
        wide = np.full((*array.shape[:-2], 2 * array.shape[-2], array.shape[-1] + 8), np.nan, array.dtype)
        wide[..., ::2, : array.shape[-1]] = array
        return wide[..., ::2, : array.shape[-1]]
    if chance("off by one element", 0.25):
        flat = np.full(array.size + 1, np.nan, array.dtype)
        flat[1:] = array.ravel()
        return flat[1:].reshape(array.shape)
    return np.ascontiguousarray(array)

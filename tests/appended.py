"""Calls of `attncc.append` for tests: caches full of NaN, sequences of all lengths, in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attncc.problem.facts import KERNEL_DTYPES, KV_DTYPES, numpy_dtype

Array = NDArray[Any]
ROOM = 40
LENGTHS = (ROOM, 13, 3, 0, 7)  # after the call
NEW = (9, 13, 0, 0, 1)  # rows of each sequence, where they are packed
DENSE_NEW = 5  # of each sequence, elsewhere: some are padding


class Case(NamedTuple):
    dtype: str = "bf16"
    page: int | None = None  # rows of a page
    packed: bool = False
    layout: str = "bhsd"
    rotary_dim: int | None = None
    interleaved: bool = False
    angles: str = "fp32"
    with_q: bool = True
    head_dim: int = 32
    value_head_dim: int = 48
    kv_dtype: str | None = None  # of a cache of 8 bits

    @property
    def name(self) -> str:
        return "-".join(f"{name}_{value}" for name, value in self._asdict().items())


def angles(case: Case, positions: int = ROOM) -> tuple[Array, Array]:
    """cos and sin of all positions."""
    assert case.rotary_dim is not None
    frequencies = 100.0 ** -(np.arange(0, case.rotary_dim, 2) / case.rotary_dim)
    turns = np.arange(positions)[:, None] * frequencies
    dtype = numpy_dtype(KERNEL_DTYPES[case.angles])
    return np.cos(turns).astype(dtype), np.sin(turns).astype(dtype)


def arrays_of(case: Case, seed: int = 0) -> dict[str, Any]:
    """The arguments of a call. Tables name pages in any order, and -1 where no key will be."""
    rng, dtype = np.random.default_rng(seed), numpy_dtype(KERNEL_DTYPES[case.dtype])

    def shaped(heads: int, rows: int, columns: int, *lead: int) -> tuple[int, ...]:
        return (*lead, heads, rows, columns) if case.layout == "bhsd" else (*lead, rows, heads, columns)

    def new(heads: int, columns: int) -> Array:
        lead, rows = ((), sum(NEW) + 2) if case.packed else ((len(LENGTHS),), DENSE_NEW)
        return rng.standard_normal(shaped(heads, rows, columns, *lead), np.float32).astype(dtype)

    dims, given = (case.head_dim, case.value_head_dim), {"kv_lens": np.int32(LENGTHS)}
    given |= {"k_new": new(2, dims[0]), "v_new": new(2, dims[1])}
    rows, lead = ROOM, len(LENGTHS)
    if case.page is not None:
        used = [-(-length // case.page) for length in LENGTHS]
        table = np.full((lead, -(-ROOM // case.page)), -1, np.int32)
        numbers = iter(rng.permutation(sum(used) + 3))
        for b, count in enumerate(used):
            table[b, :count] = [next(numbers) for _ in range(count)]
        rows, lead = case.page, sum(used) + 3
        given["block_table"] = table
    for name, columns in zip(("k_cache", "v_cache"), dims, strict=True):
        given[name] = np.full(shaped(2, rows, columns, lead), np.nan, np.float32).astype(dtype)
    if case.packed:
        given["cu_seqlens_q"] = np.cumsum((0, *NEW)).astype(np.int32)  # two more rows are no sequence's
    if case.with_q and case.rotary_dim is not None:
        given["q"] = new(6, dims[0])
    if case.kv_dtype is not None:
        given |= _in_8_bits(case.kv_dtype, given, rng)
    return given


def _in_8_bits(kv_dtype: str, given: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The caches, full of NaN or 99, a scale for each sequence or page. Some new rows are no numbers, or too large."""
    made: dict[str, Any] = {}
    for name in "kv":
        cache = given[f"{name}_cache"]
        made[f"{name}_cache"] = np.full(
            cache.shape, np.nan if kv_dtype == "e4m3" else 99, numpy_dtype(KV_DTYPES[kv_dtype])
        )
        rows = len(cache) if "block_table" in given else len(LENGTHS)
        made[f"{name}_scale"] = rng.uniform(0.004, 0.05, (rows, 2)).astype(np.float32)
        given[f"{name}_new"].reshape(-1)[rng.permutation(given[f"{name}_new"].size)[:9]] = [
            np.nan, np.inf, -np.inf, 1e4, -1e4, 0.0, -0.0, 1e-4, -1e-4,
        ]  # fmt: skip
    return made


def options(case: Case) -> dict[str, Any]:
    rotary = None if case.rotary_dim is None else angles(case)
    return {"rotary": rotary, "interleaved": case.interleaved, "layout": case.layout}


def keys_of(case: Case, given: dict[str, Any], name: str) -> list[Array]:
    """A cache by sequences, all that there is room for: [heads, rows, head dim]; NaN where there is no page."""
    cache = given[name] if case.layout == "bhsd" else given[name].swapaxes(1, 2)
    if case.page is None:
        return list(cache)
    nothing = np.full_like(cache[:1], np.nan)
    pools = np.concatenate([cache, nothing])  # of page -1
    return [pools[pages].swapaxes(0, 1).reshape(cache.shape[1], -1, cache.shape[-1]) for pages in given["block_table"]]

"""Caches of 8 bits beside q of 16: k and v are e4m3 or int8, and stand for their numbers times a scale of each head.

A scale belongs to a sequence, [batch, kv_heads], or to a page of a pool, [pages, kv_heads]; one row serves all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .call_arguments import Call
from .facts import KERNEL_DTYPES, KV_DTYPES, ArrayFacts
from .problem import Problem, Sequence
from .refusal import refused, shape_text

SCALES = ("k_scale", "v_scale")
Q_DTYPES = tuple(KERNEL_DTYPES[name] for name in ("fp16", "bf16"))
_NAMES = {name: short for short, name in KV_DTYPES.items()}

Array = NDArray[Any]


def kv_dtype(q: ArrayFacts, k: ArrayFacts) -> str | None:
    """`e4m3` or `int8` where k and v are such a cache; None where they have q's type."""
    return None if k.dtype == q.dtype else _NAMES.get(k.dtype)


def cache_dtypes(dtype: str | None) -> tuple[str, ...]:
    """The element types, NumPy's names, that k and v may have besides q's, in calls of a kernel of this dtype."""
    return tuple(KV_DTYPES.values()) if dtype is None or KERNEL_DTYPES[dtype] in Q_DTYPES else ()


def check_quantized(call: Call, problem: Problem) -> None:
    """AttnccError A604 where k and v have two types, A629 for scales of what has none, or that don't fit."""
    narrow = kv_dtype(call.q, call.k)
    if kv_dtype(call.q, call.v) != narrow:
        raise refused(
            "A604",
            "`v` has another element type than `k`",
            expected=call.k.dtype,
            came=call.v.dtype,
            help="a cache of 8 bits holds k and v in one type",
        )
    scales = {name: facts for name in SCALES if (facts := getattr(call, name)) is not None}
    for name, facts in scales.items():
        if narrow is None:
            raise refused(
                "A629",
                f"`{name}` comes with a cache that has no scales",
                expected=f"k and v in {' or '.join(KV_DTYPES.values())}",
                came=call.k.dtype,
                help="leave it out, or multiply k or v before",
            )
        check_scales(name, facts, problem, call.k.shape[0])
    if len({facts.shape[0] for facts in scales.values()} - {1}) > 1:
        came = " and ".join(shape_text(facts.shape) for facts in scales.values())
        raise refused(
            "A629",
            "`k_scale` and `v_scale` don't go together",
            expected="one of sequences or pages for both",
            came=came,
        )


def check_scales(name: str, facts: ArrayFacts, problem: Problem, pages: int) -> None:
    """AttnccError A629 for scales of other sequences or pages than there are, of an array that `check_array` allows."""
    if facts.shape[0] in ({1, problem.batch} if problem.page is None else {1, problem.batch, pages}):
        return
    heads = problem.num_kv_heads
    by_page = "" if problem.page is None else f", or [pages, kv_heads] = [{pages}, {heads}]"
    raise refused(
        "A629",
        f"`{name}` doesn't fit the cache",
        expected=f"[batch, kv_heads] = [{problem.batch}, {heads}]{by_page}, or [1, {heads}], which serves all",
        came=f"shape {shape_text(facts.shape)}",
    )


def scales_by_page(scale: ArrayFacts | Array, problem: Problem, pages: int) -> bool:
    """Whether rows of scales belong to pages. Where a pool has as many pages as the batch sequences, they do."""
    return problem.page is not None and scale.shape[0] == pages


def scales_of_keys(scale: Array, problem: Problem, sequence: Sequence, table: Array | None, pages: int) -> Array:
    """The scale of each key head and key of a sequence: [kv_heads, kv_len], or [kv_heads, 1] where all have one."""
    if len(scale) == 1:
        return np.asarray(scale[0][:, None])
    if not scales_by_page(scale, problem, pages):
        return np.asarray(scale[sequence.b][:, None])
    assert problem.page is not None and table is not None
    used = table[sequence.b, : -(-sequence.kv_len // problem.page)]
    each: Array = np.repeat(scale[used], problem.page, axis=0)[: sequence.kv_len]
    return each.T

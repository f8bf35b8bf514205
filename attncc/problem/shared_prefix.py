"""Calls whose sequences share their first keys: which can, and whether it is true, which the CPU looks at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .call_arguments import Call
from .facts import KERNEL_DTYPES, Signature
from .problem import Problem
from .quantized import kv_dtype
from .refusal import refused

MOST_HEAD_DIM = 256  # beyond, rows of O are shared by warps, and no kernel merges a prefix with its own keys

Array = NDArray[Any]


def check_shared_prefix(signature: Signature, call: Call, problem: Problem) -> None:
    """AttnccError A631 for what is no number of keys, for more than there is room for, and for calls that can't share
    any."""
    given: object = call.shared_prefix
    if type(given) is not int or given < 0:
        expected = "an int: how many keys all sequences share, 0 for none"
        came = f"{type(given).__name__} {given!r:.40}"
        raise refused("A631", "`shared_prefix` can't be used", expected=expected, came=came)
    if given > problem.kv_len:
        expected = f"at most {problem.kv_len}, the keys that there is room for"
        raise refused("A631", "`shared_prefix` is too large", expected=expected, came=given)
    if given:
        for applies, what, expected in _lacking(signature, call):
            if applies:
                raise refused(
                    "A631",
                    f"`shared_prefix` doesn't go with {what}",
                    expected=expected,
                    came=f"shared_prefix={given}",
                    help="leave `shared_prefix` out: results are the same",
                )


def _lacking(signature: Signature, call: Call) -> tuple[tuple[bool, str, str], ...]:
    """Whether a call is one of those that share no prefix, what it has, and what it would need."""
    return (
        (call.kv_lens is None, "calls without a cache", "kv_lens, and block_table where the cache has pages"),
        (call.cu_seqlens_q is not None, "packed queries", "q with a batch axis: as many queries of each sequence"),
        (call.q_offset is not None, "`q_offset`", "queries at the last keys of each sequence"),
        (kv_dtype(call.q, call.k) is not None, "caches of 8 bits", "k and v in q's type"),
        *_lacked_by_kernels(signature, call.q.dtype, max(call.q.shape[-1], call.v.shape[-1])),
    )


def _lacked_by_kernels(signature: Signature, dtype: str, head_dim: int) -> tuple[tuple[bool, str, str], ...]:
    """The same, as far as it depends on no argument of calls."""
    variant = signature.variant
    scale = () if variant.scale is None else _names(variant.scale)
    return (
        (variant.dropout is not None, "dropout", "a variant without dropout"),
        (dtype == "float8_e4m3fn", "kernels of e4m3", "fp16, bf16 or fp32"),
        (head_dim > MOST_HEAD_DIM, f"head dims above {MOST_HEAD_DIM}", "smaller head dims"),
        ("kv_len" in scale, "a scale that depends on kv_len", "a scale that is the same for all sequences"),
    )


def may_share(signature: Signature) -> bool:
    """Whether any call of kernels built for these may share a prefix: packages have such kernels then."""
    assert signature.dtype is not None and signature.head_dim is not None and signature.value_head_dim is not None
    head_dim = max(signature.head_dim, signature.value_head_dim)
    lacked = _lacked_by_kernels(signature, KERNEL_DTYPES[signature.dtype], head_dim)
    return not any(applies for applies, _, _ in lacked)


def _names(scale: Any) -> frozenset[str]:
    from ..ir import Symbol, walk

    return frozenset(node.name for node in walk(scale) if isinstance(node, Symbol))


def check_prefix(problem: Problem, k: Array, v: Array, table: Array | None) -> None:
    """AttnccError A631 where a sequence has too few keys, or its first aren't those of sequence 0. The host must know
    the lengths."""
    count = problem.shared_prefix
    if not count or not problem.batch:
        return
    assert problem.kv_lens is not None
    least = count + problem.q_len
    for b, length in enumerate(problem.kv_lens):
        if length < least:
            raise refused(
                "A631",
                f"sequence {b} is too short for `shared_prefix`",
                expected=f"at least {least} keys: {count} shared ones, and one for each query",
                came=f"kv_lens[{b}] = {length}",
            )
    for name, array in (("k", k), ("v", v)):
        first = _first_keys(array, 0, problem, table)
        for b in range(1, problem.batch):
            if not _same(first, _first_keys(array, b, problem, table)):
                raise refused(
                    "A631",
                    f"the first {count} rows of `{name}` aren't the same in all sequences",
                    expected="those of sequence 0, which are read for all",
                    came=f"others in sequence {b}",
                )


def _first_keys(array: Array, b: int, problem: Problem, table: Array | None) -> Array:
    """The shared rows of k or v as a sequence has them: [length, heads, head dim]."""
    count, heads_first = problem.shared_prefix, problem.layout == "bhsd"
    if problem.page is None:
        rows: Array = array[b if len(array) > 1 else 0]
        return (rows.swapaxes(0, 1) if heads_first else rows)[:count]
    assert table is not None
    pages: Array = array[table[b, : -(-count // problem.page)]]
    joined = pages.swapaxes(1, 2) if heads_first else pages
    return joined.reshape(-1, *joined.shape[2:])[:count]


def _same(a: Array, b: Array) -> bool:
    """Bit for bit."""
    return a is b or np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()

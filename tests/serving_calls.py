"""Calls as serving makes them, with each argument that is for it: built packages must treat them as `attncc.compile`.

Needs NumPy and ml_dtypes alone, so that a process without attncc can make them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

SPEC = """attn 1
variant sloped {
    input slope: f32[head]
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx)
}
variant tree {
    input ancestors: i64[batch, q]
    let node = kv_idx - (kv_len - q_len)
    keep if node < 0 or node <= q_idx < 64 and ancestors[b, q_idx] >> node & 1 == 1
}
# Bits of a sequence don't depend on the rest of its batch.
variant ordered { keep if q_pos >= kv_idx }
schedule fixed for ordered decode on sm_80 { split_kv = 3 }
schedule fixed_on_hopper for ordered decode on sm_90 { split_kv = 3 }
"""
VARIANTS = ("sloped", "tree", "ordered")
_ASKED: dict[str, Any] = {"dtypes": ["fp16"], "head_dims": [64], "serving": True}
# What `attncc.package.prepare` is asked for.
BUILDS: tuple[dict[str, Any], ...] = (
    {**_ASKED, "variants": ["sloped"], "kv_dtypes": ["int8", "e4m3"]},
    {**_ASKED, "variants": ["tree", "ordered"]},
)

BATCH, HEADS, KV_HEADS, ROWS, ROOM, PAGE, D = 3, 4, 2, 2, 320, 16, 64
PREFIX = 160  # of two tiles, and half of one
LENGTHS = (320, 163, 200)
ANGLES = 16  # the rotary dim is twice that

Given = dict[str, Any]


class Row(NamedTuple):
    """A call: of which variant, with which arguments beside q, k and v."""

    variant: str
    given: Given
    code: str | None = None  # of the error, on the CPU and on a GPU; None: it runs

    def operands(self) -> tuple[Any, Any, Any, Given]:
        """q, k, v and all other arguments, in arrays of their own: calls write some."""
        arguments = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in self.given.items()}
        q, k, v = (arguments.pop(name) for name in "qkv")
        return q, k, v, arguments


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(np.float16)


@cache
def _cache(dtype: str) -> tuple[Any, Any]:
    """k and v, whose sequences share their first keys; behind their last there is what must not be read."""
    found = []
    for seed in (1, 2):
        rows = normal(seed, BATCH, KV_HEADS, ROOM, D)
        rows[1:, :, :PREFIX] = rows[:1, :, :PREFIX]
        if dtype != "float16":
            rows = (16 * rows).astype(ml_dtypes.float8_e4m3fn if dtype == "e4m3" else np.int8)
        for b, length in enumerate(LENGTHS):
            rows[b, :, length:] = np.nan if dtype == "float16" else 100
        found.append(rows)
    return found[0], found[1]


@cache
def _pages() -> Any:
    """The table: pages in some order, the first the same ones of all sequences, and -1 behind the last."""
    count, shared = ROOM // PAGE, PREFIX // PAGE
    table = np.random.default_rng(3).permutation(BATCH * count).reshape(BATCH, count).astype(np.int32)
    table[1:, :shared] = table[0, :shared]
    for b, length in enumerate(LENGTHS):
        table[b, -(-length // PAGE) :] = -1
    return table


def _pool(rows: Any) -> Any:
    pool = np.full((BATCH * (ROOM // PAGE), KV_HEADS, PAGE, D), 0, rows.dtype)
    for b, line in enumerate(_pages()):
        for number, page in enumerate(line):
            if page >= 0:
                pool[page] = rows[b, :, number * PAGE : (number + 1) * PAGE]
    return pool


def call(*, paged: bool = False, layout: str = "bhsd", dtype: str = "float16", rows: int = ROWS, **more: Any) -> Given:
    """A call over a cache; `more` are further arguments, None to leave one out."""
    k, v = _cache(dtype)
    given: Given = {"q": normal(4, BATCH, HEADS, rows, D), "kv_lens": np.int32(LENGTHS), "layout": layout}
    if paged:
        k, v, given["block_table"] = _pool(k), _pool(v), _pages()
    given |= {"k": k, "v": v}
    if layout == "bshd":
        given |= {name: np.ascontiguousarray(given[name].swapaxes(1, 2)) for name in "qkv"}
    return {name: value for name, value in {**given, **more}.items() if value is not None}


def packed(*, rows: tuple[int, ...] = (1, 40, 3), **changed: Any) -> Given:
    """A chunk of a prompt beside single tokens."""
    starts = np.cumsum((0, *rows), dtype=np.int32)
    return call(cu_seqlens_q=starts, **changed) | {"q": normal(5, HEADS, sum(rows), D)}


def scales(paged: bool) -> Given:
    rows = BATCH * (ROOM // PAGE) if paged else BATCH
    random = np.random.default_rng(6)
    return {name: random.random((rows, KV_HEADS), np.float32) / 8 for name in ("k_scale", "v_scale")}


def new(layout: str = "bhsd", rows: int = ROWS) -> Given:
    fresh = {name: normal(seed, BATCH, KV_HEADS, rows, D) for name, seed in (("k_new", 7), ("v_new", 8))}
    return {name: np.ascontiguousarray(x.swapaxes(1, 2)) if layout == "bshd" else x for name, x in fresh.items()}


def rotary() -> Given:
    angles = np.arange(ROOM)[:, None] * 1e4 ** (-np.arange(ANGLES) / ANGLES)
    return {"rotary": (np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))}


def tree() -> Given:
    ancestors = np.int64([0b1, 0b11, 0b101, 0b1011])
    return {"ancestors": np.stack([ancestors] * BATCH)}


SLOPE: Given = {"slope": np.float32([0.0, 0.01, 0.02, 0.03])}


def used() -> Iterator[tuple[str, str, Given]]:
    """By name, variant and arguments: those that run."""
    of_scores = SLOPE
    for paged in (False, True):
        for layout in ("bhsd", "bshd"):
            where: Given = {"paged": paged, "layout": layout}
            name = f"{'pages' if paged else 'kv_lens'} {layout}"
            yield name, "sloped", call(**where, **of_scores)
            yield f"{name}, many rows", "sloped", call(**where, rows=80, **of_scores)
            yield f"{name}, shared_prefix", "sloped", call(**where, shared_prefix=PREFIX, **of_scores)
            yield f"{name}, k_new", "sloped", call(**where, **new(layout), **of_scores)
            for turned in (False, True):
                turns = {**rotary(), "interleaved": turned}
                yield f"{name}, rotary {turned}", "sloped", call(**where, **new(layout), **turns, **of_scores)
            for dtype in ("int8", "e4m3"):
                yield f"{name}, {dtype}", "sloped", call(**where, dtype=dtype, **scales(paged), **of_scores)
                appended = {**new(layout), **scales(paged)}
                yield f"{name}, {dtype}, k_new", "sloped", call(**where, dtype=dtype, **appended, **of_scores)
        pages = " in pages" * paged
        yield f"cu_seqlens_q{pages}", "sloped", packed(paged=paged, **of_scores)
        yield f"tree{pages}", "tree", call(paged=paged, rows=4, **tree())
        yield f"tree, shared_prefix{pages}", "tree", call(paged=paged, rows=4, shared_prefix=PREFIX - 1, **tree())
        yield f"ordered{pages}", "ordered", call(paged=paged)
        yield f"ordered, shared_prefix{pages}", "ordered", call(paged=paged, shared_prefix=PREFIX)
        yield f"q_offset{pages}", "sloped", call(paged=paged, q_offset=150, **of_scores)
        yield f"q_offsets{pages}", "sloped", call(paged=paged, q_offset=np.int32([150, 9, 200]), **of_scores)
        yield (
            f"shared_prefix, new rows{pages}",
            "sloped",
            call(paged=paged, shared_prefix=PREFIX, **new(), **rotary(), **of_scores),
        )
        yield f"a prefix of less than a tile{pages}", "sloped", call(paged=paged, shared_prefix=9, **of_scores)
        everything = {"return_lse": True, "out": np.zeros((BATCH, HEADS, ROWS, D), np.float16), "scale": 0.25}
        yield f"lse, out, scale{pages}", "sloped", call(paged=paged, **everything, **of_scores)
        eight_bits = {"dtype": "e4m3", **scales(paged)}
        yield f"lse, out, scale, e4m3{pages}", "sloped", call(paged=paged, **eight_bits, **everything, **of_scores)
        yield (
            f"lse, out, scale, shared_prefix{pages}",
            "sloped",
            call(paged=paged, shared_prefix=PREFIX, **everything, **of_scores),
        )
    finite = dict(zip("kv", map(np.nan_to_num, _cache("float16")), strict=True))  # without lengths all of it is read
    yield "q_offset alone", "sloped", call(q_offset=150, kv_lens=None, **of_scores) | finite
    yield "int64", "sloped", call(paged=True, **of_scores) | {
        "kv_lens": np.int64(LENGTHS), "block_table": _pages().astype(np.int64)
    }  # fmt: skip


def refused() -> Iterator[tuple[str, str, Given, str]]:
    """The same of those that don't, and the code of the error."""
    prefix = {"shared_prefix": PREFIX}
    wrong: tuple[tuple[str, Callable[..., Given], Given, str], ...] = (
        ("prefix that is no int", call, {"shared_prefix": 2.5}, "A631"),
        ("prefix below 0", call, {"shared_prefix": -1}, "A631"),
        ("prefix beyond the room", call, {"shared_prefix": ROOM + 1}, "A631"),
        ("prefix without lengths", call, {**prefix, "kv_lens": None}, "A631"),
        ("prefix with q_offset", call, {**prefix, "q_offset": 3}, "A631"),
        ("prefix with packed queries", packed, prefix, "A631"),
        ("prefix of 8 bits", call, {**prefix, "dtype": "int8", **scales(False)}, "A631"),
        ("pages without lengths", call, {"paged": True, "kv_lens": None}, "A625"),
        ("lengths of floats", call, {"kv_lens": np.float32(LENGTHS)}, "A625"),
        ("lengths of others", call, {"kv_lens": np.int32([1, 2])}, "A625"),
        ("a table of one row", call, {"paged": True, "block_table": np.int32([[0, 1]])}, "A625"),
        ("q_offset of a float", call, {"q_offset": 1.5}, "A626"),
        ("q_offset of others", call, {"q_offset": np.int32([1, 2])}, "A626"),
        ("scales of 16 bits", call, scales(False), "A629"),
        ("scales of others", call, {"dtype": "int8", "k_scale": np.ones((7, KV_HEADS), np.float32)}, "A629"),
        ("k_new alone", call, {"k_new": new()["k_new"]}, "A628"),
        ("k_new without lengths", call, {**new(), "kv_lens": None}, "A628"),
        ("rotary alone", call, rotary(), "A628"),
        ("interleaved alone", call, {"interleaved": True}, "A628"),
        ("interleaved without rotary", call, {**new(), "interleaved": True}, "A627"),
        ("rotary that is no pair", call, {**new(), "rotary": 3}, "A627"),
        ("k_new with q_offset", call, {**new(), "q_offset": 3}, "A628"),
        ("interleaved that is no bool", call, {**new(), **rotary(), "interleaved": 3}, "A627"),
        ("out of another shape", call, {"out": np.zeros((2, 3), np.float16)}, "A617"),
        ("a scale that is a text", packed, {"scale": "1"}, "A619"),
    )
    for name, make, given, code in wrong:
        yield name, "sloped", make(**given, **SLOPE), code


ROWS_BY_NAME = {name: Row(variant, given) for name, variant, given in used()}
ROWS_BY_NAME |= {name: Row(variant, given, code) for name, variant, given, code in refused()}
ARGUMENTS = {name for row in ROWS_BY_NAME.values() for name in row.given} - {"q", "k", "v", "slope", "ancestors"}


def tensor(value: Any) -> Any:
    """torch's tensor of an array's memory, for each array of a tuple; all else as it is."""
    import torch

    if isinstance(value, tuple):
        return tuple(map(tensor, value))
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "float8_e4m3fn":
        return torch.from_numpy(value.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(value)

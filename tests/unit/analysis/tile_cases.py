"""For the tests of the mask analysis: variants from a few lines, and rules evaluated on tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attncc.analysis.algebra.algebra import Algebra
from attncc.analysis.algebra.canonical import Canonical
from attncc.analysis.mask.box import Box
from attncc.analysis.mask.min_max_tables import MinMaxTables
from attncc.analysis.rules import TileRules
from attncc.evaluate import Array, Environment, evaluate
from attncc.ir import Apply, Expr, Variant
from attncc.semantics.load import load
from attncc.source import SourceFile


def variant_of(*lines: str) -> Variant:
    """A variant with these lines in its body."""
    return load(SourceFile("test.attn", "\n".join(["attn 1", "variant v {", *lines, "}"]))).variants[0]


def box_of(variant: Variant, block_q: int, block_kv: int) -> tuple[Box, Canonical]:
    algebra = Algebra(variant, block_q, block_kv)
    box = Box(variant, algebra, block_q, block_kv, MinMaxTables.for_tiles(block_q, block_kv))
    return box, Canonical(algebra, variant.lets)


def int_of(variant: Variant) -> Expr:
    """The left side of the variant's only keep line, a comparison of ints."""
    condition = variant.keeps[0].condition
    assert isinstance(condition, Apply)
    return condition.args[0]


def environment(q_len: int, kv_len: int, inputs: Mapping[str, Array] | None = None, **symbols: object) -> Environment:
    """One head of one dense sequence, without positions."""
    arrays = dict(inputs or {})
    known: dict[str, object] = {
        "b": 0, "h": 0, "kv_h": 0, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "scale": 0.125,
        "q_len": q_len, "kv_len": kv_len, "q_start": 0, "kv_start": 0, "q_offset": kv_len - q_len, **symbols,
    }  # fmt: skip
    for name, array in arrays.items():
        known |= {f"{name}__size{axis}": size for axis, size in enumerate(array.shape)}
    return Environment(known, arrays)


def tables(made: MinMaxTables, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The min/max tables that rules read, made of whole arrays."""
    found = {}
    for table in made.used.values():
        array = inputs[table.input]
        starts = np.arange(0, array.shape[-1], table.block)
        found[table.min_name] = np.minimum.reduceat(array, starts, axis=-1)
        found[table.max_name] = np.maximum.reduceat(array, starts, axis=-1)
    return found


def mask_of(variant: Variant, seen: Environment) -> Array:
    """bool [q_len, kv_len], straight from the keep lines."""
    q_len, kv_len = (int(seen.symbols[name]) for name in ("q_len", "kv_len"))
    q_idx, kv_idx = np.arange(q_len)[:, None], np.arange(kv_len)[None]
    pairs = seen.with_symbols(q_idx=q_idx, kv_idx=kv_idx, q_pos=q_idx + kv_len - q_len)
    pairs = Environment(pairs.symbols, pairs.inputs, variant.lets)
    kept = np.ones((q_len, kv_len), bool)
    for keep in variant.keeps:
        kept = kept & evaluate(keep.condition, pairs)
    return kept


def tiles(q_len: int, kv_len: int, block_q: int, block_kv: int) -> Iterator[tuple[slice, slice, dict[str, int]]]:
    """Rows, keys and symbols of each tile."""
    for q_first in range(0, q_len, block_q):
        for kv_first in range(0, kv_len, block_kv):
            q_last, kv_last = min(q_first + block_q, q_len) - 1, min(kv_first + block_kv, kv_len) - 1
            ends = {"q_first": q_first, "q_last": q_last, "kv_first": kv_first, "kv_last": kv_last}
            yield slice(q_first, q_last + 1), slice(kv_first, kv_last + 1), ends


def bounds(rules: TileRules, seen: Environment, q_first: int, q_last: int) -> tuple[int, int, int, int]:
    """kv_begin, kv_end, full_begin, full_end of a q block."""
    rows = seen.with_symbols(q_first=q_first, q_last=q_last)
    begin, end, first, last = (
        int(evaluate(rule, rows)) for rule in (rules.kv_begin, rules.kv_end, rules.full_begin, rules.full_end)
    )
    return begin, end, first, last

"""Whether the rules of a mask ever find a tile EMPTY: what `skip = always` asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ...evaluate import Array, Environment, evaluate
from ...ir import OFFSET_SYMBOL, TILE_SYMBOLS, Expr, Load, Symbol, Variant, const, symbol, walk
from ..rules import TileRules

_SIZE = re.compile(r"(?P<input>\w+)__size(?P<axis>\d)")
_LONGEST = 1 << 30  # positions
_LENGTH_OF_AXIS = {"q": "q_len", "kv": "kv_len", "pos": "kv_len"}


def finds_empty(variant: Variant, rules: TileRules, block_q: int, block_kv: int) -> bool:
    """Whether some whole tile of block_q x block_kv pairs may be found EMPTY, by loop bounds or by its own test.

    Rules that read inputs, heads or lengths of `_` may. Others are evaluated on a sample of tiles: the first 64 in each
    direction, and those at powers of two, up to 2**30 positions.
    """
    if (rules.kv_begin, rules.kv_end) != (const(0), symbol("kv_len")):
        return True
    if rules.any_kept == const(True):
        return False
    lengths = _lengths(variant, rules.any_kept)
    if lengths is None:
        return True
    samples = [_symbols(block_q, block_kv, q_len) for q_len in (_LONGEST, 64 * block_q)]
    tables = [Environment({**sample, **{name: sample[of] for name, of in lengths.items()}}) for sample in samples]
    return not all(np.all(evaluate(rules.any_kept, table)) for table in tables)


def _lengths(variant: Variant, rule: Expr) -> Mapping[str, str] | None:
    """The symbol that each size in the rule is equal to; None if the rule reads what a sample can't stand for."""
    sizes: dict[str, str] = {}
    for node in walk(rule):
        if isinstance(node, Load):
            return None
        if isinstance(node, Symbol) and node.name not in (*TILE_SYMBOLS, "q_len", "kv_len", OFFSET_SYMBOL):
            found = _SIZE.fullmatch(node.name)
            tag = variant.input(found["input"]).axes[int(found["axis"])].tag if found else None
            if tag not in _LENGTH_OF_AXIS:
                return None
            sizes[node.name] = _LENGTH_OF_AXIS[tag]
    return sizes


def _symbols(block_q: int, block_kv: int, q_len: int) -> dict[str, Array | int]:
    """Tiles in two dimensions."""
    q_first, kv_first = _starts(block_q, q_len)[:, None], _starts(block_kv, _LONGEST)[None, :]
    return {
        "q_len": q_len,
        "kv_len": _LONGEST,
        OFFSET_SYMBOL: _LONGEST - q_len,
        "q_first": q_first,
        "q_last": q_first + block_q - 1,
        "kv_first": kv_first,
        "kv_last": kv_first + block_kv - 1,
    }


def _starts(block: int, length: int) -> Array:
    tiles = np.unique(np.concatenate((np.arange(64), 1 << np.arange(30))))
    return (starts := tiles * block)[starts + block <= length]

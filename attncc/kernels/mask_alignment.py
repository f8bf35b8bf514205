"""Blocks of positions that a mask speaks of: tiles that begin and end with them hold no more of it than they must."""

from __future__ import annotations

from functools import lru_cache

from ..ir import Apply, Const, Expr, Local, Symbol, Variant, needs, walk

_LEAST = 16  # smaller blocks are finer than any tile


def suits(variant: Variant, block_kv: int) -> bool:
    """Whether each block of keys that a keep line divides positions by is a whole number of tiles, or the other way."""
    return all(block % block_kv == 0 or block_kv % block == 0 for block in key_blocks(variant))


@lru_cache(maxsize=64)
def key_blocks(variant: Variant) -> frozenset[int]:
    """The constants c of kv_idx // c in keep lines, lets included."""
    roots = [keep.condition for keep in variant.keeps]
    roots += [let.value for let in needs(variant, *roots)]
    lets = {name: let.value for name, let in variant.lets.items()}
    return frozenset(
        int(node.args[1].value)
        for node in walk(*roots)
        if isinstance(node, Apply) and node.op == "floordiv" and isinstance(node.args[1], Const)
        if node.args[1].value >= _LEAST and _is_key(node.args[0], lets)
    )


def _is_key(expr: Expr, lets: dict[str, Expr]) -> bool:
    while isinstance(expr, Local):
        expr = lets[expr.name]
    return expr == Symbol(expr.type, "kv_idx")

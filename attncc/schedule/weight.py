"""How much of its own a variant computes for each pair: what decides between the two tables of default tiles."""

from __future__ import annotations

from ..analysis.key_sets import keep_masks
from ..ir import Apply, Expr, Load, Local, Symbol, Variant, needs, walk

# Instructions of an operator, roughly; of all others 1.
_OPERATORS = {
    "floordiv": 6, "mod": 6, "div": 4, "to_float": 2, "floor": 4,
    "exp": 6, "exp2": 3, "log": 8, "tanh": 12, "sigmoid": 10, "erf": 16, "sqrt": 8, "sin": 20, "cos": 20,
}  # fmt: skip
_LOAD = 8
_DROPOUT = 16
_WIDEST = 128  # keys of a tile; what is a key set in such a tile is one in all that divide it

# Variants above this get the smaller tiles. Measured on an H200: causal 1 and ALiBi 6 ran best in tiles of 128 x 64,
# documents 10, softcap 18 and all of these together 51 in tiles of 64 x 64; `defaults` has since taken smaller ones.
LIGHT = 8


# In the family hopper, whose warps have more registers: what the first and the second rung of its ladder still hold.
HOPPER_LIGHT, HOPPER_HEAVY = 20, 60


def weight(variant: Variant) -> int:
    """Instructions a pair, roughly: score lines, keep lines and dropout; key sets and what pairs share are free."""
    return sum(map(_cost, _varying(variant))) + _DROPOUT * (variant.dropout is not None)


def is_busy(variant: Variant) -> bool:
    return weight(variant) > LIGHT


def room(variant: Variant) -> int:
    """The rung of the family hopper's ladder of tiles that leaves the variant enough registers, from 0.

    Inputs that are read for each pair cost more than their weight: the addresses of a whole tile are computed ahead.
    """
    found = weight(variant)
    if found > HOPPER_HEAVY:
        return 2
    return int(found > HOPPER_LIGHT or any(isinstance(node, Load) for node in _varying(variant)))


def _varying(variant: Variant) -> set[Expr]:
    """The nodes that differ from key to key: they read kv_idx or the score."""
    roots = [mask.each for mask in keep_masks(variant, _WIDEST) if mask.each is not None]
    roots += [score.value for score in variant.scores]
    roots += [let.value for let in needs(variant, *roots)]
    lets = variant.lets
    known: dict[Expr, bool] = {}

    def varies(node: Expr) -> bool:
        if node not in known:
            inner = [lets[node.name].value] if isinstance(node, Local) else node.children
            own = isinstance(node, Symbol) and node.name in ("kv_idx", "score")
            known[node] = any([own, *map(varies, inner)])
        return known[node]

    return {node for node in walk(*roots) if varies(node)}


def _cost(node: Expr) -> int:
    if isinstance(node, Load):
        return _LOAD
    return _OPERATORS.get(node.op, 1) if isinstance(node, Apply) else 0

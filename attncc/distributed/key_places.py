"""What a variant says of the keys that one rank holds: their places among all keys of the sequence.

A kernel counts a rank's keys from 0. Where the variant reads positions as differences alone, moving keys and queries
together changes nothing, and `q_offset` says enough. Every other variant gets an input, `kv_offset`, and its lines read
places through it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ..ir import (
    Apply,
    Axis,
    Const,
    Expr,
    Input,
    Load,
    Local,
    Symbol,
    Type,
    Variant,
    apply,
    const,
    reads,
    root_of,
    substituted,
    symbol,
    with_root,
)
from ..operators import COMPARISONS

KV_OFFSET = "kv_offset"  # no variant's own input: calls keep the name


@dataclass(frozen=True)
class Turns:
    """Ranks take turns: `rows` keys to rank 0, the next to rank 1, … and again to rank 0."""

    rows: int
    ranks: int


def depends_on_place(variant: Variant) -> bool:
    """Whether a score or a pair's mask may change if its query and key move on by the same number of places."""
    found = _Moves(variant)
    roots = [item.condition for item in variant.keeps] + [item.value for item in variant.scores]
    roots += [item for item in (variant.scale, variant.dropout) if item is not None]
    return any(found.of(root) != 0 for root in roots)


class Spared(NamedTuple):
    """Whether a launch may lack the keys of a sequence `before` those that its queries need, and `behind` them."""

    before: bool
    behind: bool


def spared_keys(variant: Variant) -> Spared | None:
    """None if launches have to have the keys of all sequences: inputs along keys would have to be cut, and dropout's
    bits belong to places of keys.

    Keys are counted from the first that a launch has, and `q_offset` moves along: so none before may be missing where
    places matter otherwise than as differences.
    """
    if variant.dropout is not None or any(axis.tag in ("kv", "pos") for item in variant.inputs for axis in item.axes):
        return None
    read = reads(variant, *map(root_of, variant.statements), *([] if variant.scale is None else [variant.scale]))
    return Spared(not depends_on_place(variant), "kv_len" not in read)


class _Moves:
    """By how much ints grow if q_pos and kv_idx both grow by 1: a number, or None where that isn't known."""

    def __init__(self, variant: Variant) -> None:
        self._lets, self._known = variant.lets, dict[Expr, int | None]()

    def of(self, node: Expr) -> int | None:
        if node not in self._known:
            self._known[node] = self._found(node)
        return self._known[node]

    def _found(self, node: Expr) -> int | None:
        match node:
            case Symbol(name="q_pos" | "kv_idx"):
                return 1
            case Symbol(name="kv_len"):  # of a rank, no longer of the sequence
                return None
            case Local(name=name):
                return self.of(self._lets[name].value)
            case Apply(op="add" | "sub" | "neg" | "mul", type=Type.INT):
                return self._sum(node)
        each = [self.of(child) for child in node.children]
        compared = isinstance(node, Apply) and node.op in COMPARISONS and None not in each and each[0] == each[1]
        return 0 if compared or all(move == 0 for move in each) else None

    def _sum(self, node: Apply) -> int | None:
        moves = [self.of(child) for child in node.args]
        first, *rest = moves
        if first is None or None in rest:
            return None
        other = rest[0] if rest else 0
        assert other is not None
        if node.op == "mul":
            return self._product(node, first, other)
        return {"add": first + other, "sub": first - other, "neg": -first}[node.op]

    def _product(self, node: Apply, first: int, second: int) -> int | None:
        for factor, move in ((node.args[0], second), (node.args[1], first)):
            if isinstance(factor, Const):
                return int(factor.value) * move
        return 0 if first == second == 0 else None


def with_places(variant: Variant, turns: Turns | None) -> Variant:
    """The variant for the keys of one rank, of a call that brings `kv_offset`, i32[batch, 2].

    It holds the place of a rank's first key in each sequence, and how many keys all ranks have of it. Without `turns` a
    rank's keys are neighbours, and the call moves its `q_offset` back by the first of them, so that differences stay
    what they were: what was proven of these stays proven. With `turns` the `q_offset` is the sequence's own. Inputs
    along `kv` and `pos` are whole, and of any length. Nothing has gradients.
    """
    first, every = (Load(Type.INT, KV_OFFSET, (symbol("b"), const(column))) for column in (0, 1))
    key, query = symbol("kv_idx"), symbol("q_pos")
    places: dict[Expr, Expr] = {
        key: apply("add", key, first),
        query: apply("add", query, first),
        symbol("kv_len"): every,
    }
    if turns is not None:
        skipped = apply("mul", apply("floordiv", key, const(turns.rows)), const(turns.rows * (turns.ranks - 1)))
        places = {**places, key: apply("add", places[key], skipped), query: query}
    inputs = tuple(map(_whole, variant.inputs))
    return replace(
        variant,
        inputs=(*inputs, Input(KV_OFFSET, "i32", (Axis("batch"), Axis(length=2)))),
        statements=tuple(with_root(item, substituted(root_of(item), places)) for item in variant.statements),
        scale=None if variant.scale is None else substituted(variant.scale, places),
    )


def _whole(item: Input) -> Input:
    axes = tuple(Axis() if axis.tag in ("kv", "pos") else axis for axis in item.axes)
    return replace(item, axes=axes, nondecreasing=False, learnable=False)

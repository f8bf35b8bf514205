"""What a variant says of the queries that one launch has: their places among all queries of the sequence.

Kernels count queries from 0. `q_offset` moves q_pos alone, so where a variant reads q_idx or q_len it gets an input
that says what they are in the whole sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..first_query import place_column, place_input
from ..ir import (
    Apply,
    Axis,
    Const,
    Expr,
    Input,
    Load,
    Local,
    Symbol,
    Variant,
    apply,
    root_of,
    symbol,
    walk,
    with_root,
)
from ..problem.inputs import merges
from .read_names import read_names

_Q_IDX, _Q_LEN = symbol("q_idx"), symbol("q_len")


def q_axis(declared: Input) -> int | None:
    """The axis of an input that is along q."""
    return next((place for place, axis in enumerate(declared.axes) if axis.tag == "q"), None)


def cuts(variant: Variant, *, packed: bool) -> Iterator[tuple[str, int]]:
    """The inputs along q that a launch gets its own rows of, and the axis, as calls pass it (packing drops `batch`).

    An input that is read at other places than q_idx can't be cut, nor one that all packed sequences share.
    """
    elsewhere = {
        node.input for node in _loads(variant) if node.indices[q_axis(variant.input(node.input)) or 0] != _Q_IDX
    }
    for item in variant.inputs:
        place = q_axis(item)
        if place is not None and item.name not in elsewhere and (not packed or merges(item)):
            yield item.name, place - (sum(axis.tag == "batch" for axis in item.axes[:place]) if packed else 0)


def launched_together(variant: Variant, *, packed: bool) -> bool:
    """Whether one launch can have rows of several sequences with others' between them.

    Inputs along q would be cut to rows that aren't neighbours, and with dropout a launch begins at a multiple of some
    rows in its first sequence alone.
    """
    return packed and variant.dropout is None and not dict(cuts(variant, packed=packed))


def _loads(variant: Variant) -> Iterator[Load]:
    """Of inputs along q."""
    for node in walk(*map(root_of, variant.statements)):
        if isinstance(node, Load) and q_axis(variant.input(node.input)) is not None:
            yield node


def why_placed(variant: Variant, *, packed: bool) -> str:
    """Why the queries of a launch need their places; empty if `q_offset` says enough."""
    names = _names_beside_cuts(variant)
    found = [f"reads `{name}`" for name in ("q_idx", "q_len") if name in names]
    found += [] if variant.dropout is None else ["has dropout, whose bits belong to places of queries"]
    cut = dict(cuts(variant, packed=packed))
    whole = [item.name for item in variant.inputs if q_axis(item) is not None and item.name not in cut]
    return ", ".join(found + [f"has the input `{name}` along q, which can't be cut" for name in whole])


def why_not_placed(variant: Variant, *, packed: bool) -> str:
    """What places can't be given to; empty if all of the variant can have them."""
    cut = dict(cuts(variant, packed=packed))
    whole = [item.name for item in variant.inputs if q_axis(item) is not None and merges(item) and item.name not in cut]
    return (
        f"the input `{whole[0]}` along q of packed batches, read at other places than q_idx" if packed and whole else ""
    )


def _names_beside_cuts(variant: Variant) -> set[str]:
    """The symbols that a variant reads, without `q_idx` where it is the index of an axis along q."""
    return read_names(
        variant,
        lambda node, number: number == q_axis(variant.input(node.input)) and node.indices[number] == _Q_IDX,
    )


def with_places(variant: Variant, *, packed: bool) -> Variant:
    """The variant for some queries of each sequence, of a call that brings `q_place`, i32[batch, 2].

    It holds the place of a launch's first query in its sequence, and how many queries the sequence has. Inputs along q
    that can be cut are; others are whole, and of any length.
    """
    cut = dict(cuts(variant, packed=packed))
    placed = _Placed({item.name: q_axis(item) for item in variant.inputs if item.name in cut})
    inputs = (item if item.name in cut else _whole(item) for item in variant.inputs)
    return replace(
        variant,
        inputs=(*inputs, place_input()),
        statements=tuple(with_root(item, placed(root_of(item))) for item in variant.statements),
        scale=None if variant.scale is None else placed(variant.scale),
    )


def _whole(item: Input) -> Input:
    return replace(item, axes=tuple(Axis() if axis.tag == "q" else axis for axis in item.axes))


class _Placed:
    """Expressions with the places of queries in them, `cut` inputs apart: these are read as they were."""

    def __init__(self, cut: Mapping[str, int | None]) -> None:
        first, every = place_column(0), place_column(1)
        self._cut = cut
        self._known: dict[Expr, Expr] = {_Q_IDX: apply("add", _Q_IDX, first), _Q_LEN: every}

    def __call__(self, expr: Expr) -> Expr:
        for node in walk(expr):
            if node not in self._known:
                self._known[node] = self._made(node)
        return self._known[expr]

    def _made(self, node: Expr) -> Expr:
        below = tuple(self._known[child] for child in node.children)
        match node:
            case Apply():
                return Apply(node.type, node.op, below, span=node.span)
            case Load():
                own = self._cut.get(node.input)
                indices = (
                    old if number == own and old == _Q_IDX else new
                    for number, (old, new) in enumerate(zip(node.indices, below, strict=True))
                )
                return Load(node.type, node.input, tuple(indices), span=node.span)
            case Const() | Symbol() | Local():
                return node
        raise TypeError(f"{type(node).__name__} stands in no variant")

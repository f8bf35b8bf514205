"""Where the queries of a launch begin in their sequence, if it has only a part of them: an input says so.

Kernels count queries from 0. Dropout's bits belong to places in the whole sequence, so kernels of a variant with this
input draw them for `q_idx` plus its first column.
"""

from __future__ import annotations

from .ir import Axis, Expr, Input, Load, Type, Variant, const, symbol

Q_PLACE = "q_place"  # no variant's own input: calls keep the name
ALIGNMENT = 16  # of the first query where there is dropout: one call of its generator serves 16 neighbouring queries


def place_input() -> Input:
    """i32[batch, 2]: the place of a launch's first query in its sequence, and how many queries the sequence has."""
    return Input(Q_PLACE, "i32", (Axis("batch"), Axis(length=2)))


def place_column(column: int) -> Expr:
    """One of the two numbers."""
    return Load(Type.INT, Q_PLACE, (symbol("b"), const(column)))


def first_query(variant: Variant) -> Expr | None:
    """What `q_idx` 0 of a launch is in the sequence, a multiple of ALIGNMENT; None: 0, as launches have all queries."""
    placed = any(item.name == Q_PLACE for item in variant.inputs)
    return place_column(0) if placed and variant.dropout is not None else None

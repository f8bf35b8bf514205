"""Random places of a query and a key on a 2-D grid, and distances between them."""

from __future__ import annotations

from attncc.ir import Expr, apply, const, symbol

from .masks import Random, pick


def place_of(random: Random, side: str, width: int, axis: str) -> Expr:
    """The row, the column, the position, or a part of one."""
    position = symbol(side)
    if random.random() < 0.15:
        position = apply("add", position, const(int(random.integers(0, 3)) * width + int(random.random() < 0.3)))
    if axis == "position":
        return position
    if axis == "frame":
        return apply("floordiv", position, const(4 * width))
    if axis == "row of a frame":
        return apply("mod", apply("floordiv", position, const(width)), const(4))
    return apply("floordiv" if axis == "row" else "mod", position, const(width))


def distance_of(random: Random, width: int) -> tuple[Expr, int]:
    """Of a query's place and a key's, and how large it may be worth."""
    axis = pick(random, ("row", "row", "column", "column", "position", "frame", "row of a frame"))
    places = [place_of(random, side, width, axis) for side in (pick(random, ("q_idx", "q_pos")), "kv_idx")]
    if random.random() < 0.2:
        low = int(random.integers(0, 5))
        places[0] = apply("min", apply("max", places[0], const(low)), const(low + int(random.integers(0, width))))
    if random.random() < 0.3:
        places.reverse()
    return apply("sub", *places), width * 4 if axis == "position" else 8

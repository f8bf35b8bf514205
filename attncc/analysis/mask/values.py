"""What the analysis knows of a value over a tile, as expressions over the tile's ends."""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Expr


class Interval(NamedTuple):
    """An int: low <= value <= high for every pair of the tile, and high - low <= width always."""

    low: Expr
    high: Expr
    width: int


class Truth(NamedTuple):
    """A bool: if it holds for some pair of the tile, `any` is true; if `all` is true, it holds for every pair."""

    any: Expr
    all: Expr


# Why some values stay unknown; `TileRules.undecided` says it to people.
WRAPS = "it may leave 64 bits"

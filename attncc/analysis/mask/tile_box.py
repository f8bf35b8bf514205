"""What the rules of operators, lookups and sorted inputs ask of a tile. `box.Box` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...ir import Expr, Variant
from ..algebra.affine import Affine
from ..algebra.algebra import Algebra
from .hint_use import SortedHints
from .min_max_tables import MinMaxTables
from .values import Interval, Truth


class TileBox(Protocol):
    """Intervals and truths of canonical expressions over one tile."""

    variant: Variant
    algebra: Algebra
    tables: MinMaxTables
    hints: SortedHints
    reasons: dict[Expr, str]  # what could not be bounded, and why

    def interval(self, expr: Expr) -> Interval:
        """Ends of an int expression over the tile."""

    def truth(self, expr: Expr) -> Truth:
        """Whether a bool expression may hold for any pair of the tile, and surely does for all."""

    def ends(self, form: Affine) -> tuple[Affine, Affine]:
        """Forms over the tile's ends, below and above the given form."""

    def apart(self, form: Affine, given: Mapping[Expr, Interval] | None = None) -> tuple[Affine, Affine]:
        """The ends where each term takes its own extreme; those of some atoms may be given."""

    def anything(self, expr: Expr, reason: str = "") -> Interval:
        """The static range. With the reason, where that is next to nothing."""

"""What is known of a canonical expression over one tile: `Box`, the interval of an int and the truth of a bool.

A tile is a box: all pairs with q_first <= q_idx <= q_last and kv_first <= kv_idx <= kv_last. Its four ends are run-time
values, so what is known is an expression over them (docs/analysis.md gives the argument why each is sound).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir import Apply, Expr, Load, Symbol, Variant
from .affine import Affine
from .algebra import Algebra
from .intervals import APPLIED
from .lookups import ZoneTables, lookup_interval
from .truth import truth_of
from .values import Interval, Truth


@dataclass
class Box:
    """Intervals and truths over a tile of at most block_q x block_kv, kept as they are asked for."""

    variant: Variant
    algebra: Algebra
    block_q: int
    block_kv: int
    zones: ZoneTables
    reasons: dict[Expr, str] = field(default_factory=dict)  # what could not be bounded, and why
    _intervals: dict[Expr, Interval] = field(default_factory=dict)
    _truths: dict[Expr, Truth] = field(default_factory=dict)

    def interval(self, expr: Expr) -> Interval:
        """Ends of a canonical int expression over the tile: low <= its value <= high for every pair, nothing wraps."""
        found = self._intervals.get(expr)
        if found is None:
            found = self._intervals[expr] = self._interval(expr)
        return found

    def _interval(self, expr: Expr) -> Interval:
        algebra = self.algebra
        if algebra.uniform(expr):
            return Interval(expr, expr, 0)
        form = algebra.form(expr)
        if expr not in form.terms:
            low, high = self.ends(form)
            if algebra.fits(low) and algebra.fits(high):
                return Interval(algebra.sum(low), algebra.sum(high), self.width(form))
            return self.anything(expr, "it may leave 64 bits")
        if isinstance(expr, Symbol):
            axis, _, _ = expr.name.partition("_")
            width = (self.block_q if axis == "q" else self.block_kv) - 1
            return Interval(algebra.symbol(f"{axis}_first"), algebra.symbol(f"{axis}_last"), width)
        if isinstance(expr, Load):
            return lookup_interval(self, expr)
        assert isinstance(expr, Apply)
        return APPLIED[expr.op](self, expr)

    def ends(self, form: Affine) -> tuple[Affine, Affine]:
        """Forms over the tile's ends that are the least and greatest value of a form over its pairs."""
        low = high = Affine({}, form.const)
        for atom, coefficient in form.terms.items():
            interval = self.interval(atom)
            first, last = (interval.low, interval.high) if coefficient > 0 else (interval.high, interval.low)
            low = low.plus(self.algebra.form(first), coefficient)
            high = high.plus(self.algebra.form(last), coefficient)
        return low, high

    def width(self, form: Affine) -> int:
        return sum(abs(coefficient) * self.interval(atom).width for atom, coefficient in form.terms.items())

    def anything(self, expr: Expr, reason: str = "") -> Interval:
        """The static range: all that is known. With the reason, where that is next to nothing."""
        if reason:
            self.reasons[expr] = reason
        low, high = self.algebra.range(expr)
        return Interval(self.algebra.number(low), self.algebra.number(high), high - low)

    def truth(self, expr: Expr) -> Truth:
        """Whether a canonical bool expression may hold for any pair of the tile, and surely does for all."""
        found = self._truths.get(expr)
        if found is None:
            found = self._truths[expr] = truth_of(self, expr)
        return found

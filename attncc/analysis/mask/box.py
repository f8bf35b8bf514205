"""What is known of a canonical expression over one tile: `Box`, the interval of an int and the truth of a bool.

A tile is a box: all pairs with q_first <= q_idx <= q_last and kv_first <= kv_idx <= kv_last. Its four ends are run-time
values, so what is known is an expression over them (docs/analysis.md gives the argument why each is sound).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import lcm
from typing import NamedTuple

from ...ir import Apply, Const, Expr, Load, Symbol, Variant
from ..algebra.affine import Affine
from ..algebra.algebra import Algebra
from .hint_use import HintUse, SortedHints
from .intervals import interval_of
from .lookups import lookup_interval
from .min_max_tables import MinMaxTables
from .truth import truth_of
from .values import WRAPS, Interval, Truth

# Bounds of a sum with quotients are looked for at a common multiple of their divisors, if it is not above this.
_MOST_TIMES = 2**20


class Relaxed(NamedTuple):
    """low <= times * form <= high for every pair, where the two forms have terms that cancel."""

    times: int
    low: Affine
    high: Affine


@dataclass
class Box:
    """Intervals and truths over a tile of at most block_q x block_kv, kept as they are asked for."""

    variant: Variant
    algebra: Algebra
    block_q: int
    block_kv: int
    tables: MinMaxTables
    hints: SortedHints = field(default_factory=lambda: SortedHints(HintUse.IGNORED))
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
            return self.anything(expr, WRAPS)
        if isinstance(expr, Symbol):
            axis = next(axis for axis in algebra.axes if expr.name in axis.symbols)
            _, first, last = axis.symbols
            return Interval(algebra.symbol(first), algebra.symbol(last), axis.block - 1)
        if isinstance(expr, Load):
            return lookup_interval(self, expr)
        assert isinstance(expr, Apply)
        return interval_of(self, expr)

    def ends(self, form: Affine) -> tuple[Affine, Affine]:
        """Forms over the tile's ends: no value of the given form over its pairs is below the one or above the other."""
        low, high = self.apart(form)
        relaxed = self._relaxed(form)
        if relaxed is None or not self.algebra.fits(low) or not self.algebra.fits(high):
            return low, high
        algebra, times = self.algebra, self.algebra.number(relaxed.times)
        least, most = self.apart(relaxed.low)[0], self.apart(relaxed.high)[1]
        if not algebra.fits(least.times(-1)) or not algebra.fits(most):
            return low, high
        rounded = algebra.neg(algebra.floordiv(algebra.sum(least.times(-1)), times))
        return (
            algebra.form(algebra.max(algebra.sum(low), rounded)),
            algebra.form(algebra.min(algebra.sum(high), algebra.floordiv(algebra.sum(most), times))),
        )

    def apart(self, form: Affine, given: Mapping[Expr, Interval] | None = None) -> tuple[Affine, Affine]:
        """The ends where each term takes its own extreme; those of some atoms may be given."""
        low = high = Affine({}, form.const)
        for atom, coefficient in form.terms.items():
            interval = given[atom] if given and atom in given else self.interval(atom)
            first, last = (interval.low, interval.high) if coefficient > 0 else (interval.high, interval.low)
            low = low.plus(self.algebra.form(first), coefficient)
            high = high.plus(self.algebra.form(last), coefficient)
        return low, high

    def _relaxed(self, form: Affine) -> Relaxed | None:
        """Bounds without quotients where these move together with other terms: x - c < c * (x // c) <= x."""
        varies = self.algebra.varies
        quotients = {
            atom: int(atom.args[1].value)
            for atom in form.terms
            if isinstance(atom, Apply) and atom.op == "floordiv" and isinstance(atom.args[1], Const)
            if any(
                a and b
                for other in form.terms
                if other is not atom
                for a, b in zip(varies(atom), varies(other), strict=True)
            )
        }
        times = lcm(*quotients.values())
        if not quotients or min(quotients.values()) < 1 or times > _MOST_TIMES:
            return None
        low = high = form.times(times)
        for atom, size in quotients.items():
            factor = form.terms[atom] * times // size
            moved = self.algebra.form(atom.children[0]).plus(Affine({atom: size}), -1)
            slack = factor * (size - 1)
            low = low.plus(moved, factor).shifted(-max(slack, 0))
            high = high.plus(moved, factor).shifted(-min(slack, 0))
        return Relaxed(times, low, high)

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

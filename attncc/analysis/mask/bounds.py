"""Loop bounds in closed form: for the rows of one q block, the keys outside which nothing is kept, and a range inside
which everything is (Halide's outer and inner intervals of a predicate, solved for kv_idx). Or, with the roles of q and
kv exchanged, for the keys of one kv block the rows.

Each canonical bool has two ranges of the index that is solved for. `live`: no pair of the block outside it satisfies
the bool. `full`: every pair of the block inside it does. Leaves are solved for the index; `and` intersects both; `or`
takes the hull of the live ranges, and of the full ranges the union where they touch, else the longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir import Apply, Const, Expr, Load
from ..algebra.affine import Affine
from ..algebra.algebra import TRUE, Relation
from .box import Box
from .sorted_hints import ahead, behind, first_beyond
from .truth import tested_entries
from .values import WRAPS


@dataclass(frozen=True)
class IndexRange:
    """begin <= index < end, as expressions over the block of the other side; None is no limit. begin >= end is empty.

    `exact`: no tile rule of the same bool tells more. Live: a tile that the rule finds EMPTY is outside. Full: a tile
    that the rule finds FULL is inside.
    """

    begin: Expr | None = None
    end: Expr | None = None
    exact: bool = True


@dataclass(frozen=True)
class LoopBounds:
    live: IndexRange
    full: IndexRange

    @property
    def ends(self) -> list[Expr]:
        """All that are limits."""
        ends = (self.live.begin, self.live.end, self.full.begin, self.full.end)
        return [end for end in ends if end is not None]


class Solver:
    """Solves canonical bools for the index of a side: for kv_idx over the q rows of a box, or the other way round.

    Or, of bools in which no other index of that side stands, for an `index` of a 2-D grid, which is below `length`.
    """

    def __init__(self, box: Box, side: str = "kv", index: str | None = None, length: Expr | None = None) -> None:
        self._box = box
        self._algebra = box.algebra
        self._axis = ("q", "kv").index(side)
        self._index = box.algebra.symbol(index or f"{side}_idx")
        self._length = length or box.algebra.symbol(f"{side}_len")
        self._known: dict[Expr, LoopBounds] = {}

    def of(self, expr: Expr) -> LoopBounds:
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._solve(expr)
        return found

    def _solve(self, expr: Expr) -> LoopBounds:
        if not self._moves(expr):
            truth = self._box.truth(expr)
            return LoopBounds(self._guarded(truth.any, IndexRange()), self._guarded(truth.all, IndexRange()))
        if isinstance(expr, Apply) and expr.op in ("and", "or", "select"):
            return {"and": self._and, "or": self._or, "select": self._choice}[expr.op](expr.args)
        if expr in self._algebra.relations:
            return self._comparison(expr)
        return self._unknown()

    def _moves(self, expr: Expr) -> bool:
        """Whether an expression varies along the side that is solved for."""
        return self._algebra.varies(expr)[self._axis]

    def _unknown(self) -> LoopBounds:
        return LoopBounds(IndexRange(exact=False), IndexRange(None, self._algebra.number(0), exact=False))

    # ------------------------------------------------------------ and, or, select

    def _guarded(self, condition: Expr, inside: IndexRange) -> IndexRange:
        """The range where a condition on the block holds, else nothing. It stays open where it is."""
        algebra, length = self._algebra, self._length
        if condition is TRUE:
            return inside
        if inside.begin is not None and inside.end is None:
            return IndexRange(algebra.select(condition, inside.begin, length), None, inside.exact)
        return IndexRange(
            inside.begin, algebra.select(condition, inside.end or length, algebra.number(0)), inside.exact
        )

    def _unless(self, condition: Expr, otherwise: IndexRange) -> IndexRange:
        """Everything where a condition on the block holds, else the range."""
        algebra = self._algebra
        begin = otherwise.begin and algebra.select(condition, algebra.number(0), otherwise.begin)
        end = otherwise.end and algebra.select(condition, self._length, otherwise.end)
        return IndexRange(begin, end, otherwise.exact)

    def _apart(self, args: tuple[Expr, ...]) -> tuple[list[Expr], list[LoopBounds]]:
        """Parts that say nothing of the index, and the bounds of the others."""
        return (
            [arg for arg in args if not self._moves(arg)],
            [self.of(arg) for arg in args if self._moves(arg)],
        )

    def _and(self, args: tuple[Expr, ...]) -> LoopBounds:
        fixed, bounds = self._apart(args)
        truths = [self._box.truth(arg) for arg in fixed]
        live = self._intersection([part.live for part in bounds])
        full = self._intersection([part.full for part in bounds])
        return LoopBounds(
            self._guarded(self._algebra.both(*(truth.any for truth in truths)), live),
            self._guarded(self._algebra.both(*(truth.all for truth in truths)), full),
        )

    def _or(self, args: tuple[Expr, ...]) -> LoopBounds:
        fixed, bounds = self._apart(args)
        truths = [self._box.truth(arg) for arg in fixed]
        return LoopBounds(
            self._unless(self._algebra.either(*(truth.any for truth in truths)), self._hull([b.live for b in bounds])),
            self._unless(self._algebra.either(*(truth.all for truth in truths)), self._union([b.full for b in bounds])),
        )

    def _choice(self, args: tuple[Expr, ...]) -> LoopBounds:
        """`a if condition else b`: as (condition and a) or (not condition and b) for what is live, and for what is
        full as (not condition or a) and (condition or b), which are the same."""
        algebra = self._algebra
        condition, a, b = args
        if algebra.uniform(condition):
            first, second = self.of(a), self.of(b)
            return LoopBounds(
                self._chosen(condition, first.live, second.live), self._chosen(condition, first.full, second.full)
            )
        opposite = algebra.negation(condition)
        live = self.of(algebra.either(algebra.both(condition, a), algebra.both(opposite, b))).live
        full = self.of(algebra.both(algebra.either(opposite, a), algebra.either(condition, b))).full
        return LoopBounds(IndexRange(live.begin, live.end, False), IndexRange(full.begin, full.end, False))

    def _chosen(self, condition: Expr, a: IndexRange, b: IndexRange) -> IndexRange:
        algebra, zero, length = self._algebra, self._algebra.number(0), self._length
        begin = algebra.select(condition, a.begin or zero, b.begin or zero) if a.begin or b.begin else None
        end = algebra.select(condition, a.end or length, b.end or length) if a.end or b.end else None
        return IndexRange(begin, end, a.exact and b.exact)

    def _intersection(self, ranges: list[IndexRange]) -> IndexRange:
        begins, ends = _given(ranges)
        for other in list(ends) if len(ends) <= _MOST_PAIRED else []:
            ends = [behind(self._algebra, end, other) for end in ends]
        for other in list(begins) if len(begins) <= _MOST_PAIRED else []:
            begins = [ahead(self._algebra, begin, other) for begin in begins]
        return IndexRange(
            self._algebra.max(*begins) if begins else None,
            self._algebra.min(*ends) if ends else None,
            all(item.exact for item in ranges),
        )

    def _hull(self, ranges: list[IndexRange]) -> IndexRange:
        """Exact where the ranges form one: all open at the same end, or each two of them known to touch."""
        begins, ends = _given(ranges)
        first, last = len(begins) == len(ranges), len(ends) == len(ranges)
        return IndexRange(
            self._algebra.min(*begins) if first else None,
            self._algebra.max(*ends) if last else None,
            all(item.exact for item in ranges) and (not begins or not ends or self._touch(ranges)),
        )

    def _touch(self, ranges: list[IndexRange]) -> bool:
        return len(ranges) <= _MOST_PAIRED and all(
            a.begin is None or b.end is None or self._algebra.range(self._algebra.sub(b.end, a.begin)).low >= 0
            for a in ranges
            for b in ranges
            if a is not b
        )

    def _union(self, ranges: list[IndexRange]) -> IndexRange:
        """One range of the union of two at a time: first those that are open at the same end."""
        some = [item for item in ranges if item.end is not self._algebra.number(0)] or ranges[:1]
        from_start = [item for item in some if item.begin is None]
        to_end = [item for item in some if item.begin is not None and item.end is None]
        between = [item for item in some if item.begin is not None and item.end is not None]
        total: IndexRange | None = None
        for part in [*(self._hull(group) for group in (from_start, to_end) if group), *between[:_MOST_UNITED]]:
            total = part if total is None else self._united(total, part)
        assert total is not None
        exact = total.exact and all(item.exact for item in ranges) and len(between) <= _MOST_UNITED
        return IndexRange(total.begin, total.end, exact)

    def _united(self, a: IndexRange, b: IndexRange) -> IndexRange:
        algebra, zero, length = self._algebra, self._algebra.number(0), self._length
        (a_begin, a_end), (b_begin, b_end) = ((item.begin or zero, item.end or length) for item in (a, b))
        touching = algebra.both(algebra.compare("le", b_begin, a_end), algebra.compare("le", a_begin, b_end))
        longer = algebra.compare("ge", algebra.sub(a_end, a_begin), algebra.sub(b_end, b_begin))
        return IndexRange(
            algebra.select(touching, algebra.min(a_begin, b_begin), algebra.select(longer, a_begin, b_begin)),
            algebra.select(touching, algebra.max(a_end, b_end), algebra.select(longer, a_end, b_end)),
            touching is TRUE and a.exact and b.exact,
        )

    # ------------------------------------------------------------ comparisons

    def _comparison(self, expr: Expr) -> LoopBounds:
        relation, form = self._algebra.relations[expr]
        if relation is Relation.NONZERO:
            return self._unknown()
        forms = [form] if relation is Relation.BELOW else [form, form.times(-1)]
        live, full = ([self._below(side, end) for side in forms] for end in (0, 1))
        if any(part is None for part in live + full):
            if not all(self._algebra.fits(side) or self._lacks_order(side) for side in forms):
                self._box.reasons[expr] = WRAPS
            return self._unknown()
        found = (self._intersection([part for part in parts if part]) for parts in (live, full))
        alone = relation is Relation.BELOW or not any(tested_entries(self._box, atom) for atom in form.terms)
        # Of an equality with a lookup the tile rule may know each entry, the ranges know the least and the greatest.
        live_range, full_range = (replace(part, exact=part.exact and alone) for part in found)
        if relation is Relation.ZERO and isinstance(self._moving(form), Load):
            full_range = self._where_values_agree(form, live_range)
        return LoopBounds(live_range, full_range)

    def _lacks_order(self, form: Affine) -> bool:
        """Whether a lookup moves alone, and what it is compared with fits: its ranges want a hint then, not bits."""
        moving = self._moving(form)
        if not isinstance(moving, Load):
            return False
        factor = form.terms[moving]
        limits = self._box.ends(form.plus(Affine({moving: factor}), -1))
        return all(self._algebra.fits(limit.times(-1 if factor > 0 else 1)) for limit in limits)

    def _where_values_agree(self, form: Affine, live: IndexRange) -> IndexRange:
        """Entries that equal all values of the block are those that equal some of them, if it has but one value."""
        moving = self._moving(form)
        assert moving is not None
        low, high = self._box.ends(form.plus(Affine({moving: form.terms[moving]}), -1))
        agree = self._algebra.compare("eq", self._algebra.sum(low), self._algebra.sum(high))
        return self._guarded(agree, live)

    def _moving(self, form: Affine) -> Expr | None:
        """The one term that varies along the side that is solved for."""
        moving = [atom for atom in form.terms if self._moves(atom)]
        return moving[0] if len(moving) == 1 else None

    def _below(self, form: Affine, end: int, beyond: Affine | None = None) -> IndexRange | None:
        """Where form + beyond <= 0, `beyond` being a form over the block.

        For some row of it (end = 0: what the form is at least) or for all (end = 1: what it is at most).
        """
        atom = self._moving(form)
        if atom is None:
            return None
        factor = form.terms[atom]
        others = form.plus(Affine({atom: factor}), -1)
        rest = self._box.ends(others)[end].plus(beyond or Affine({}))
        limit = self._quotient(rest.times(-1), abs(factor))
        found = None if limit is None else self._limited(atom, factor > 0, limit.times(1 if factor > 0 else -1), end)
        if found and self._block_moves(atom) and any(self._block_moves(other) for other in others.terms):
            return replace(found, exact=False)  # the tile rule may know how the two move together
        return found

    def _block_moves(self, expr: Expr) -> bool:
        """Whether an expression varies along the block."""
        return self._algebra.varies(expr)[1 - self._axis]

    def _limited(self, atom: Expr, at_most: bool, limit: Affine, end: int) -> IndexRange | None:
        """Where the atom is at most, or at least, a limit over the block."""
        algebra = self._algebra
        if atom is self._index:
            if not algebra.fits(limit.shifted(1)):
                return None
            return IndexRange(None, algebra.sum(limit.shifted(1))) if at_most else IndexRange(algebra.sum(limit), None)
        if isinstance(atom, Apply) and atom.op == "floordiv" and isinstance(atom.args[1], Const):
            inner, size = algebra.form(atom.args[0]), int(atom.args[1].value)
            if size > 0 and at_most:  # x // c <= t is x - c * t - c + 1 <= 0
                return self._below(inner, end, limit.times(-size).shifted(1 - size))
            if size > 0:  # x // c >= t is c * t - x <= 0
                return self._below(inner.times(-1), end, limit.times(size))
        if isinstance(atom, Apply) and atom.op in ("min", "max"):
            return self._extreme(atom, at_most, limit, end)
        return self._looked_up(atom, at_most, limit, end) if isinstance(atom, Load) else None

    def _extreme(self, atom: Apply, at_most: bool, limit: Affine, end: int) -> IndexRange | None:
        """max(x, y) <= t where both are, max(x, y) >= t where one is; min the other way round."""
        algebra, sign = self._algebra, 1 if at_most else -1
        ranges, conditions = [], []
        for arg in atom.args:
            form, beyond = algebra.form(arg).times(sign), limit.times(-sign)
            if self._moves(arg):
                ranges.append(self._below(form, end, beyond))
            else:
                conditions.append(algebra.related(Relation.BELOW, self._box.ends(form)[end].plus(beyond)))
        found, known = [item for item in ranges if item], [item for item in conditions if item]
        if len(found) < len(ranges) or len(known) < len(conditions):
            return None
        if (atom.op == "max") == at_most:
            total = self._guarded(algebra.both(*known), self._intersection(found))
        else:
            total = self._unless(algebra.either(*known), self._union(found) if end else self._hull(found))
        return replace(total, exact=total.exact and not self._block_moves(atom))

    def _looked_up(self, load: Load, at_most: bool, limit: Affine, end: int) -> IndexRange | None:
        """Of entries that never decrease, those at most t stand before the first above t, those at least t from the
        first that is."""
        algebra = self._algebra
        if not algebra.fits(limit):
            return None
        first = first_beyond(self._box, load, self._index, algebra.sum(limit), at_most)
        if first is None:
            return None
        place = algebra.form(load.indices[-1])
        if at_most:
            return self._below(place, end, algebra.form(first).times(-1).shifted(1))
        return self._below(place.times(-1), end, algebra.form(first))

    def _quotient(self, form: Affine, divisor: int) -> Affine | None:
        """floor(form / divisor), if that fits 64 bits where it must."""
        algebra = self._algebra
        if divisor == 1:
            return form
        return (
            algebra.form(algebra.floordiv(algebra.sum(form), algebra.number(divisor))) if algebra.fits(form) else None
        )


# More than so many ranges that are open at neither end are not united: each would take a dozen instructions.
_MOST_UNITED = 4

# More than so many ranges are not looked at in pairs.
_MOST_PAIRED = 32


def _given(ranges: list[IndexRange]) -> tuple[list[Expr], list[Expr]]:
    """The begins and ends that are limits."""
    begins = [item.begin for item in ranges if item.begin is not None]
    ends = [item.end for item in ranges if item.end is not None]
    return begins, ends

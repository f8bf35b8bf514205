"""Builds int and bool expressions in normal form: every constructor gives an equal, simpler, shared expression.

Two uses. Canonical `keep` lines: what they say of one pair, over q_idx and kv_idx. Tile rules: what the analysis says
of a tile, over q_first, q_last, kv_first and kv_last. A bool in normal form is in negation normal form: and, or and
select over comparisons of ints, and over what can't be looked into (comparisons of floats, lookups) or its `not`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import combinations

from ...ir import Apply, Const, Expr, Type, Variant, apply, const
from ...operators import COMPARISONS, OPERATORS
from ..grid_2d import Grid2D
from .affine import Affine
from .integers import Integers

TRUE = const(True)
FALSE = const(False)


class Relation(Enum):
    """What a comparison of ints says of an affine form."""

    BELOW = "<= 0"
    ZERO = "== 0"
    NONZERO = "!= 0"

    __hash__ = object.__hash__  # an Enum's own is Python code


# Only the first so many comparisons of a conjunction are looked at in pairs.
_MOST_PAIRED = 6

_Key = frozenset[tuple[Expr, int]]  # of an affine form without its constant

_WRITTEN = {"ZERO": "eq", "NONZERO": "ne"}
_OPPOSITE = {"le": "gt", "lt": "ge", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


class Algebra(Integers):
    """Adds comparisons and logic. The form of a comparison may exceed 64 bits; what it is printed as never does."""

    def __init__(
        self, variant: Variant, block_q: int, block_kv: int, *, near: bool = False, grid_2d: Grid2D | None = None
    ) -> None:
        super().__init__(variant, block_q, block_kv, near=near, grid_2d=grid_2d)
        self.relations: dict[Expr, tuple[Relation, Affine]] = {}
        self._comparisons: dict[tuple[Relation, _Key, int], Expr | None] = {}  # of `related`
        self._negations: dict[Expr, Expr] = {}
        self._ranges: dict[Expr, tuple[_Key, int, int]] = {}  # of `_united`
        self.leaf(TRUE)
        self.leaf(FALSE)

    # ------------------------------------------------------------ comparisons

    def compare(self, op: str, a: Expr, b: Expr) -> Expr:
        """A comparison of two ints."""
        relation, form = self.relate(op, a, b)
        found = self.related(relation, form)
        if found is None:
            found = self.leaf(apply(op, a, b))
            self.relations[found] = relation, form
        return found

    def relate(self, op: str, a: Expr, b: Expr) -> tuple[Relation, Affine]:
        """The relation and form that say `a op b`."""
        if op in ("gt", "ge"):
            a, b = b, a
        form = self.form(a).plus(self.form(b), -1)
        if op in ("eq", "ne"):  # equal remainders are a matter of one remainder: `Canonical` sees to them
            form = self.correlated(form, ("floordiv",))
            return (Relation.ZERO if op == "eq" else Relation.NONZERO), form
        form = self.correlated(form, ("floordiv", "mod"))
        return Relation.BELOW, form.shifted(1 if op in ("lt", "gt") else 0)

    def related(self, relation: Relation, form: Affine) -> Expr | None:
        """The comparison that says this; None where neither way to write it is sure to fit 64 bits."""
        low, high = self.form_range(form)
        if relation is Relation.BELOW:
            if high <= 0 or low > 0:
                return TRUE if high <= 0 else FALSE
        elif low > 0 or high < 0 or form.const % max(form.divisor, 1):
            return FALSE if relation is Relation.ZERO else TRUE
        elif low == high:
            return TRUE if relation is Relation.ZERO else FALSE
        known = relation, form.key, form.const
        if known not in self._comparisons:
            self._comparisons[known] = self._written(relation, _lowest_terms(form))
        return self._comparisons[known]

    def _written(self, relation: Relation, form: Affine) -> Expr | None:
        """With what varies along the kv side on the left, so that the right is the same for a row of tiles."""
        for side in self._left_sides(form):
            sign = -1 if sum(1 if c > 0 else -1 for c in side.terms.values()) < 0 else 1
            left, right = side.times(sign), form.plus(side, -1).times(-sign)
            if not self.fits(right):  # a 64-bit input minus 1 may not, where the 1 is as well added on the left
                left, right = left.shifted(-right.const), right.shifted(-right.const)
            if self.fits(left) and self.fits(right):
                op = ("le" if sign > 0 else "ge") if relation is Relation.BELOW else relation.name
                found = self.leaf(apply(_WRITTEN.get(op, op), self.sum(left), self.sum(right)))
                self.relations[found] = relation, form
                return found
        return None

    def _left_sides(self, form: Affine) -> list[Affine]:
        """Ways to choose what stands on the left: the terms of the kv side, of the q side, those that are added."""
        added = {atom: c for atom, c in form.terms.items() if c > 0}
        mixed = 0 < len(added) < len(form.terms)
        sides = [{atom: c for atom, c in form.terms.items() if self.varies(atom)[axis]} for axis in (1, 0)]
        chosen = [side for side in sides if side and not (mixed and len(side) == len(form.terms))]
        return [Affine(side) for side in (*chosen, added) if side] or [Affine(form.terms)]

    # ------------------------------------------------------------ logic

    def both(self, *args: Expr) -> Expr:
        """All of the bools."""
        return self._logic("and", args)

    def either(self, *args: Expr) -> Expr:
        """At least one of the bools."""
        return self._logic("or", args)

    def _logic(self, op: str, args: tuple[Expr, ...]) -> Expr:
        neutral, absorbing = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
        nested = (arg.args if isinstance(arg, Apply) and arg.op == op else (arg,) for arg in args)
        flat = dict.fromkeys(inner for inners in nested for inner in inners if inner is not neutral)
        flat = self._united(flat) if op == "or" else flat
        parts = None if absorbing in flat else self._merged(op, list(flat))
        if parts is None:
            return absorbing
        parts = list(dict.fromkeys(part for part in parts if part is not neutral))
        if absorbing in parts:
            return absorbing
        if len(parts) < 2:
            return parts[0] if parts else neutral
        return self.leaf(apply(op, *parts))

    def _united(self, parts: dict[Expr, None]) -> dict[Expr, None]:
        """With one range for distances that are listed one by one: d == 1 or d == 2 or d == 3 is 1 <= d <= 3."""
        listed: dict[_Key, list[tuple[int, int, Expr]]] = {}
        for part in parts:
            for key, first, last in self._listed(part):
                listed.setdefault(key, []).append((first, last, part))
        for key, ranges in listed.items():
            for first, last, of in _touching(ranges):
                ends = [Affine(dict(key), first), Affine(dict(key), last).times(-1)]
                known = [end for end in (self.related(Relation.BELOW, end) for end in ends) if end is not None]
                if len(of) > 1 and len(known) == 2:
                    united = self.both(*known)
                    self._ranges[united] = key, first, last
                    others = {part: None for part in parts if part not in of}
                    parts = {**others, united: None}  # it may be one of those that it stands for
        return parts

    def _listed(self, part: Expr) -> Iterator[tuple[_Key, int, int]]:
        """The form of both sides, and the range of what it is short of 0, where a part says no more than that."""
        if part in self._ranges:
            yield self._ranges[part]
        for relation, form in self._relation(part):
            if relation is Relation.ZERO and all(map(any, zip(*map(self.varies, form.terms), strict=True))):
                sign = 1 if form.terms[min(form.terms, key=self._order.__getitem__)] > 0 else -1
                yield form.times(sign).key, sign * form.const, sign * form.const

    def _merged(self, op: str, parts: list[Expr]) -> list[Expr] | None:
        """Without comparisons that others of the same form imply; None if two contradict (or: leave nothing out)."""
        deciding: dict[frozenset[tuple[Expr, int]], int] = {}
        forms = {part: form for part in parts for relation, form in self._relation(part) if relation is Relation.BELOW}
        for form in forms.values():
            known = deciding.get(form.key, form.const)
            deciding[form.key] = max(known, form.const) if op == "and" else min(known, form.const)
        for form in forms.values():
            opposite = deciding.get(form.times(-1).key)
            if opposite is not None and (form.const + opposite > 0 if op == "and" else form.const + opposite <= 1):
                return None
        kept = [part for part in parts if part not in forms or deciding[forms[part].key] == forms[part].const]
        others = {part for part in kept if part not in forms and not _has_parts(part)}
        if any(self.negation(part) in others for part in others):
            return None
        return [*kept, *self._opposed(op, [forms[part] for part in kept if part in forms])]

    def _opposed(self, op: str, forms: list[Affine]) -> list[Expr]:
        """What f <= 0 and g <= 0 imply, or one of the two is implied by, where all that varies cancels in f + g.

        So an empty window is found out at run time: 0 <= d < width says 0 < width, whatever d is.
        """
        implied = []
        for f, g in combinations(forms[:_MOST_PAIRED], 2):
            total = f.plus(g) if op == "and" else f.plus(g).shifted(-1)
            if all(self.uniform(atom) for atom in total.terms) and not all(self.uniform(atom) for atom in f.terms):
                found = self.related(Relation.BELOW, total)
                implied += [] if found is None else [found]
        return implied

    def _relation(self, expr: Expr) -> list[tuple[Relation, Affine]]:
        return [self.relations[expr]] if expr in self.relations else []

    def negation(self, expr: Expr) -> Expr:
        """`not expr`, with the `not` pushed down to what can't be looked into."""
        found = self._negations.get(expr)
        if found is None:
            found = self._negations[expr] = self._negated(expr)
            self._negations.setdefault(found, expr)
        return found

    def _negated(self, expr: Expr) -> Expr:
        if isinstance(expr, Const):
            return FALSE if expr.value else TRUE
        if expr in self.relations:
            return self._opposite(expr)
        if isinstance(expr, Apply):
            if expr.op in ("and", "or"):
                negated = [self.negation(arg) for arg in expr.args]
                return self.either(*negated) if expr.op == "and" else self.both(*negated)
            if expr.op == "select":
                condition, a, b = expr.args
                return self.choice(condition, self.negation(a), self.negation(b))
            if expr.op == "not":
                return expr.args[0]
        return self.leaf(apply("not", expr))

    def _opposite(self, comparison: Expr) -> Expr:
        relation, form = self.relations[comparison]
        opposite = {Relation.ZERO: Relation.NONZERO, Relation.NONZERO: Relation.ZERO}.get(relation, relation)
        if relation is Relation.BELOW:
            form = form.times(-1).shifted(1)
        found = self.related(opposite, form)
        if found is None:
            assert isinstance(comparison, Apply)
            found = self.leaf(apply(_OPPOSITE[comparison.op], *comparison.args))
            self.relations[found] = opposite, form
        return found

    def choice(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """`a if condition else b`, of bools."""
        if isinstance(condition, Const):
            return a if condition.value else b
        if a is b:
            return a
        if isinstance(a, Const):
            return self.either(condition, b) if a.value else self.both(self.negation(condition), b)
        if isinstance(b, Const):
            return self.either(self.negation(condition), a) if b.value else self.both(condition, a)
        return self.leaf(apply("select", condition, a, b))

    # ------------------------------------------------------------ any operator

    def make(self, op: str, *args: Expr) -> Expr:
        """`op` over arguments in normal form."""
        if op in ("and", "or"):
            return self._logic(op, args)
        kind = args[-1].type
        if kind is Type.FLOAT:
            return self.leaf(apply(op, *args))
        if op in COMPARISONS and kind is Type.INT:
            return self.compare(op, *args)
        table = _BOOL_OPERATORS if kind is Type.BOOL else _INT_OPERATORS
        return table[op](self, *args) if op in table else self.node(op, *args)


def _lowest_terms(form: Affine) -> Affine:
    """f <= 0, or f == 0 where the divisor divides the constant, with coefficients that have no common divisor."""
    divisor = form.divisor
    if divisor < 2:
        return form
    return Affine({atom: c // divisor for atom, c in form.terms.items()}, -(-form.const // divisor))


def _touching(ranges: list[tuple[int, int, Expr]]) -> Iterator[tuple[int, int, list[Expr]]]:
    """First and last of each union of ranges of ints that leaves nothing out, and whose ranges they were."""
    ordered = sorted(ranges, key=lambda item: item[:2])
    (first, last, part), *rest = ordered
    of = [part]
    for begin, end, part in rest:
        if begin > last + 1:
            yield first, last, of
            first, last, of = begin, end, []
        last = max(last, end)
        of.append(part)
    yield first, last, of


def _has_parts(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.op in ("and", "or", "select")


_BOOL_OPERATORS: dict[str, Callable[..., Expr]] = {
    "not": Algebra.negation,
    "eq": lambda algebra, a, b: algebra.choice(a, b, algebra.negation(b)),
    "ne": lambda algebra, a, b: algebra.choice(a, algebra.negation(b), b),
    "select": Algebra.choice,
}

# Int operators that `Integers` has a method of; others stay as they are, and are folded where all is known.
_INT_OPERATORS: dict[str, Callable[..., Expr]] = {
    name: getattr(Integers, name) for name, item in OPERATORS.items() if item.on_ints and hasattr(Integers, name)
}

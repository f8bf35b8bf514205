"""What the parts of a conjunction say together: each is written as simply as the others allow.

`abs(64 * dy + dx) <= 390 and abs(dx) <= 6` says `abs(dy) <= 6` of rows and columns, and a diamond around a square says
nothing. So a mask is judged by what it keeps, in whatever words.

Comparisons are linear inequalities. Their terms fall into digits, the terms whose coefficients have one size, as row
and column are digits of a position. What the other parts leave of a digit is found by propagating bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...ir import Apply, Expr
from ..algebra.affine import Affine
from ..algebra.algebra import FALSE, TRUE, Algebra, Relation
from ..algebra.ranges import Range

_MOST_PARTS = 24  # of a conjunction: each is looked at beside all others; masks of images and videos have 6
_ROUNDS = 2  # of propagation, each from the bounds of the one before: a third changes no form of tests/structure

_Key = frozenset[tuple[Expr, int]]


def simplified(algebra: Algebra, parts: Sequence[Expr]) -> list[Expr]:
    """Canonical bools, each replaced by one that is simpler, such that all of them together say the same."""
    return _Together(algebra).each(list(parts), ())


@dataclass
class Known:
    """Ranges of affine forms without a constant."""

    algebra: Algebra
    ranges: dict[_Key, Range] = field(default_factory=dict)

    def add(self, inequalities: Iterable[Affine]) -> None:
        """With what f <= 0 says of the digits of each f."""
        split = [(form.const, list(_digits(form))) for form in inequalities]
        for _ in range(_ROUNDS):
            for const, digits in split:
                self._narrow(const, digits)

    def _narrow(self, const: int, digits: list[tuple[int, Affine]]) -> None:
        lows = [size * self.of(digit).low for size, digit in digits]
        for (size, digit), low in zip(digits, lows, strict=True):
            high = -(const + sum(lows) - low) // size
            if high < self.of(digit).high:
                self._set(digit, high)

    def _set(self, form: Affine, high: int) -> None:
        found = self.of(form)
        self.ranges[form.key] = Range(min(found.low, high), high)
        self.ranges[form.times(-1).key] = Range(-high, max(-found.low, -high))

    def of(self, form: Affine) -> Range:
        """All values of a form without a constant, where everything known holds."""
        static = self.algebra.form_range(form)
        found, parts = self.ranges.get(form.key, static), self._by_parts(form)
        return Range(max(found.low, static.low, parts.low), min(found.high, static.high, parts.high))

    def _by_parts(self, form: Affine) -> Range:
        low, high, whole = 0, 0, len(form.terms)
        for key, known in self.ranges.items():
            if len(key) < whole and all(form.terms.get(atom) == c for atom, c in key):
                form = form.plus(Affine(dict(key)), -1)
                low, high = low + known.low, high + known.high
        rest = self.algebra.form_range(form)
        return Range(low + rest.low, high + rest.high)


@dataclass(frozen=True)
class _Together:
    algebra: Algebra

    def each(self, parts: list[Expr], outside: tuple[Expr, ...]) -> list[Expr]:
        """Parts that hold together, and with others `outside`: those first that look at the most."""
        if len(parts) + len(outside) > _MOST_PARTS:
            return parts
        for place in sorted(range(len(parts)), key=lambda place: -self._length(parts[place])):
            others = (*parts[:place], *parts[place + 1 :], *outside)
            parts[place] = self._one(parts[place], others)
        return parts

    def _length(self, part: Expr) -> int:
        return max((len(form.terms) for form in inequalities(self.algebra, part)), default=0)

    def _one(self, part: Expr, others: tuple[Expr, ...]) -> Expr:
        """What the part must say where all others hold."""
        if part in self.algebra.relations:
            return self._comparison(part, others)
        if not isinstance(part, Apply) or part.op not in ("and", "or", "select"):
            return part
        if part.op == "and":
            return self.algebra.both(*self.each(list(part.args), others))
        if part.op == "or":
            return self.algebra.either(*(self._one(arm, others) for arm in part.args))
        condition, first, second = part.args
        arms = self._one(first, (*others, condition)), self._one(second, (*others, self.algebra.negation(condition)))
        return self.algebra.choice(condition, *arms)

    def _comparison(self, part: Expr, others: tuple[Expr, ...]) -> Expr:
        relation, form = self.algebra.relations[part]
        digits = list(_digits(form))
        if len(digits) == 1 and sum(not self.algebra.uniform(atom) for atom in form.terms) <= 2:
            return part
        known = Known(self.algebra)
        known.add(inequality for other in others for inequality in inequalities(self.algebra, other))
        if relation is not Relation.BELOW:
            equal = self._equality(form, known)
            return part if equal is None else equal if relation is Relation.ZERO else self.algebra.negation(equal)
        ranges = [known.of(digit) for _, digit in digits]
        low = form.const + sum(size * found.low for (size, _), found in zip(digits, ranges, strict=True))
        high = form.const + sum(size * found.high for (size, _), found in zip(digits, ranges, strict=True))
        if high <= 0 or low > 0:
            return TRUE if high <= 0 else FALSE
        size, digit = digits[0]
        rest = low - size * ranges[0].low, high - size * ranges[0].high
        limits = {-end // size for end in rest}
        if len(digits) == 1 or len(limits) > 1:
            return part
        return self.algebra.related(Relation.BELOW, digit.shifted(-limits.pop())) or part

    def _equality(self, form: Affine, known: Known) -> Expr | None:
        """form == 0 as one equality a digit, as two numbers are equal if all their digits are. None where the smaller
        digits leave the larger one more than one value."""
        digits, parts = list(_digits(form)), []
        for place, (size, digit) in enumerate(digits):
            form = form.plus(digit, -size)
            smaller = [(each, known.of(rest)) for each, rest in digits[place + 1 :]]
            low, high = (form.const + sum(each * found[end] for each, found in smaller) for end in (0, 1))
            first, last = -(high // size), -low // size
            if first != last:
                return FALSE if first > last else None
            parts.append(self.algebra.related(Relation.ZERO, digit.shifted(-first)))
            form = form.shifted(size * first)
        written = [part for part in parts if part is not None]
        return self.algebra.both(*written) if 1 < len(written) == len(parts) else None


def inequalities(algebra: Algebra, part: Expr) -> Iterator[Affine]:
    """Forms f of which the part says f <= 0."""
    if isinstance(part, Apply) and part.op == "and":
        for arg in part.args:
            yield from inequalities(algebra, arg)
    relation, form = algebra.relations.get(part, (Relation.NONZERO, Affine({})))
    if relation is not Relation.NONZERO:
        yield form
    if relation is Relation.ZERO:
        yield form.times(-1)


def _digits(form: Affine) -> Iterator[tuple[int, Affine]]:
    """Sizes and sums of the terms with coefficients of one size, the largest first: form = sum of size * digit."""
    for size in sorted({abs(c) for c in form.terms.values()}, reverse=True):
        yield size, Affine({atom: c // size for atom, c in form.terms.items() if abs(c) == size})

"""What a conjunction implies of one axis: bounds of rows, or of columns, that its comparisons don't name.

`abs(dx) + 2 * abs(dy) <= 12` is four comparisons of a row and a column. Each sum of two of them in which one axis
cancels bounds the other, as in a step of Fourier and Motzkin's elimination: `abs(dx) <= 12`, `abs(dy) <= 6`. And
`dx * dx + dy * dy <= 36` leaves `dy * dy <= 36` where `dx * dx` is least.

Such bounds hold for every kept pair. So they may tell that a tile is EMPTY, and they say nothing of FULL ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from ...ir import Apply, Expr, Load, walk
from ..algebra.affine import Affine
from ..algebra.algebra import TRUE, Algebra
from ..algebra.canonical import Canonical
from .conjunctions import Known, inequalities

# Guesses that limit the time of the search: beyond them fewer tiles are EMPTY, none is wrong.
_MOST_FORMS = 24  # comparisons of a conjunction: each is added to all others
_MOST_TERMS = 12  # of a comparison: three axes of both sides, and lengths; longer ones aren't looked at


class Implied(NamedTuple):
    """Canonical bools that hold for all kept pairs, each about one axis."""

    joint: tuple[Expr, ...] = ()  # of two comparisons: a test of tiles gains by them
    single: tuple[Expr, ...] = ()  # of one, whose own test says as much: loop bounds gain by them


def implied(algebra: Algebra, canonical: Canonical, kept: Expr) -> Implied:
    """What the conjunction `kept` implies of one axis at a time, and doesn't say."""
    stated = (form for form in inequalities(algebra, kept) if len(form.terms) <= _MOST_TERMS)
    forms = [form for form in stated if not _reads_inputs(algebra, form)]
    several = [form for form in forms if len(_axes(algebra, form)) > 1]
    if not several or len(forms) > _MOST_FORMS:
        return Implied()
    joint = _Bounds(forms, algebra)
    for f, g in combinations(forms, 2):
        for total in _eliminations(algebra, f, g):
            if len(_axes(algebra, total)) == 1:
                joint.add(total)
    single = _Bounds([*forms, *joint.found], algebra)
    known = Known(algebra)
    known.add([*forms, *joint.found])
    for form in several:
        axes = list(_axes(algebra, form).values())
        for place in range(len(axes)):
            others = _sum([*axes[:place], *axes[place + 1 :]])
            bound = form.plus(others, -1).shifted(known.of(others).low)
            if _sides(algebra, bound) == _sides(algebra, form):  # of one alone it says next to nothing
                single.add(bound)
    return Implied(tuple(joint.written(canonical)), tuple(single.written(canonical)))


class _Bounds:
    """Forms f with f <= 0, the tightest of each sum of terms, but for those that are stated already."""

    def __init__(self, stated: Sequence[Affine], algebra: Algebra) -> None:
        self._algebra = algebra
        self._known: dict[Hashable, int] = {}
        self._found: dict[Hashable, Affine] = {}
        for form in stated:
            lowest = _lowest_terms(form)
            self._known[lowest.key] = max(lowest.const, self._known.get(lowest.key, lowest.const))

    def add(self, form: Affine) -> None:
        lowest = _lowest_terms(form)
        known = self._known.get(lowest.key)
        if (known is None or known < lowest.const) and self._algebra.form_range(lowest).high > 0:
            self._known[lowest.key], self._found[lowest.key] = lowest.const, lowest

    @property
    def found(self) -> list[Affine]:
        return list(self._found.values())

    def written(self, canonical: Canonical) -> Iterator[Expr]:
        for form in self.found:
            bound = canonical.below(form)
            if bound is not None and bound is not TRUE:
                yield bound


def _eliminations(algebra: Algebra, f: Affine, g: Affine) -> Iterator[Affine]:
    """Sums of multiples of both in which a term that varies cancels."""
    for atom, c in f.terms.items():
        other = g.terms.get(atom, 0)
        if c * other < 0 and not algebra.uniform(atom):
            yield f.times(abs(other)).plus(g, abs(c))


def _axes(algebra: Algebra, form: Affine) -> dict[Hashable, Affine]:
    """The terms that vary, by what they measure: rows, columns, positions; all else each for itself."""
    found: dict[Hashable, Affine] = {}
    for atom, c in form.terms.items():
        if not algebra.uniform(atom):
            key = _axis(algebra, atom)
            found[key] = found.get(key, Affine({})).plus(Affine({atom: c}))
    return found


def _sides(algebra: Algebra, form: Affine) -> tuple[bool, bool]:
    """Whether terms vary along q, and along kv."""
    varying = [algebra.varies(atom) for atom in form.terms]
    return any(q for q, _ in varying), any(kv for _, kv in varying)


def _axis(algebra: Algebra, atom: Expr) -> Hashable:
    for axis in algebra.axes:
        if atom is algebra.symbol(axis.symbols[0]):
            return axis.name.removeprefix(axis.side)
    if isinstance(atom, Apply) and atom.op in ("floordiv", "mod"):
        return atom.op, atom.args[1]
    return atom


def _reads_inputs(algebra: Algebra, form: Affine) -> bool:
    """Whether what varies is read from inputs: sums of such terms bound no index."""
    return any(isinstance(node, Load) for atom in form.terms if not algebra.uniform(atom) for node in walk(atom))


def _sum(forms: Sequence[Affine]) -> Affine:
    total = Affine({})
    for form in forms:
        total = total.plus(form)
    return total


def _lowest_terms(form: Affine) -> Affine:
    divisor = max(form.divisor, 1)
    return Affine({atom: c // divisor for atom, c in form.terms.items()}, -(-form.const // divisor))

"""Truth rules of bools: from what is known of the parts over a tile to whether any pair, or all pairs, are kept.

Three-valued logic in the manner of Kleene: for a canonical bool (negation normal form) every rule keeps the promise of
`Truth`, since "any" of a conjunction implies "any" of each part, and "all" of each part implies "all" of it.
"""

from __future__ import annotations

from ...ir import Apply, Const, Expr, Load
from ..algebra.affine import Affine
from ..algebra.algebra import FALSE, TRUE, Relation
from .lookups import direct_entries, lookup_truth
from .tile_box import TileBox
from .values import WRAPS, Interval, Truth

UNKNOWN = Truth(TRUE, FALSE)


def truth_of(box: TileBox, expr: Expr) -> Truth:
    if box.algebra.uniform(expr):
        return Truth(expr, expr)
    if expr in box.algebra.relations:
        return _comparison(box, expr)
    if isinstance(expr, Load):
        return lookup_truth(box, expr)
    assert isinstance(expr, Apply)
    if expr.op in _LOGIC:
        return _LOGIC[expr.op](box, expr)
    box.reasons[expr] = "it compares floats"
    return UNKNOWN


def _and(box: TileBox, expr: Apply) -> Truth:
    parts = [box.truth(arg) for arg in expr.args]
    return Truth(box.algebra.both(*(part.any for part in parts)), box.algebra.both(*(part.all for part in parts)))


def _or(box: TileBox, expr: Apply) -> Truth:
    parts = [box.truth(arg) for arg in expr.args]
    return Truth(box.algebra.either(*(part.any for part in parts)), box.algebra.either(*(part.all for part in parts)))


def _not(box: TileBox, expr: Apply) -> Truth:
    inner = box.truth(expr.args[0])
    return Truth(box.algebra.negation(inner.all), box.algebra.negation(inner.any))


def _choice(box: TileBox, expr: Apply) -> Truth:
    """Any: one arm is met and may hold. All: each arm holds for all, or is never met."""
    algebra = box.algebra
    condition, a, b = (box.truth(arg) for arg in expr.args)
    any_kept = algebra.either(algebra.both(condition.any, a.any), algebra.both(algebra.negation(condition.all), b.any))
    all_kept = algebra.both(
        algebra.either(algebra.negation(condition.any), a.all), algebra.either(condition.all, b.all)
    )
    return Truth(any_kept, all_kept)


def _comparison(box: TileBox, expr: Expr) -> Truth:
    relation, form = box.algebra.relations[expr]
    if relation is Relation.BELOW:
        return _below(box, expr, form)
    truth = _residue(box, form) or _one_of_entries(box, form) or _zero(box, expr, form)
    if relation is Relation.ZERO:
        return truth
    return Truth(box.algebra.negation(truth.all), box.algebra.negation(truth.any))


def _below(box: TileBox, expr: Expr, form: Affine) -> Truth:
    low, high = box.ends(form)
    any_below, all_below = (box.algebra.related(Relation.BELOW, end) for end in (low, high))
    if any_below is not None and all_below is not None:
        return Truth(any_below, all_below)
    assert isinstance(expr, Apply)
    _note_wrapping(box, expr)
    a, b = (box.interval(arg) for arg in expr.args)
    if expr.op in ("ge", "gt"):
        return Truth(box.algebra.compare(expr.op, a.high, b.low), box.algebra.compare(expr.op, a.low, b.high))
    return Truth(box.algebra.compare(expr.op, a.low, b.high), box.algebra.compare(expr.op, a.high, b.low))


def _zero(box: TileBox, expr: Expr, form: Affine) -> Truth:
    algebra = box.algebra
    low, high = box.ends(form)
    if low.const == high.const and low.key == high.key:
        found = algebra.related(Relation.ZERO, low)
        if found is not None:
            return Truth(found, found)
    assert isinstance(expr, Apply)
    first, second = expr.args
    ends = [algebra.related(Relation.BELOW, side) for side in (low, high.times(-1), high, low.times(-1))]
    a, b = box.interval(first), box.interval(second)
    if None in ends:
        _note_wrapping(box, expr)
    raw = ((a.low, b.high), (b.low, a.high), (a.high, b.low), (b.high, a.low))
    tests = [algebra.compare("le", *raw[i]) if end is None else end for i, end in enumerate(ends)]
    return Truth(algebra.both(tests[0], tests[1]), algebra.both(tests[2], tests[3]))


# So many entries of an equality are tested each for itself; of more, the least and the greatest.
_MOST_ALONE = 4


def tested_entries(box: TileBox, atom: Expr) -> list[Expr]:
    """The entries that a lookup may read, where they are so few that an equality tests each."""
    if not isinstance(atom, Load) or box.algebra.uniform(atom):
        return []
    entries = direct_entries(box, atom)
    return entries if 1 < len(entries) <= _MOST_ALONE else []


def _one_of_entries(box: TileBox, form: Affine) -> Truth | None:
    """f == 0 where a term of f is one of a few entries of an input: each for itself, since they may lie far apart."""
    algebra = box.algebra
    for atom in form.terms:
        entries = tested_entries(box, atom)
        if entries:
            ends = [box.apart(form, {atom: Interval(entry, entry, 0)}) for entry in entries]
            sides = [(low, high.times(-1), high, low.times(-1)) for low, high in ends]
            tests = [[algebra.related(Relation.BELOW, side) for side in four] for four in sides]
            known = [[test for test in four if test is not None] for four in tests]
            if all(len(four) == 4 for four in known):
                met = algebra.either(*(algebra.both(four[0], four[1]) for four in known))
                return Truth(met, algebra.both(*(test for four in known for test in four[2:])))
    return None


def _note_wrapping(box: TileBox, comparison: Apply) -> None:
    """The sides could not be brought together: that costs something if they move together."""
    algebra = box.algebra
    a, b = ({atom for atom in algebra.form(side).terms if not algebra.uniform(atom)} for side in comparison.args)
    if a & b:
        box.reasons[comparison] = WRAPS


def _residue(box: TileBox, form: Affine) -> Truth | None:
    """x % c == k for a uniform k: whether k is among the remainders of low..high, an arc of the circle of length c."""
    algebra = box.algebra
    varying = [atom for atom in form.terms if not algebra.uniform(atom)]
    if len(varying) != 1 or abs(form.terms[varying[0]]) != 1:
        return None
    atom, factor = varying[0], form.terms[varying[0]]
    if not (isinstance(atom, Apply) and atom.op == "mod" and isinstance(atom.args[1], Const)):
        return None
    rest = form.plus(Affine({atom: factor}), -1).times(-factor)
    x, c = box.interval(atom.args[0]), atom.args[1]
    size = algebra.form(x.high).plus(algebra.form(x.low), -1)
    if not algebra.fits(rest) or not algebra.fits(rest.plus(algebra.form(x.low), -1)) or not algebra.fits(size):
        return None
    wanted = algebra.sum(rest)
    steps = algebra.mod(algebra.sub(wanted, x.low), c)
    possible = algebra.both(algebra.compare("ge", wanted, algebra.number(0)), algebra.compare("lt", wanted, c))
    met = algebra.both(possible, algebra.compare("le", steps, algebra.sum(size)))
    alone = algebra.both(algebra.compare("eq", x.low, x.high), algebra.compare("eq", algebra.mod(x.low, c), wanted))
    return Truth(met, alone)


_LOGIC = {"and": _and, "or": _or, "not": _not, "select": _choice}

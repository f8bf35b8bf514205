"""Comparisons of a distance's remainder as arcs: `(x + 6) % 64 <= 12` is an arc of 13 places on a circle of 64.

An arc is written in one way, whatever it was said in: beginning at 0, of a distance that grows along the keys. So
`min(x % 64, -x % 64) <= 6`, `26 <= (x + 32) % 64 <= 38` and thirteen equal remainders are the same comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ...ir import Apply, Const, Expr
from .affine import Affine
from .algebra import FALSE, TRUE, Algebra, Relation
from .bitwise import runs

# Places of a circle on which arcs are brought together: a guess, as each is a bit of an int. Beyond it arcs that touch
# stay apart: fewer tiles may be EMPTY, none is wrong.
_LARGEST = 4096


class Arc(NamedTuple):
    """(distance - first) % period < size, with 0 <= first < period, 0 < size < period; `distance` has no constant."""

    distance: Affine
    period: int
    first: int
    size: int

    @property
    def circle(self) -> tuple[frozenset[tuple[Expr, int]], int]:
        return self.distance.key, self.period

    def written(self, algebra: Algebra) -> Expr | None:
        """None where the distance, moved to begin at 0, isn't sure to fit 64 bits."""
        alone, left_out = self.size == 1, self.size == self.period - 1  # a single place: equal to it, or not
        moved = self.distance if alone or left_out else self.distance.shifted(-self.first)
        if not algebra.fits(moved):
            return None
        remainder = algebra.form(algebra.mod(algebra.sum(moved), algebra.number(self.period)))
        if alone:
            return algebra.related(Relation.ZERO, remainder.shifted(-self.first))
        if left_out:
            return algebra.related(Relation.NONZERO, remainder.shifted(-((self.first - 1) % self.period)))
        return algebra.related(Relation.BELOW, remainder.shifted(1 - self.size))

    def only_range(self, algebra: Algebra) -> tuple[int, int] | None:
        """First and last distance on the arc, if distances come around to it once, or never; else None."""
        low, high = algebra.form_range(self.distance)
        first = low + (self.first - low) % self.period  # the first time that the arc begins
        if first + self.size - 1 - self.period >= low:
            first -= self.period
        return (first, first + self.size - 1) if first + self.period > high else None


def arc_of(relation: Relation, form: Affine, algebra: Algebra) -> Arc | None:
    """The arc that a comparison says of a distance between a query and a key; None for others."""
    if len(form.terms) != 1 or relation is Relation.NONZERO:
        return None
    ((atom, factor),) = form.terms.items()
    if not isinstance(atom, Apply) or atom.op != "mod" or not isinstance(atom.args[1], Const):
        return None
    inner, period = algebra.form(atom.args[0]), int(atom.args[1].value)
    if period < 2 or not _of_both_sides(inner, algebra):
        return None
    low, high = _places(relation, form.const, factor, period)
    if low > high or high - low >= period - 1:
        return None
    first, distance = low - inner.const, inner.shifted(-inner.const)
    if _falls(inner, algebra):
        first, distance = inner.const - high, distance.times(-1)
    return Arc(distance, period, first % period, high - low + 1)


def _places(relation: Relation, const: int, factor: int, period: int) -> tuple[int, int]:
    """Least and greatest remainder m with factor * m + const <= 0, or == 0."""
    if relation is Relation.ZERO:
        place, rest = divmod(-const, factor)
        return (place, place) if rest == 0 and 0 <= place < period else (1, 0)
    if factor > 0:
        return 0, min(-const // factor, period - 1)
    return max(-(const // factor), 0), period - 1


def joined(op: str, parts: list[Expr], algebra: Algebra) -> list[Expr]:
    """The parts of an `or`, or of an `and`, with one arc for those of a circle that touch, or have places in common."""
    parts = _stepped(parts, algebra) if op == "or" else parts
    circles: dict[object, dict[Expr, Arc]] = {}
    for part in parts:
        arc = arc_of(*algebra.relations[part], algebra) if part in algebra.relations else None
        if arc is not None and arc.period <= _LARGEST:
            circles.setdefault(arc.circle, {})[part] = arc
    for of_circle in circles.values():
        arcs = list(of_circle.values())
        written = _written(_together(op, arcs), arcs[0], algebra) if len(arcs) > 1 else None
        if written is not None and len(written) < (len(arcs) if op == "or" else 2):
            parts = [part for part in parts if part not in of_circle] + written
    return parts


def _stepped(parts: list[Expr], algebra: Algebra) -> list[Expr]:
    """The parts of an `or`, with one range and one remainder for distances that are listed in equal steps."""
    listed: dict[object, dict[int, Expr]] = {}
    distances: dict[object, Affine] = {}
    for part in parts:
        relation, form = algebra.relations.get(part, (Relation.NONZERO, Affine({})))
        if relation is Relation.ZERO and _of_both_sides(form, algebra):
            along = form.times(-1) if _falls(form, algebra) else form
            distance = distances.setdefault(along.key, along.shifted(-along.const))
            listed.setdefault(distance.key, {})[-along.const] = part
    for key, found in listed.items():
        places = sorted(found)
        steps = {after - before for before, after in pairwise(places)}
        united = (
            _in_steps(distances[key], places, steps.pop(), algebra) if len(steps) == 1 and len(places) > 2 else None
        )
        if united is not None:
            parts = [part for part in parts if part not in found.values()] + [united]
    return parts


def _in_steps(distance: Affine, places: list[int], step: int, algebra: Algebra) -> Expr | None:
    """Whether a distance is one of those places; None for neighbours, which are a range, and for what doesn't fit."""
    ends = distance.times(-1).shifted(places[0]), distance.shifted(-places[-1])
    said = [algebra.related(Relation.BELOW, end) for end in ends]
    said += [Arc(distance, step, places[0] % step, 1).written(algebra)] if step > 1 else [None]
    known = [part for part in said if part is not None]
    return algebra.both(*known) if len(known) == len(said) else None


def _of_both_sides(form: Affine, algebra: Algebra) -> bool:
    return all(map(any, zip(*map(algebra.varies, form.terms), strict=True)))


def _falls(form: Affine, algebra: Algebra) -> bool:
    """Whether more terms fall along the keys than grow."""
    return sum(1 if c > 0 else -1 for atom, c in form.terms.items() if algebra.varies(atom)[1]) < 0


def _together(op: str, arcs: list[Arc]) -> int:
    """The places of all arcs, or those that they have in common, as bits."""
    around = (1 << arcs[0].period) - 1
    places = 0 if op == "or" else around
    for arc in arcs:
        bits = ((1 << arc.size) - 1) << arc.first
        bits = (bits | bits >> arc.period) & around
        places = places | bits if op == "or" else places & bits
    return places


def _written(places: int, like: Arc, algebra: Algebra) -> list[Expr] | None:
    """Bools of which one holds where the distance is at one of the places; None if there is no way to write them."""
    around = (1 << like.period) - 1
    if places in (0, around):
        return [TRUE if places else FALSE]
    found = [
        like._replace(first=first, size=size).written(algebra) for first, size in _runs_around(places, like.period)
    ]
    written = [part for part in found if part is not None]
    return written if len(written) == len(found) else None


def _runs_around(places: int, period: int) -> Iterator[tuple[int, int]]:
    """First place and length of each run of bits on a circle that has other places, too."""
    start = (~places & (places + 1)).bit_length()  # behind the first place that is left out
    around = (1 << period) - 1
    turned = (places >> start | places << (period - start)) & around
    for run in runs(turned):
        first = (run & -run).bit_length() - 1
        yield (start + first) % period, run.bit_length() - first

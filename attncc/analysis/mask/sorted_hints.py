"""Inputs declared `nondecreasing`: what rules may use once a pre-pass has found the hint true.

Over a tile, a lookup then lies between its entries at the tile's two ends; and the keys whose entry is at most, or at
least, a limit are a range that ends, or begins, at a place found by binary search. Rules that use this presume some
conditions, of which the hint is one; they hold where these do, and `tiles.analyse` adds the test. That the last query
is at the last key is one as well: calls that say otherwise (q_offset) take no hint to hold.
"""

from __future__ import annotations

from ...ir import OFFSET_SYMBOL, Apply, Const, Expr, Load, Search, Type, size_symbol
from ..algebra.affine import Affine
from ..algebra.algebra import TRUE, Algebra
from ..algebra.lengths import length_of_axis
from ..rules import sorted_name
from .hint_use import HintUse
from .tile_box import TileBox
from .values import Interval


def sorted_ends(box: TileBox, load: Load) -> Interval | None:
    """Ends of a lookup in an input whose entries never decrease: those at the first and the last place of the tile.

    What is out of range reads 0. None where the hint says nothing of the places.
    """
    algebra, declared = box.algebra, box.variant.input(load.input)
    if not _hinted(box, load):
        return None
    *lead, last = load.indices
    low, high, _ = box.interval(last)
    zero, length = algebra.number(0), length_of_axis(algebra, declared)
    below = algebra.compare("lt", aligned(algebra, high), length)
    if declared.axes[-1].tag is not None and below is not TRUE:
        return None  # `pos` may go on beyond the keys: nothing is hinted there
    box.hints.presume(_hint(algebra, load))
    low, high = aligned(algebra, low), aligned(algebra, high)
    ends = algebra.max(low, zero), algebra.min(high, algebra.sub(length, algebra.number(1)))
    least, most = (algebra.leaf(Load(load.type, load.input, (*lead, place))) for place in ends)
    inside = algebra.both(algebra.compare("ge", low, zero), below)
    least = algebra.select(inside, least, algebra.min(least, zero))
    most = algebra.select(inside, most, algebra.max(most, zero))
    return Interval(least, most, box.anything(load).width)


def first_beyond(box: TileBox, load: Load, index: Expr, limit: Expr, above: bool) -> Expr | None:
    """The first place on the last axis whose entry is at least (`above`: greater than) a limit over the block.

    For a lookup whose place never falls along `index` (q_idx or kv_idx), all places being in range. None for others.
    """
    algebra, declared = box.algebra, box.variant.input(load.input)
    places = _places(algebra, load.indices[-1], index) if _hinted(box, load) else None
    if places is None:
        return None
    length, size = length_of_axis(algebra, declared), algebra.leaf(size_symbol(declared.name, len(load.indices) - 1))
    if not any(axis.tag == "batch" for axis in declared.axes):  # sequences of a packed batch share the axis
        length = algebra.min(length, size)
    zero, (low, high) = algebra.number(0), (aligned(algebra, place) for place in places)
    box.hints.presume(_hint(algebra, load), algebra.compare("ge", low, zero), algebra.compare("lt", high, length))
    return algebra.leaf(Search(Type.INT, load.input, load.indices[:-1], length, limit, above))


def behind(algebra: Algebra, end: Expr, other: Expr) -> Expr:
    """`end`, or what may stand for it in min(end, other): a search that goes beyond `other` anyway is left out.

    It does where what it looks for is above the entry at some place, which stands behind `other`, or just before it:
    with a causal mask, the keys of a document end behind the row that asks.
    """
    if isinstance(end, Apply) and end.op == "select":
        condition, a, b = end.args
        return algebra.select(condition, behind(algebra, a, other), behind(algebra, b, other))
    if not (isinstance(end, Search) and end.above):
        return end
    found = [load for load in _bounds(end.value, "max") if load.input == end.input and load.indices[:-1] == end.indices]
    every = [aligned(algebra, load.indices[-1]) for load in found]
    places = [place for place in every if algebra.compare("lt", place, end.length) is TRUE]
    shown = aligned(algebra, other)
    return other if any(algebra.range(algebra.sub(place, shown)).low >= -1 for place in places) else end


def ahead(algebra: Algebra, begin: Expr, other: Expr) -> Expr:
    """`begin`, or what may stand for it in max(begin, other): a search that ends before `other` anyway is left out.

    It does where what it looks for is at most the entry at some place, which `other` isn't before: with a causal mask,
    the rows of a document begin before the key that asks.
    """
    form = algebra.form(aligned(algebra, begin))
    searches = [atom for atom in form.terms if isinstance(atom, Search)]
    if len(searches) != 1 or searches[0].above or form.terms[searches[0]] != 1:
        return begin
    found = [load for load in _bounds(searches[0].value, "min") if load.input == searches[0].input]
    places = [aligned(algebra, load.indices[-1]) for load in found if load.indices[:-1] == searches[0].indices]
    shift = form.plus(Affine({searches[0]: 1}), -1).plus(algebra.form(aligned(algebra, other)), -1)
    distances = [shift.plus(algebra.form(place)) for place in places if algebra.range(place).low >= 0]
    return other if any(algebra.range(algebra.sum(distance)).high <= 0 for distance in distances) else begin


def aligned(algebra: Algebra, place: Expr) -> Expr:
    """A place where the last query is at the last key."""
    form, offset = algebra.form(place), algebra.symbol(OFFSET_SYMBOL)
    factor = form.terms.get(offset, 0)
    if factor == 0:
        return place
    lengths = Affine({algebra.symbol("kv_len"): 1, algebra.symbol("q_len"): -1})
    return algebra.sum(form.plus(Affine({offset: 1}), -factor).plus(lengths, factor))


def _bounds(value: Expr, op: str) -> frozenset[Load]:
    """Lookups that a value is never below (`op`: max), or never above (min)."""
    if isinstance(value, Load):
        return frozenset({value})
    if not isinstance(value, Apply) or value.op not in (op, "select"):
        return frozenset()
    a, b = (_bounds(arg, op) for arg in value.args[-2:])
    return a | b if value.op == op else a & b


def _places(algebra: Algebra, place: Expr, index: Expr) -> tuple[Expr, Expr] | None:
    """The first and the last place that a lookup reads, if its places never fall along an index."""
    if place is index:
        (axis, _, _) = index.name.partition("_")  # type: ignore[attr-defined]
        return algebra.number(0), algebra.sub(algebra.symbol(f"{axis}_len"), algebra.number(1))
    form = algebra.form(place)
    moving = [atom for atom in form.terms if not algebra.uniform(atom)]
    if len(moving) != 1 or form.terms[moving[0]] != 1:
        return None
    inner = _quotients(algebra, moving[0], index) if moving[0] is place else _places(algebra, moving[0], index)
    shift = form.plus(Affine({moving[0]: 1}), -1)
    ends = [algebra.form(end).plus(shift) for end in inner or ()]
    return (algebra.sum(ends[0]), algebra.sum(ends[1])) if ends and all(map(algebra.fits, ends)) else None


def _quotients(algebra: Algebra, place: Expr, index: Expr) -> tuple[Expr, Expr] | None:
    """Of x // c with a constant c > 0."""
    if not (isinstance(place, Apply) and place.op == "floordiv" and isinstance(place.args[1], Const)):
        return None
    inner = _places(algebra, place.args[0], index) if place.args[1].value > 0 else None
    return inner and (algebra.floordiv(inner[0], place.args[1]), algebra.floordiv(inner[1], place.args[1]))


def _hinted(box: TileBox, load: Load) -> bool:
    """Whether the hint is to be used, and speaks of this lookup: its last index varies, and no other one does."""
    if not (box.hints.hint_use is HintUse.PRESUMED and load.indices and load.type is Type.INT):
        return False
    *lead, last = load.indices
    uniform = box.algebra.uniform
    return box.variant.input(load.input).nondecreasing and all(map(uniform, lead)) and not uniform(last)


def _hint(algebra: Algebra, load: Load) -> Expr:
    return algebra.leaf(Load(Type.BOOL, sorted_name(load.input), load.indices[:-1]))

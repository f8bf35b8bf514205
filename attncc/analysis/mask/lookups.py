"""Bounds of lookups: the least and greatest of the entries that a tile can read, or of the blocks they lie in.

A lookup whose index meets at most `MOST_ENTRIES` entries over a tile reads just these: exact, out of range (0)
included. Else, if only the last index varies much, it reads a min/max table: the extremes of blocks of that axis. A
block holds neighbours too, and nothing tells where a sequence ends on a packed axis: 0 joins in unless the index is in
range.
"""

from __future__ import annotations

from itertools import product
from math import prod

from ...ir import Expr, Input, Load, Type, size_symbol
from ..algebra.algebra import FALSE, TRUE, Algebra
from ..algebra.lengths import length_of_axis
from .hint_use import HintUse
from .min_max_tables import MOST_ENTRIES
from .sorted_hints import sorted_ends
from .tile_box import TileBox
from .values import Interval, Truth


def lookup_interval(box: TileBox, load: Load) -> Interval:
    """Ends of an int lookup."""
    algebra = box.algebra
    ends = sorted_ends(box, load)
    if ends is not None:
        return ends
    found = _entries(box, load)
    if found is None:
        return box.anything(load, _too_many(load))
    least, most, inside = found
    low, high = algebra.min(*least), algebra.max(*most)
    zero = algebra.number(0)
    low = algebra.select(inside, low, algebra.min(low, zero))
    high = algebra.select(inside, high, algebra.max(high, zero))
    return Interval(low, high, box.anything(load).width)


def lookup_truth(box: TileBox, load: Load) -> Truth:
    """Truth of a bool lookup; what is out of range is false."""
    algebra = box.algebra
    found = _entries(box, load)
    if found is None:
        box.reasons[load] = _too_many(load)
        return Truth(_reached(box, load), FALSE)
    least, most, inside = found
    return Truth(algebra.either(*most), algebra.both(inside, *least))


def _too_many(load: Load) -> str:
    return f"`{load.input}` is read at too many, or at computed, places"


def _reached(box: TileBox, load: Load) -> Expr:
    """False if the tile's indices are surely all out of range, where a lookup reads 0."""
    algebra, declared, tests = box.algebra, box.variant.input(load.input), []
    for axis, index in enumerate(load.indices):
        if not algebra.uniform(index):
            low, high, _ = box.interval(index)
            size = algebra.leaf(size_symbol(declared.name, axis))
            tests += [algebra.compare("ge", high, algebra.number(0)), algebra.compare("lt", low, size)]
    return algebra.both(*tests)


def direct_entries(box: TileBox, load: Load) -> list[Expr]:
    """All that a lookup can read over the tile, if that is few entries; else nothing."""
    intervals = [box.interval(index) for index in load.indices]
    if prod(interval.width + 1 for interval in intervals) > MOST_ENTRIES:
        return []
    return _loads(box.algebra, load, load.input, [_places(box.algebra, interval) for interval in intervals])


def _entries(box: TileBox, load: Load) -> tuple[list[Expr], list[Expr], Expr] | None:
    """Loads whose minimum bounds the lookup from below, those whose maximum does from above, and if no index is out."""
    direct = direct_entries(box, load)
    if direct:
        return direct, direct, TRUE
    if box.hints.hint_use is HintUse.DENIED and box.variant.input(load.input).nondecreasing:
        return None  # no min/max table is worth making for a hint that is false
    return _blocks(box, load, [box.interval(index) for index in load.indices])


def _places(algebra: Algebra, interval: Interval) -> list[Expr]:
    """All ints from low to high, width + 1 of them at most; high again where there are fewer."""
    between = [
        algebra.min(algebra.add(interval.low, algebra.number(step)), interval.high) for step in range(1, interval.width)
    ]
    ends = [interval.low] if interval.width == 0 else [interval.low, interval.high]
    return [*ends, *between]


def _loads(algebra: Algebra, load: Load, name: str, places: list[list[Expr]]) -> list[Expr]:
    return list(dict.fromkeys(algebra.leaf(Load(load.type, name, indices)) for indices in product(*places)))


def _blocks(box: TileBox, load: Load, intervals: list[Interval]) -> tuple[list[Expr], list[Expr], Expr] | None:
    algebra, declared = box.algebra, box.variant.input(load.input)
    block, last = box.tables.block, intervals[-1]
    start = _start(declared)
    shift = algebra.form(algebra.symbol(start)) if start else algebra.form(algebra.number(0))
    ends = [algebra.form(end).plus(shift) for end in (last.low, last.high)]
    width = -(-last.width // block)
    if prod(interval.width + 1 for interval in intervals[:-1]) * (width + 1) > MOST_ENTRIES:
        return None
    if not all(algebra.fits(end) for end in ends) or declared.type is Type.FLOAT:
        return None
    low, high = (algebra.floordiv(algebra.sum(end), algebra.number(block)) for end in ends)
    places = [_places(algebra, interval) for interval in [*intervals[:-1], Interval(low, high, width)]]
    table = box.tables.read(load.input)
    least, most = (_loads(algebra, load, name, places) for name in (table.min_name, table.max_name))
    size = length_of_axis(algebra, declared)
    inside = algebra.both(algebra.compare("ge", last.low, algebra.number(0)), algebra.compare("lt", last.high, size))
    return least, most, inside


def _start(declared: Input) -> str | None:
    """The symbol to add to the last index, where that axis is packed if batches are."""
    tags = [axis.tag for axis in declared.axes]
    if "batch" not in tags:
        return None
    return {"q": "q_start", "kv": "kv_start", "pos": "kv_start"}.get(tags[-1] or "")

"""Whether all pairs of a tile read the same entry of an input: then a kernel adds up their gradients before memory."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Expr, Load, Variant, walk
from ..algebra.algebra import FALSE, Algebra
from ..algebra.canonical import Canonical
from .box import Box
from .zone_tables import ZoneTables


def same_entry(variant: Variant, block_q: int, block_kv: int, indices: Sequence[Expr]) -> Expr | None:
    """A bool over the tile's ends: if it holds, each index has one value for all pairs of the tile.

    `indices` are ints over positions and inputs. None where that can't be told, or for no tile.
    """
    algebra = Algebra(variant, block_q, block_kv)
    canonical, zones = Canonical(algebra, variant.lets), ZoneTables.for_tiles(block_q, block_kv)
    box = Box(variant, algebra, block_q, block_kv, zones)
    ends = [box.interval(canonical.of(index)) for index in indices]
    found = algebra.both(*(algebra.compare("eq", end.low, end.high) for end in ends))
    reads = any(isinstance(node, Load) for node in walk(found))
    return None if found is FALSE or zones.used or reads else found

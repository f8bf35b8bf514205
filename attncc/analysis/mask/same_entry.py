"""Whether all pairs of a tile read the same entry of an input: then a kernel adds up their gradients before memory."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Expr, Load, Variant, walk
from ..algebra.algebra import FALSE, Algebra
from ..algebra.canonical import Canonical
from .box import Box
from .min_max_tables import MinMaxTables


def same_entry(variant: Variant, block_q: int, block_kv: int, indices: Sequence[Expr]) -> Expr | None:
    """A bool over the tile's ends: if it holds, each index has one value for all pairs of the tile.

    `indices` are ints over positions and inputs. None where that can't be told, or for no tile.
    """
    algebra = Algebra(variant, block_q, block_kv)
    canonical, tables = Canonical(algebra, variant.lets), MinMaxTables.for_tiles(block_q, block_kv)
    box = Box(variant, algebra, block_q, block_kv, tables)
    ends = [box.interval(canonical.of(index)) for index in indices]
    found = algebra.both(*(algebra.compare("eq", end.low, end.high) for end in ends))
    reads = any(isinstance(node, Load) for node in walk(found))
    return None if found is FALSE or tables.used or reads else found

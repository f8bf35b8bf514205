"""The keep lines of a variant in normal form, worked out once for tiles of all sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...ir import Expr, Variant, walk
from ..algebra.algebra import Algebra
from ..algebra.canonical import Canonical
from ..grid_2d import Grid2D
from .implied import Implied, implied

# Nodes of the normal form from which a mask is large: the analysis of one size of tiles takes 0.1 s of a core or more
# then, and commands ask for some ten (docs/notebook/2026-11-trust.md). Larger tiles have coarser rules: fewer tiles
# may be found empty, and results are the same.
LARGE = 300
_KEPT = 16  # variants whose forms are remembered: a large one takes some MB


@dataclass(frozen=True)
class NormalForm:
    """What each keep line says of one pair. `canonical` goes on from there, to other expressions of the variant."""

    algebra: Algebra
    canonical: Canonical
    keeps: tuple[Expr, ...]
    kept: Expr  # all lines together
    implied: Implied  # and what they imply together

    @property
    def nodes(self) -> int:
        """How large it is: what the analysis of tiles goes over."""
        return sum(1 for _ in walk(self.kept))

    def for_tiles(self, block_q: int, block_kv: int, grid_2d: Grid2D | None = None) -> NormalForm:
        """The same over tiles of at most block_q x block_kv pairs, to be added to."""
        algebra = self.algebra.for_tiles(block_q, block_kv, grid_2d)
        return NormalForm(algebra, self.canonical.over(algebra), self.keeps, self.kept, self.implied)


def normal_form(
    variant: Variant, block_q: int, block_kv: int, *, near: bool = False, grid_2d: Grid2D | None = None
) -> NormalForm:
    """The form over tiles of at most block_q x block_kv pairs; `near` as `Terms` has it."""
    return _of_pairs(variant, near, grid_2d).for_tiles(block_q, block_kv, grid_2d)


@lru_cache(maxsize=256)  # each tile of each kernel asks
def is_large(variant: Variant) -> bool:
    """Whether the analysis of a mask takes long: each size of tiles 0.1 to 0.5 s."""
    return _of_pairs(variant, False, None).nodes > LARGE


@lru_cache(maxsize=_KEPT)
def _of_pairs(variant: Variant, near: bool, grid_2d: Grid2D | None) -> NormalForm:
    """Of single pairs: no ends of a tile are spoken of, so that what is found holds for tiles of all sizes."""
    columns = (1, 1) if grid_2d is None else (grid_2d.q_columns, grid_2d.kv_columns)
    algebra = Algebra(variant, *columns, near=near, grid_2d=grid_2d)
    canonical = Canonical(algebra, variant.lets, grid_2d)
    keeps = tuple(canonical.of(keep.condition) for keep in variant.keeps)
    kept = canonical.both(*keeps)
    return NormalForm(algebra, canonical, keeps, kept, implied(algebra, canonical, kept))

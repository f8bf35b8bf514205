"""Masks in the plain words of a 2-D grid: what their lines say together of rows and columns."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ...ir import (
    OFFSET_SYMBOL,
    Apply,
    Const,
    Expr,
    Load,
    Symbol,
    Variant,
    apply,
    const,
    needs,
    substituted,
    symbol,
    walk,
)
from ..algebra.affine import Affine
from ..algebra.algebra import Algebra
from ..algebra.canonical import Canonical
from ..algebra.places import PLACE_SYMBOLS
from ..grid_2d import Grid2D
from .conjunctions import simplified

_WIDEST = 2048  # the widest 2-D grid that is tried: tiles are counted on a sample of at least 256 of its rows
_MOST_WIDTHS, _MOST_NODES = 3, 64  # each width takes as long as the analysis of the mask, and long masks do without
_MOST_WRITTEN = 512  # nodes before that, lets included: the normal form of 250 takes 0.1 s
_NARROWEST = 8  # columns, for a 2-D grid to be an image: fewer are a dilation, which needs no words of rows
_PLAIN_VARIANTS = 64  # that are remembered: each is asked for by all tiles that are tried


@lru_cache(maxsize=_PLAIN_VARIANTS)
def plain(variant: Variant) -> Variant:
    """A variant with the same mask in all calls, in the words of each 2-D grid that it speaks of: for rules alone, as
    an equal variant that was asked for earlier may have its lines at other places."""
    for width in (width for width in widths(variant) if width >= _NARROWEST):
        variant = _rewritten(variant, width, aligned=False)
    return variant


def plain_on(variant: Variant, width: int) -> Variant:
    """The same in calls whose lengths are multiples of the width of a 2-D grid, in its words."""
    return _rewritten(variant, width, aligned=True)


def widths(variant: Variant) -> tuple[int, ...]:
    """The widths of the 2-D grids that a mask may speak of, the largest first: constants that its positions are taken
    apart by. None of masks that read inputs, or the scale, which each call may choose."""
    return _spoken(variant).widths


def speaks_of_rows(variant: Variant, width: int) -> bool:
    """Whether a mask divides positions by the width of a 2-D grid, or by a multiple of it."""
    return any(size % width == 0 for size in _spoken(variant).quotients)


class _Spoken(NamedTuple):
    """What the normal form of a mask says of positions."""

    keeps: tuple[Expr, ...] = ()
    widths: tuple[int, ...] = ()
    quotients: frozenset[int] = frozenset()  # what positions are divided by
    compound: bool = False  # whether a comparison looks at more than a row, or a column, of both sides


@lru_cache(maxsize=_PLAIN_VARIANTS)
def _spoken(variant: Variant) -> _Spoken:
    written = [keep.condition for keep in variant.keeps]
    if len(list(walk(*written, *(let.value for let in needs(variant, *written))))) > _MOST_WRITTEN:
        return _Spoken()
    algebra = Algebra(variant, 1, 1)
    canonical = Canonical(algebra, variant.lets)
    keeps = tuple(canonical.of(keep.condition) for keep in variant.keeps)
    nodes = list(walk(*keeps))
    if len(nodes) > _MOST_NODES or any(isinstance(node, Load) or node == symbol("scale") for node in nodes):
        return _Spoken()
    quotients = {size for node in nodes if isinstance(node, Apply) and node.op == "floordiv" for size in _periods(node)}
    found = quotients | {size for node in nodes for size in _periods(node)}
    widths = sorted((size for size in found if 1 < size <= _WIDEST), reverse=True)[:_MOST_WIDTHS]
    compound = any(_is_compound(algebra, algebra.relations[node][1]) for node in nodes if node in algebra.relations)
    return _Spoken(keeps, tuple(widths), frozenset(quotients), compound)


def _is_compound(algebra: Algebra, form: Affine) -> bool:
    varying = [atom for atom in form.terms if not algebra.uniform(atom)]
    return len(varying) > 2 or any(isinstance(atom, Symbol) or all(algebra.varies(atom)) for atom in varying)


def _periods(node: Expr) -> list[int]:
    """What a quotient or a remainder takes positions apart by: 64 and 512 of x // 64 % 8."""
    match node:
        case Apply(op="floordiv" | "mod", args=(divided, Const(value=size))):
            inner = [part for part in walk(divided) if isinstance(part, Apply) and part.op in ("floordiv", "mod")]
            steps = {part.args[1] for part in inner} or {const(1)}
            if len(steps) == 1 and all(part.op == "floordiv" and not any(map(_periods, part.args)) for part in inner):
                return [int(size) * int(step.value) for step in steps if isinstance(step, Const)]
    return []


def _rewritten(variant: Variant, width: int, *, aligned: bool) -> Variant:
    """Lines that say less of rows and columns than they seem to, beside the others, are written anew, in the few words
    that loop bounds and key sets are made of. All others stay as they are."""
    spoken, grid_2d = _spoken(variant), Grid2D(width, 1, 1)
    if not spoken.compound:
        return variant
    algebra = Algebra(variant, 1, 1, grid_2d=grid_2d)
    of_places = (_Aligned if aligned else Canonical)(algebra, variant.lets, grid_2d)
    before = [of_places.of(keep) for keep in spoken.keeps]
    after = simplified(algebra, [of_places.of(keep.condition) for keep in variant.keeps])
    lines = {
        id(keep): replace(keep, condition=_over_positions(new, width))
        for keep, old, new in zip(variant.keeps, before, after, strict=True)
        if old is not new
    }
    if not lines:
        return variant
    return replace(variant, statements=tuple(lines.get(id(item), item) for item in variant.statements))


class _Aligned(Canonical):
    """Normal forms where lengths are multiples of the width."""

    def _symbol(self, node: Symbol) -> Expr:
        if self._grid_2d is None or node.name not in ("q_len", "kv_len", OFFSET_SYMBOL):
            return super()._symbol(node)
        rows = self._algebra.floordiv(self._algebra.symbol(node.name), self._algebra.number(self._grid_2d.width))
        return self._algebra.mul(rows, self._algebra.number(self._grid_2d.width))


def _over_positions(expr: Expr, width: int) -> Expr:
    places: dict[Expr, Expr] = {}
    for name in PLACE_SYMBOLS:
        op = "floordiv" if "row" in name else "mod"
        places[symbol(name)] = apply(op, symbol(f"{name.partition('_')[0]}_idx"), const(width))
    return substituted(expr, places)

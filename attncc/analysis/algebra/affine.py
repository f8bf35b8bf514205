"""Affine forms, and what is known of positions, lengths and tiles without knowing any of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ...ir import Expr
from ..grid_2d import TileAxis
from .ranges import Range


@dataclass(eq=False, slots=True)  # not frozen: the analysis of a large mask makes 100,000, in a third of the time
class Affine:
    """`const` plus the sum of coefficient x atom, in integers without bounds. No coefficient is 0. Never changed."""

    terms: dict[Expr, int]
    const: int = 0

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """`self + factor * other`."""
        if not other.terms:
            return Affine(self.terms, self.const + factor * other.const)
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + factor * coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Affine(terms, self.const + factor * other.const)

    def times(self, factor: int) -> Affine:
        return Affine({atom: factor * c for atom, c in self.terms.items()} if factor else {}, factor * self.const)

    def shifted(self, by: int) -> Affine:
        return Affine(self.terms, self.const + by)

    @property
    def divisor(self) -> int:
        """The greatest common divisor of the coefficients; 0 without terms."""
        return gcd(*self.terms.values())

    @property
    def key(self) -> frozenset[tuple[Expr, int]]:
        """Equal for two forms that differ by a constant, and for no others."""
        return frozenset(self.terms.items())


def _vertices(block: int, limit: int) -> Iterator[tuple[int, int, int, int]]:
    """The corners of what (index, first, last, length) can be.

    They are all that 0 <= first <= index <= last < length <= limit and last - first < block leave, so a linear form
    over the four has its extremes there.
    """
    for width, offset in ((0, 0), (block - 1, 0), (block - 1, block - 1)):
        rest = limit - width - 1
        for first, length in ((0, width + 1), (0, limit), (rest, limit)):
            yield first + offset, first, first + width, length


class Facts:
    """Bounds of linear forms over one axis' index, first, last and length, exact over all tiles of `axis.block`."""

    def __init__(self, axis: TileAxis) -> None:
        self._vertices = tuple(_vertices(min(axis.block, axis.limit), axis.limit))
        self._length, self._limit = f"{axis.name}_len", axis.limit
        names = (*axis.symbols, self._length)
        self._places = {name: place for place, name in enumerate(names)}
        self._known: dict[tuple[tuple[str, int], ...], Range] = {}

    def range(self, terms: dict[str, int]) -> Range:
        """The range of the sum of coefficient x symbol. Where only the length counts, it may be 0: no tile then."""
        key = tuple(terms.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._range(terms)
        return found

    def _range(self, terms: dict[str, int]) -> Range:
        if terms.keys() <= {self._length}:
            end = terms.get(self._length, 0) * self._limit
            return Range(min(end, 0), max(end, 0))
        factors = [(self._places[name], c) for name, c in terms.items()]
        values = [sum(c * vertex[place] for place, c in factors) for vertex in self._vertices]
        return Range(min(values), max(values))

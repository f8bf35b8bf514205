"""Shared nodes, their static ranges, and sums in normal form: the ground of the mask analysis' algebra."""

from __future__ import annotations

from copy import copy
from typing import Self

from ...evaluate import Environment, evaluate
from ...ir import OFFSET_SYMBOL, Apply, Const, Expr, Load, Search, Symbol, Type, Variant, apply, const, symbol
from ..grid_2d import Grid2D, tile_axes
from .affine import Affine, Facts
from .ranges import INT64, Range, StaticRanges, transfer

# So near that sums and small multiples of such values, positions and 32-bit inputs fit 64 bits.
NEAR = Range(-(2**48), 2**48)

_Piece = tuple[int, Expr]  # a sign and what to add or take away


class Terms:
    """One node for each distinct expression, with its affine form and range, for one variant and tile size.

    With `near`, 64-bit inputs that don't vary over a tile are taken to be within `NEAR`: what is proven then holds for
    calls where they are.
    """

    def __init__(
        self, variant: Variant, block_q: int, block_kv: int, *, near: bool = False, grid_2d: Grid2D | None = None
    ) -> None:
        self.ranges = StaticRanges(variant)
        self.axes = tile_axes(block_q, block_kv, grid_2d)
        self._near = near
        self._facts = tuple(Facts(axis) for axis in self.axes)
        self._nodes: dict[Expr, Expr] = {}
        self._order: dict[Expr, int] = {}
        self._numbers: dict[int, Expr] = {}
        self._forms: dict[Expr, Affine] = {}
        self._sums: dict[tuple[frozenset[tuple[Expr, int]], int], Expr] = {}
        self._known: dict[Expr, Range] = {}
        self._varies: dict[Expr, tuple[bool, bool]] = {}
        self._places: dict[Expr, tuple[str, int]] = {}  # symbols that facts bound together, with the facts' place
        # Terms are written in the order in which they are first met: these first.
        for place, axis in enumerate(self.axes):
            for name in axis.symbols:
                self._places[self.leaf(symbol(name))] = name, place
                self._varies[self.leaf(symbol(name))] = axis.side == "q", axis.side == "kv"
        for name in ("kv_len", "q_len", OFFSET_SYMBOL):
            length, names = self.leaf(symbol(name)), [axis.name for axis in self.axes]
            if name.removesuffix("_len") in names:
                self._places[length] = name, names.index(name.removesuffix("_len"))

    def for_tiles(self, block_q: int, block_kv: int, grid_2d: Grid2D | None = None) -> Self:
        """A copy that knows all that this one does, over tiles of another size, on the same 2-D grid.

        What is known so far must be of positions and lengths alone: no size of tiles changes their ranges.
        """
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(other, name, value.copy())
        other.axes = tile_axes(block_q, block_kv, grid_2d)
        other._facts = tuple(Facts(axis) for axis in other.axes)
        return other

    # ------------------------------------------------------------ nodes

    def leaf(self, expr: Expr) -> Expr:
        """The one shared node that equals `expr`, not simplified."""
        found = self._nodes.get(expr)
        if found is None:
            found = self._nodes[expr] = expr
            self._order[expr] = len(self._order)
        return found

    def node(self, op: str, *args: Expr) -> Expr:
        """`op` over arguments in normal form; a constant where only one value is possible."""
        found = self.leaf(apply(op, *args))
        if found.type is Type.INT:
            if all(isinstance(arg, Const) for arg in args):
                return self.number(int(evaluate(found, Environment({}))))
            low, high = self.range(found)
            return self.number(low) if low == high else found
        return found

    def number(self, value: int) -> Expr:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = self.leaf(const(value))
        return found

    def symbol(self, name: str) -> Expr:
        return self.leaf(symbol(name))

    def varies(self, expr: Expr) -> tuple[bool, bool]:
        """Whether the value depends on the q position or the tile's q side, and whether on its kv side."""
        found = self._varies.get(expr)
        if found is None:
            below = [self.varies(child) for child in expr.children]
            found = any(q for q, _ in below), any(kv for _, kv in below)
            self._varies[expr] = found
        return found

    def uniform(self, expr: Expr) -> bool:
        return self.varies(expr) == (False, False)

    # ------------------------------------------------------------ affine forms

    def form(self, expr: Expr) -> Affine:
        """An int expression in normal form as an affine form over its atoms. They are equal: nothing wraps."""
        found = self._forms.get(expr)
        if found is None:
            found = Affine({}, int(expr.value)) if isinstance(expr, Const) else Affine({expr: 1})
            self._forms[expr] = found
        return found

    def range(self, expr: Expr) -> Range:
        """The static range of an int expression in normal form."""
        found = self._known.get(expr)
        if found is None:
            form = self._forms.get(expr)
            is_sum = form is not None and expr not in form.terms
            found = self._known[expr] = self.form_range(form) if form and is_sum else self._atom_range(expr)
        return found

    def _atom_range(self, expr: Expr) -> Range:
        match expr:
            case Const():
                return Range(int(expr.value), int(expr.value))
            case Symbol():
                known = self._places.get(expr)  # a column lies below the width of its grid
                return self.ranges.symbol(expr.name) if known is None else self._facts[known[1]].range({known[0]: 1})
            case Load():
                found = self.ranges.load(expr.input)
                return NEAR if self._near and found == INT64 and self.uniform(expr) else found
            case Search():
                return Range(0, self.range(expr.length).high)
        assert isinstance(expr, Apply)
        return transfer(expr.op, tuple(self.range(arg) for arg in expr.args if arg.type is Type.INT))

    def form_range(self, form: Affine) -> Range:
        """All values of a form lie in this range, which may exceed 64 bits. Exact for sums of symbols of tiles."""
        low = high = form.const
        groups: dict[int, dict[str, int]] = {}
        for atom, coefficient in form.terms.items():
            found = self._places.get(atom)
            if found is not None:
                name, place = found
                groups.setdefault(place, {})[name] = coefficient
                continue
            first, last = self.range(atom)
            if coefficient < 0:
                first, last = last, first
            low += coefficient * first
            high += coefficient * last
        for place, group in groups.items():
            ends = self._facts[place].range(group)
            low += ends.low
            high += ends.high
        return Range(low, high)

    def fits(self, form: Affine) -> bool:
        return self.form_range(form).fits(64)

    # ------------------------------------------------------------ writing sums

    def sum(self, form: Affine) -> Expr:
        """The expression of a form that fits 64 bits: what varies first, then what is uniform as one node."""
        key = (form.key, form.const)
        found = self._sums.get(key)
        if found is None:
            low, high = self.form_range(form)
            found = self._sums[key] = self.number(low) if low == high else self._write(form)
            if not isinstance(found, Const):
                self._forms.setdefault(found, form)
        return found

    def _write(self, form: Affine) -> Expr:
        ordered = sorted(form.terms, key=self._order.__getitem__)
        varying = [self._piece(atom, form.terms[atom]) for atom in ordered if not self.uniform(atom)]
        fixed = [self._piece(atom, form.terms[atom]) for atom in ordered if self.uniform(atom)]
        if form.const:
            fixed.append(self._piece(self.number(1), form.const))
        if not varying or not fixed:
            return self._chain(varying or fixed)
        sign = 1 if any(sign > 0 for sign, _ in fixed) else -1
        return self._chain([*varying, (sign, self._chain([(sign * inner, term) for inner, term in fixed]))])

    def _piece(self, atom: Expr, coefficient: int) -> _Piece:
        size = self.number(abs(coefficient))
        if isinstance(atom, Const):
            term = size
        else:
            term = atom if abs(coefficient) == 1 else self.leaf(apply("mul", atom, size))
        return (1 if coefficient > 0 else -1), term

    def _chain(self, pieces: list[_Piece]) -> Expr:
        """Added pieces, then those taken away, then the constant: sums that differ by a constant share the rest."""
        ordered = sorted(pieces, key=lambda piece: (isinstance(piece[1], Const), -piece[0]))
        if ordered[0][0] < 0 and ordered[-1][0] > 0:
            ordered.insert(0, ordered.pop())
        (sign, total), *rest = ordered
        total = total if sign > 0 else self.leaf(apply("neg", total))
        for sign, term in rest:
            total = self.leaf(apply("add" if sign > 0 else "sub", total, term))
        return total

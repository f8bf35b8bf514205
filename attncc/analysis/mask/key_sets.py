"""Which keys of a tile one row keeps, as sets whose members follow from a few limits: kernels make bits of them, once
for each row and tile, in place of a test of each pair.

A condition becomes a set by its normal form, which is solved for kv_idx as `bounds` does it, but for one row: so each
step is an equality, and a key is in the set exactly if the condition holds for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ...ir import Apply, Const, Expr, Keep, Symbol, Variant, apply, substituted, symbol
from ..algebra.affine import Affine
from ..algebra.algebra import Relation
from ..grid_2d import Grid2D
from .normal_form import normal_form


@dataclass(frozen=True)
class OfRow:
    """All keys or none: a condition without kv_idx."""

    holds: Expr


@dataclass(frozen=True)
class Below:
    """kv_idx < limit. The limit, and how far it is from a key of the tile, fit 32 bits."""

    limit: Expr


@dataclass(frozen=True)
class RemainderBelow:
    """(kv_idx + shift) % period < limit. The limit fits 32 bits with a few periods added to it or taken away."""

    shift: Expr
    period: int
    limit: Expr


@dataclass(frozen=True)
class Repeating:
    """What holds for kv_idx holds for kv_idx + `LaneKeys.step`."""

    holds: Expr


@dataclass(frozen=True)
class RowsBelow:
    """Of a window: the keys whose row of the grid is below a limit, which fits 32 bits."""

    limit: Expr


@dataclass(frozen=True)
class ColumnsBelow:
    """Of a window: the keys whose column of the grid is below a limit, which fits 32 bits."""

    limit: Expr


@dataclass(frozen=True)
class Outside:
    """All other keys."""

    of: KeySet


@dataclass(frozen=True)
class Common:
    parts: tuple[KeySet, ...]


@dataclass(frozen=True)
class United:
    parts: tuple[KeySet, ...]


KeySet = OfRow | Below | RemainderBelow | Repeating | RowsBelow | ColumnsBelow | Outside | Common | United


def common_parts(keys: KeySet) -> Iterator[KeySet]:
    """Sets of which the members are those common to all."""
    if isinstance(keys, Common):
        for part in keys.parts:
            yield from common_parts(part)
    else:
        yield keys


def size(keys: KeySet) -> int:
    """How many sets it is made of, each as often as it stands there."""
    match keys:
        case Outside(of):
            return size(of)
        case Common(parts) | United(parts):
            return sum(map(size, parts))
    return 1


def of_columns(keys: KeySet) -> bool:
    """Of a window: whether the rows of its keys don't count, so that the set is the same in all its tiles."""
    match keys:
        case Outside(of):
            return of_columns(of)
        case Common(parts) | United(parts):
            return all(map(of_columns, parts))
    return isinstance(keys, ColumnsBelow | OfRow)


@dataclass(frozen=True)
class LaneKeys:
    """The keys that a lane of a warp holds of a tile: from its first on, two that are `side` apart in each `step`.

    Of a `window` they are neighbours in its rows, which are sets apart; its keys are counted from the tile's first.
    """

    step: int = 8
    side: int = 1
    window: Grid2D | None = None

    @classmethod
    def of(cls, grid_2d: Grid2D | None) -> LaneKeys:
        """Two neighbours among 8 columns of the scores, which are positions, or slots of a 2-D tile."""
        if grid_2d is None:
            return cls()
        if grid_2d.window:
            return cls(window=grid_2d)
        if grid_2d.kv_columns == 1:
            return cls(8 * grid_2d.width, grid_2d.width)
        return cls(8 // grid_2d.kv_columns * grid_2d.width)


_NEAR = 2**31 - 2**16  # leaves 32-bit ints room for the keys of a tile
_MOST_PERIODS = 3  # of a remainder in one tile: each costs two limits
_MOST_SETS = 10_000  # that a set is made of
_MOST_CHOOSING = 32  # that a choice is made of: it stands there twice, so choices of choices double


class KeySets:
    """Key sets of the conditions of a variant, in tiles of `block_kv` keys."""

    def __init__(self, variant: Variant, block_kv: int, lane: LaneKeys) -> None:
        self._lane = lane
        form = normal_form(variant, 1, block_kv)
        self._algebra, self._canonical = form.algebra, form.canonical
        self._block_kv = block_kv
        self._q_pos = self._canonical.of(symbol("q_pos"))
        self._known: dict[Expr, KeySet | None] = {}
        self._repeating: dict[Expr, bool] = {}

    def of(self, condition: Expr) -> KeySet | None:
        """The keys of a row for which the condition holds; None if that needs a test of each."""
        return self._set(self._canonical.of(condition))

    def _set(self, expr: Expr) -> KeySet | None:
        if expr not in self._known:
            self._known[expr] = self._solved(expr)
        return self._known[expr]

    def _solved(self, expr: Expr) -> KeySet | None:
        if not self._algebra.varies(expr)[1]:
            return OfRow(self._written(expr))
        repeats = self._lane.window is None and self._repeats(expr)
        return Repeating(self._written(expr)) if repeats else self._limits(expr)

    def _written(self, expr: Expr) -> Expr:
        """With q_pos by its name, of which more is known: where it indexes an input, and that other lines read it."""
        return substituted(expr, {self._q_pos: symbol("q_pos")})

    def _limits(self, expr: Expr) -> KeySet | None:
        if expr in self._algebra.relations:
            return self._comparison(*self._algebra.relations[expr])
        if not isinstance(expr, Apply) or expr.op not in ("and", "or", "select"):
            return None
        parts = tuple(self._set(arg) for arg in expr.args)
        known = tuple(part for part in parts if part is not None)
        if len(known) < len(parts) or sum(map(size, known)) > _MOST_SETS:
            return None
        if expr.op == "select":
            condition, a, b = known
            if size(condition) > _MOST_CHOOSING:
                return None
            return United((Common((condition, a)), Common((Outside(condition), b))))
        return Common(known) if expr.op == "and" else United(known)

    # ------------------------------------------------------------ comparisons

    def _comparison(self, relation: Relation, form: Affine) -> KeySet | None:
        if relation is Relation.BELOW:
            return self._below(form, Affine({}))
        sides = self._below(form, Affine({})), self._below(form.times(-1), Affine({}))
        if sides[0] is None or sides[1] is None:
            return None
        equal = Common((sides[0], sides[1]))
        return equal if relation is Relation.ZERO else Outside(equal)

    def _below(self, form: Affine, beyond: Affine) -> KeySet | None:
        """Where form + beyond <= 0; `beyond` does not vary from key to key."""
        algebra = self._algebra
        moving = [atom for atom in form.terms if algebra.varies(atom)[1]]
        if len(moving) != 1:
            return None
        atom, factor = moving[0], form.terms[moving[0]]
        limit = form.plus(Affine({atom: factor}), -1).plus(beyond).times(-1)
        if abs(factor) > 1:
            if not algebra.fits(limit):
                return None
            limit = algebra.form(algebra.floordiv(algebra.sum(limit), algebra.number(abs(factor))))
        at_most, limit = factor > 0, limit if factor > 0 else limit.times(-1)
        limited = self._limited if self._lane.window is None else self._in_window
        return limited(atom, at_most, limit)

    def _limited(self, atom: Expr, at_most: bool, limit: Affine) -> KeySet | None:
        """Where the atom is at most, or at least, a limit."""
        if isinstance(atom, Symbol):
            return self._half(at_most, limit)
        if not isinstance(atom, Apply) or atom.op not in ("floordiv", "mod") or not isinstance(atom.args[1], Const):
            return None
        inner, size = self._algebra.form(atom.args[0]), int(atom.args[1].value)
        if size <= 0:
            return None
        if atom.op == "mod":
            return self._remainder(inner, size, at_most, limit)
        if at_most:  # x // c <= t is x - c * t - c + 1 <= 0
            return self._below(inner, limit.times(-size).shifted(1 - size))
        return self._below(inner.times(-1), limit.times(size))  # x // c >= t is c * t - x <= 0

    def _in_window(self, atom: Expr, at_most: bool, limit: Affine) -> KeySet | None:
        """Where the atom is a key's row or column of the grid, and at most, or at least, a limit."""
        algebra, grid_2d, end = self._algebra, self._lane.window, limit.shifted(1) if at_most else limit
        assert grid_2d is not None
        place = algebra.symbol("kv_idx"), algebra.number(grid_2d.width)
        if not isinstance(atom, Apply) or atom.args != place or not algebra.fits(end):
            return None
        found: KeySet
        if atom.op == "mod":
            found = ColumnsBelow(self._written(self._near(end, end, algebra.number(grid_2d.width))))
        else:
            found = RowsBelow(self._written(self._near(end, end, algebra.symbol("kv_len"))))
        return found if at_most else Outside(found)

    def _half(self, at_most: bool, limit: Affine) -> KeySet | None:
        end = limit.shifted(1) if at_most else limit
        if not self._algebra.fits(end):
            return None
        distance = end.plus(Affine({self._algebra.symbol("kv_idx"): 1}), -1)
        below = Below(self._written(self._near(end, distance, self._algebra.symbol("kv_len"))))
        return below if at_most else Outside(below)

    def _near(self, limit: Affine, distance: Affine, most: Expr) -> Expr:
        """A limit; if it or the distance may be far from 0, clamped to mean the same for what is 0 to most - 1."""
        limit, distance = self._by_q_pos(limit), self._by_q_pos(distance)  # of q_pos a range is known
        found = self._algebra.sum(limit)
        ranges = self._algebra.form_range(limit), self._algebra.form_range(distance)
        if all(low >= -_NEAR and high <= _NEAR for low, high in ranges):
            return found
        return self._algebra.min(self._algebra.max(found, self._algebra.number(0)), most)

    def _by_q_pos(self, form: Affine) -> Affine:
        """The same form, with q_pos where it holds its two terms: rows know that already."""
        q_pos = self._algebra.form(self._q_pos)
        factor = form.terms.get(self._algebra.symbol("q_idx"), 0)
        if factor == 0 or any(form.terms.get(atom) != factor * sign for atom, sign in q_pos.terms.items()):
            return form
        return form.plus(q_pos, -factor).plus(Affine({self._algebra.symbol("q_pos"): factor}))

    def _remainder(self, inner: Affine, period: int, at_most: bool, limit: Affine) -> KeySet | None:
        if self._lane != LaneKeys():
            return None
        kv_idx = self._algebra.symbol("kv_idx")
        shift, end = inner.plus(Affine({kv_idx: 1}), -1), limit.shifted(1) if at_most else limit
        moves = any(self._algebra.varies(atom)[1] for atom in shift.terms)
        if moves or not self._algebra.fits(shift) or not self._algebra.fits(end):
            return None
        end_in_period = self._near(end, end.times(2), self._algebra.number(period))
        below = RemainderBelow(self._written(self._algebra.sum(shift)), period, self._written(end_in_period))
        count = periods(below, self._block_kv)
        if count > _MOST_PERIODS or count * period > 2**29:
            return None
        return below if at_most else Outside(below)

    # ------------------------------------------------------------ repetition

    def _repeats(self, expr: Expr) -> bool:
        """Whether kv_idx counts only through remainders whose period divides the step of a lane's keys."""
        if expr not in self._repeating:
            self._repeating[expr] = self._repeats_by_parts(expr)
        return self._repeating[expr]

    def _repeats_by_parts(self, expr: Expr) -> bool:
        if not self._algebra.varies(expr)[1]:
            return True
        if isinstance(expr, Symbol):
            return False
        if isinstance(expr, Apply) and expr.op == "mod" and isinstance(expr.args[1], Const):
            form, size = self._algebra.form(expr.args[0]), int(expr.args[1].value)
            factor = form.terms.get(self._algebra.symbol("kv_idx"), 0)
            others = all(self._repeats(atom) for atom in form.terms if not isinstance(atom, Symbol))
            if size and others and self._lane.step % (abs(size) // gcd(size, factor)) == 0:
                return True
        return all(map(self._repeats, expr.children))


def periods(remainder: RemainderBelow, block_kv: int) -> int:
    """How many periods a tile meets at most; its first kv_idx is a multiple of block_kv (`KernelPlan.aligns_tiles`)."""
    if remainder.shift == Const(remainder.shift.type, 0):
        if remainder.period % block_kv == 0:
            return 1
        if block_kv % remainder.period == 0:
            return block_kv // remainder.period
    return (block_kv - 2) // remainder.period + 2


# -------------------------------------------------------------------- keep lines


@dataclass(frozen=True)
class KeepMask:
    """A keep line as the keys of a set for which also a test of `each` pair holds; None where there is no such part."""

    keep: Keep
    keys: KeySet | None
    each: Expr | None


def pairwise_masks(variant: Variant) -> Iterator[KeepMask]:
    """The keep lines of a variant, all to be tested pair by pair."""
    return (KeepMask(keep, None, keep.condition) for keep in variant.keeps)


def keep_masks(variant: Variant, block_kv: int, lane: LaneKeys = LaneKeys()) -> Iterator[KeepMask]:
    """The keep lines of a variant, as much of each as can be a key set."""
    sets = KeySets(variant, block_kv, lane)
    for keep in variant.keeps:
        parts = [(part, sets.of(part)) for part in _conjunction(keep.condition)]
        keys = tuple(found for _, found in parts if found is not None)
        tests = tuple(part for part, found in parts if found is None)
        yield KeepMask(
            keep,
            (Common(keys) if len(keys) > 1 else keys[0]) if keys else None,
            keep.condition if not keys else apply("and", *tests) if len(tests) > 1 else next(iter(tests), None),
        )


def _conjunction(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Apply) and condition.op == "and":
        for part in condition.args:
            yield from _conjunction(part)
    else:
        yield condition

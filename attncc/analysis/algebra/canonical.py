"""Turns `keep` lines into normal form: what a line says of one pair, in the terms that the analysis can bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isqrt

from ...ir import OFFSET_SYMBOL, Apply, Const, Expr, Let, Load, Local, Symbol, Type, symbol, walk
from ...operators import COMPARISONS
from ..grid_2d import Grid2D, position
from .affine import Affine
from .algebra import FALSE, TRUE, Algebra, Relation
from .arcs import arc_of, joined
from .bitwise import equal_where_below, equal_where_zero
from .float_bounds import of_ints

# A comparison is taken apart at most so many times along one path: min(a, min(b, ...)) < c and the like.
_MOST_SPLITS = 5

# A sum of more such terms stays as it is: each would double the work.
_MOST_HIDING = 3

_SPLIT = frozenset({"min", "max", "abs", "select"})


class Canonical:
    """Normal forms of expressions of a variant, lets included, kept as they are asked for."""

    def __init__(self, algebra: Algebra, lets: Mapping[str, Let], grid_2d: Grid2D | None = None) -> None:
        self._algebra = algebra
        self._grid_2d = grid_2d
        self._lets = lets
        self._known: dict[Expr, Expr] = {}

    def over(self, algebra: Algebra) -> Canonical:
        """A copy that goes on with a copy of its algebra."""
        other = Canonical(algebra, self._lets, self._grid_2d)
        other._known = self._known.copy()
        return other

    def of(self, expr: Expr) -> Expr:
        """An expression without lets and q_pos that equals `expr`."""
        for node in walk(expr):
            if node not in self._known:
                self._known[node] = self._node(node)
        return self._known[expr]

    def _node(self, node: Expr) -> Expr:
        algebra = self._algebra
        match node:
            case Local():
                return self.of(self._lets[node.name].value)
            case Symbol():
                return self._symbol(node)
            case Load():
                return algebra.leaf(Load(node.type, node.input, tuple(self._known[index] for index in node.indices)))
            case Apply():
                return self._applied(node, [self._known[arg] for arg in node.args])
        return algebra.leaf(node)

    def _applied(self, node: Apply, args: list[Expr]) -> Expr:
        op = node.op
        if op in COMPARISONS and args[0].type is Type.FLOAT and (ints := of_ints(op, *args)) is not None:
            op, *args = ints[0], *map(self._algebra.leaf, ints[1:])
        if op in COMPARISONS and args[0].type is Type.INT:
            return self._comparison(op, args[0], args[1])
        if op in ("and", "or"):
            return self._logic(op, args)
        made = self._algebra.make(op, *args)
        if op == "not" and made in self._algebra.relations:
            relation, form = self._algebra.relations[made]
            return self._of_arc(relation, form, _MOST_SPLITS) or made
        return made

    def both(self, *args: Expr) -> Expr:
        """All of the bools, which are in normal form."""
        return self._logic("and", args)

    def _logic(self, op: str, args: Iterable[Expr]) -> Expr:
        parts = [
            inner for arg in args for inner in (arg.children if isinstance(arg, Apply) and arg.op == op else (arg,))
        ]
        return self._algebra.make(op, *joined(op, parts, self._algebra))

    def _symbol(self, node: Symbol) -> Expr:
        algebra = self._algebra
        if node.name == "q_pos":
            return algebra.add(self.of(symbol("q_idx")), self.of(symbol(OFFSET_SYMBOL)))
        if self._grid_2d is not None and node.name in ("q_idx", "kv_idx"):
            return self.of(position(node.name.removesuffix("_idx"), self._grid_2d))
        return algebra.leaf(node)

    # ------------------------------------------------------------ comparisons, taken apart

    def below(self, form: Affine) -> Expr | None:
        """form <= 0, taken apart; None where it isn't sure to fit 64 bits however it is written."""
        return self._split(Relation.BELOW, form, _MOST_SPLITS)

    def _comparison(self, op: str, a: Expr, b: Expr) -> Expr:
        relation, form = self._algebra.relate(op, a, b)
        parts = self._split(relation, form, _MOST_SPLITS)
        return self._algebra.compare(op, a, b) if parts is None else parts

    def _split(self, relation: Relation, form: Affine, splits: int) -> Expr | None:
        """The comparison without a min, max, abs or select that hides how its two sides move together."""
        algebra = self._algebra
        whole = algebra.related(relation, form)
        if whole is TRUE or whole is FALSE or splits == 0:
            return whole
        if relation is Relation.NONZERO:
            zero = self._split(Relation.ZERO, form, splits)
            return None if zero is None else algebra.negation(zero)
        told = self._of_bits(relation, form) or self._of_arc(relation, form, splits)
        if told is not None:
            return told
        opened = self._opened(relation, form, splits)
        return self._unhidden(relation, form, splits, whole) if opened is None else opened

    def _of_bits(self, relation: Relation, form: Affine) -> Expr | None:
        """Of bits that are compared: the numbers that are equal, or not."""
        equal, are = equal_where_zero(form, self._algebra), True
        if relation is Relation.BELOW:
            equal, are = equal_where_below(form, self._algebra)
        if not equal:
            return None
        found = self.both(*(self._comparison("eq", x, y) for x, y in equal))
        return found if are else self._algebra.negation(found)

    def _of_arc(self, relation: Relation, form: Affine, splits: int) -> Expr | None:
        """Of a distance's remainder: its range, if it comes around once, else the arc in its one form."""
        arc = arc_of(relation, form, self._algebra)
        if arc is None:
            return None
        places = arc.only_range(self._algebra)
        if places is None:
            return arc.written(self._algebra) if relation is Relation.BELOW else None
        if arc.size == 1:
            return self._split(Relation.ZERO, arc.distance.shifted(-places[0]), splits - 1)
        sides = arc.distance.times(-1).shifted(places[0]), arc.distance.shifted(-places[1])
        ends = [self._split(Relation.BELOW, side, splits - 1) for side in sides]
        return None if ends[0] is None or ends[1] is None else self._algebra.both(ends[0], ends[1])

    def _unhidden(self, relation: Relation, form: Affine, splits: int, whole: Expr | None) -> Expr | None:
        """The same of what no quotient or square hides; `whole` is the comparison as it is."""
        algebra = self._algebra
        hiding = list(self._hiding(form))
        if not 1 <= len(hiding) <= _MOST_HIDING:
            return self._congruence(form) if relation is Relation.ZERO and whole is not None else whole
        atom = hiding[0]
        if atom.op == "select":
            condition, a, b = atom.args
            first, second = (self._split(relation, _replaced(form, atom, x, algebra), splits - 1) for x in (a, b))
            return None if first is None or second is None else algebra.choice(condition, first, second)
        if relation is Relation.ZERO:
            ends = [self._split(Relation.BELOW, side, splits) for side in (form, form.times(-1))]
            return None if ends[0] is None or ends[1] is None else algebra.both(ends[0], ends[1])
        return self._split_extreme(form, atom, splits)

    def _split_extreme(self, form: Affine, atom: Apply, splits: int) -> Expr | None:
        """max(a, b) <= c is a <= c and b <= c, min(a, b) <= c has `or`, and abs(a) is max(a, -a)."""
        algebra = self._algebra
        arms = (atom.args[0], algebra.neg(atom.args[0])) if atom.op == "abs" else atom.args
        split = [self._split(Relation.BELOW, _replaced(form, atom, arm, algebra), splits - 1) for arm in arms]
        parts = [part for part in split if part is not None]
        if len(parts) < len(split):
            return None
        either = (atom.op == "min") == (form.terms[atom] > 0)
        return self._logic("or" if either else "and", parts)

    def _opened(self, relation: Relation, form: Affine, splits: int) -> Expr | None:
        """Without a quotient, or a square, that hides how the sides move together: bounds of what it is made of."""
        for atom, factor in form.terms.items():
            if not (isinstance(atom, Apply) and atom.op in ("floordiv", "mul") and all(self._algebra.varies(atom))):
                continue
            rest = form.plus(Affine({atom: factor}), -1).times(1 if factor < 0 else -1)  # factor * atom <= or >= rest
            if rest.terms and abs(factor) > 1:
                continue
            if relation is Relation.ZERO:
                both = [self._opened(Relation.BELOW, side, splits) for side in (form, form.times(-1))]
                return None if both[0] is None or both[1] is None else self._algebra.both(both[0], both[1])
            if relation is Relation.BELOW:
                at_most = factor > 0
                limit = rest.const // factor if at_most else -(rest.const // factor)
                bound = rest if rest.terms else Affine({}, limit)
                of = self._of_quotient if atom.op == "floordiv" else self._of_square
                return of(atom, at_most, bound, splits)
        return None

    def _of_quotient(self, atom: Apply, at_most: bool, limit: Affine, splits: int) -> Expr | None:
        """x // c <= t is x <= c * t + c - 1, and x // c >= t is x >= c * t."""
        size = int(atom.args[1].value) if isinstance(atom.args[1], Const) else 0
        if size <= 0:
            return None
        inner, end = self._algebra.form(atom.args[0]), limit.times(-size)
        form = inner.plus(end).shifted(1 - size) if at_most else inner.plus(end).times(-1)
        return self._split(Relation.BELOW, form, splits - 1)

    def _of_square(self, atom: Apply, at_most: bool, limit: Affine, splits: int) -> Expr | None:
        """abs(x) * abs(x) <= n is abs(x) <= isqrt(n)."""
        side, (low, high) = atom.args[0], self._algebra.range(atom.args[0])
        if atom.args[1] is not side or limit.terms or low < 0 or high**2 >= 2**63:
            return None
        if limit.const < 0:
            return FALSE if at_most else TRUE
        root, form = isqrt(limit.const), self._algebra.form(side)
        if at_most:
            return self._split(Relation.BELOW, form.shifted(-root), splits - 1)
        least = root + (root * root < limit.const)
        return self._split(Relation.BELOW, form.times(-1).shifted(least), splits - 1)

    def _hiding(self, form: Affine) -> Iterator[Apply]:
        """Atoms worth taking apart: of the kv position, alone in the form, or varying together with other terms."""
        for atom in form.terms:
            if isinstance(atom, Apply) and atom.op in _SPLIT:
                q, kv = self._algebra.varies(atom)
                others = [self._algebra.varies(other) for other in form.terms if other is not atom]
                if kv or (q and (not any(map(any, others)) or any(other_q for other_q, _ in others))):
                    yield atom

    def _congruence(self, form: Affine) -> Expr | None:
        """x % c == y % c is (x - y) % c == 0, and of abs(x) % c == 0 the sign doesn't matter."""
        algebra = self._algebra
        distance = None
        atoms = [atom for atom in form.terms if isinstance(atom, Apply) and atom.op == "mod"]
        if form.const == 0 and len(atoms) == len(form.terms):
            if len(atoms) == 1:
                (inner,) = atoms[0].args[:1]
                distance = algebra.form(inner.args[0]) if isinstance(inner, Apply) and inner.op == "abs" else None
            elif len(atoms) == 2 and sum(form.terms.values()) == 0 and atoms[0].args[1] is atoms[1].args[1]:
                distance = algebra.form(atoms[0].args[0]).plus(algebra.form(atoms[1].args[0]), -1)
        if distance is None or not algebra.fits(distance):
            return algebra.related(Relation.ZERO, form)
        remainder = algebra.form(algebra.mod(algebra.sum(distance), atoms[0].args[1]))
        return self._of_arc(Relation.ZERO, remainder, 1) or algebra.related(Relation.ZERO, remainder)


def _replaced(form: Affine, atom: Expr, by: Expr, algebra: Algebra) -> Affine:
    coefficient = form.terms[atom]
    return form.plus(Affine({atom: 1}), -coefficient).plus(algebra.form(by), coefficient)

"""Constructors of int expressions: each gives an expression in normal form that equals its operator, wrapping included.

A rule that is only true of integers without bounds is used where ranges prove that nothing leaves 64 bits.
"""

from __future__ import annotations

from itertools import combinations
from math import gcd

from ...ir import Apply, Const, Expr
from .affine import Affine
from .terms import Terms

# Above this many arguments, min and max don't look for arguments that others make needless.
_MOST_COMPARED = 8


class Integers(Terms):
    """int -> int. Arguments are in normal form."""

    def _sum_or(self, form: Affine, op: str, *args: Expr) -> Expr:
        """The form as a sum where it can't wrap, else the operator as it is."""
        return self.sum(form) if self.fits(form) else self.node(op, *args)

    def add(self, a: Expr, b: Expr) -> Expr:
        return self._sum_or(self._with_remainders(self.form(a).plus(self.form(b))), "add", a, b)

    def sub(self, a: Expr, b: Expr) -> Expr:
        return self._sum_or(self._with_remainders(self.form(a).plus(self.form(b), -1)), "sub", a, b)

    def neg(self, a: Expr) -> Expr:
        return self._sum_or(self.form(a).times(-1), "neg", a)

    def bitnot(self, a: Expr) -> Expr:
        return self.sum(self.form(a).times(-1).shifted(-1))

    def mul(self, a: Expr, b: Expr) -> Expr:
        if isinstance(a, Const):
            a, b = b, a
        if isinstance(b, Const):
            return self._sum_or(self.form(a).times(int(b.value)), "mul", a, b)
        if a is b:  # a square: its factors have one sign, which bounds of each alone would miss
            a = b = self.abs(a)
        return self.node("mul", *sorted((a, b), key=self._order.__getitem__))

    def _with_remainders(self, form: Affine) -> Affine:
        """In a sum, `x - c * (x // c)` is `x % c`, `x - x % c` is `c * (x // c)`, and `x % (c * n) - c * (x // c % n)`
        is `x % c`."""
        found = self._with_remainder(form)
        while found is not None and len(found.terms) < len(form.terms):
            form, found = found, self._with_remainder(found)
        return found or form

    def _with_remainder(self, form: Affine) -> Affine | None:
        """With one of these; None where there is none."""
        for atom, coefficient in form.terms.items():
            if not isinstance(atom, Apply) or atom.op not in ("floordiv", "mod"):
                continue
            shorter = self._shorter_remainder(form, atom, coefficient)
            if shorter is not None:
                return shorter
            x, c = atom.args
            size = int(c.value) if isinstance(c, Const) else 0
            times, rest = divmod(-coefficient, size if atom.op == "floordiv" else 1) if size else (0, 1)
            inner = self.form(x)
            if rest == 0 and all(form.terms.get(term) == times * k for term, k in inner.terms.items()):
                without = form.plus(Affine({atom: coefficient}), -1).plus(inner, -times)
                if atom.op == "floordiv":
                    return without.plus(self.form(self.mod(x, c)), times)
                return without.plus(self.form(self.floordiv(x, c)), times * size)
        return None

    def _shorter_remainder(self, form: Affine, atom: Apply, coefficient: int) -> Affine | None:
        """The last of these, where the atom is x // c % n."""
        quotient, n = atom.args
        if atom.op != "mod" or not isinstance(quotient, Apply) or quotient.op != "floordiv":
            return None
        x, c = quotient.args
        if not isinstance(c, Const) or not isinstance(n, Const) or c.value < 1 or coefficient % int(c.value):
            return None
        whole, times = self.mod(x, self.number(int(c.value) * int(n.value))), -coefficient // int(c.value)
        if form.terms.get(whole) != times:
            return None
        rest = form.plus(Affine({atom: coefficient}), -1).plus(Affine({whole: times}), -1)
        return rest.plus(self.form(self.mod(x, c)), times)

    def correlated(self, form: Affine, ops: tuple[str, ...]) -> Affine:
        """The same form, with terms that move together brought together: what a bound of each alone would miss.

        `(x + k) // c - x // c` is `(x % c + k) // c` for a uniform k, and for remainders it is k - c times that. `ops`
        says which of the two operators to look at.
        """
        form = self._with_remainders(form)
        atoms = [atom for atom in form.terms if isinstance(atom, Apply) and atom.op in ops]
        for a, b in combinations(atoms, 2):
            (x, c), (y, d), factor = a.args, b.args, form.terms[a]
            shift = self.form(x).plus(self.form(y), -1)
            if a.op != b.op or c is not d or not isinstance(c, Const) or form.terms[b] != -factor:
                continue
            if all(self.uniform(atom) for atom in shift.terms) and self.fits(shift):
                carry = self.form(self.floordiv(self.add(self.mod(y, c), self.sum(shift)), c))
                change = carry if a.op == "floordiv" else shift.plus(carry, -int(c.value))
                return form.plus(Affine({a: factor, b: -factor}), -1).plus(change, factor)
        return form

    # ------------------------------------------------------------ division

    def floordiv(self, a: Expr, b: Expr) -> Expr:
        if not isinstance(b, Const):
            return self.node("floordiv", a, b)
        c = int(b.value)
        if c < 0 and self.fits(self.form(a).times(-1)) and c != -(2**63):
            return self.floordiv(self.neg(a), self.number(-c))
        if c <= 1:
            return self.node("floordiv", a, b) if c < 0 else self.number(0) if c == 0 else a
        whole, rest = _split(self.form(a), c)
        rest, c, _ = _reduced(rest, c)
        low, high = (end // c for end in self.form_range(rest))
        if low == high:
            return self._sum_or(whole.shifted(low), "floordiv", a, b)
        if not self.fits(rest):
            return self.node("floordiv", a, b)
        rest, c, _ = self._without_digits(rest, c)
        quotient = self._quotient(self.sum(rest), c)
        return self._sum_or(whole.plus(self.form(quotient)), "floordiv", a, b)

    def _quotient(self, a: Expr, c: int) -> Expr:
        """(x // m) // c is x // (m * c), and (x % (m * c)) // c is x // c % m."""
        if c == 1:
            return a
        if isinstance(a, Apply) and a.op in ("floordiv", "mod") and isinstance(a.args[1], Const):
            size = int(a.args[1].value)
            if a.op == "floordiv" and size > 0 and size * c < 2**63:
                return self.floordiv(a.args[0], self.number(size * c))
            if a.op == "mod" and size > 0 and size % c == 0:
                return self.mod(self.floordiv(a.args[0], self.number(c)), self.number(size // c))
        return self.node("floordiv", a, self.number(c))

    def _without_digits(self, form: Affine, c: int) -> tuple[Affine, int, Affine]:
        """(y, c / g, z) with form = g * y + z and 0 <= z < g, g the largest divisor of c for which there is such a z.

        So form // c = y // (c / g), and form % c = g * (y % (c / g)) + z: of a row's 64 places, in a frame of 48 rows,
        64 * row + place is row % 48 rows and a place further.
        """
        for g in sorted({gcd(c, k) for k in form.terms.values()} - {1}, reverse=True):
            whole, rest = _split(form, g)
            low, high = self.form_range(rest)
            if low >= 0 and high < g:
                return whole, c // g, rest
        return form, c, Affine({})

    def mod(self, a: Expr, b: Expr) -> Expr:
        if not isinstance(b, Const):
            return self.node("mod", a, b)
        c = int(b.value)
        if c < 0 and self.fits(self.form(a).times(-1)) and c != -(2**63):
            return self.neg(self.mod(self.neg(a), self.number(-c)))
        if c <= 1:
            return self.node("mod", a, b) if c < 0 else self.number(0)
        _, rest = _split(self._without_remainders(self.form(a), c), c)
        rest, small, extra = _reduced(rest, c)
        low, high = (end // small for end in self.form_range(rest))
        if low == high:
            return self.sum(rest.shifted(-low * small).times(c // small).shifted(extra))
        if not self.fits(rest):
            return self.node("mod", a, b)
        rest, within, digits = self._without_digits(rest, small)
        remainder = self.number(0) if within == 1 else self.node("mod", self.sum(rest), self.number(within))
        found = self.form(remainder).times(small // within).plus(digits)
        return self.sum(found.times(c // small).shifted(extra))

    def _without_remainders(self, form: Affine, c: int) -> Affine:
        """(x % m) % c is x % c where c divides m."""
        for atom, coefficient in form.terms.items():
            size = atom.args[1] if isinstance(atom, Apply) and atom.op == "mod" else None
            if isinstance(size, Const) and int(size.value) % c == 0:
                form = form.plus(Affine({atom: coefficient}), -1).plus(self.form(atom.children[0]), coefficient)
        return form

    # ------------------------------------------------------------ bits

    def shl(self, a: Expr, b: Expr) -> Expr:
        if not isinstance(b, Const):
            return self.node("shl", a, b)
        if not 0 <= b.value < 64:
            return self.number(0)
        return self._sum_or(self.form(a).times(1 << int(b.value)), "shl", a, b)

    def shr(self, a: Expr, b: Expr) -> Expr:
        if not isinstance(b, Const):
            return self.node("shr", a, b)
        if not 0 <= b.value < 63:
            return self.node(
                "shr", a, self.number(63)
            )  # all counts from 63 on, and negative ones, leave the sign alone
        return self.floordiv(a, self.number(1 << int(b.value)))

    def bitand(self, a: Expr, b: Expr) -> Expr:
        if isinstance(a, Const):
            a, b = b, a
        if not isinstance(b, Const):
            return self.node("bitand", *sorted((a, b), key=self._order.__getitem__))
        mask = int(b.value)
        if mask in (0, -1):
            return a if mask else b
        shift = (mask & -mask).bit_length() - 1
        field = mask >> shift
        if field == -1 and shift < 63:
            return self.mul(self.floordiv(a, self.number(1 << shift)), self.number(1 << shift))
        if mask > 0 and field & (field + 1) == 0 and field < 2**62:
            bits = self.mod(self.floordiv(a, self.number(1 << shift)), self.number(field + 1))
            return self.mul(bits, self.number(1 << shift))
        return self.node("bitand", a, b)

    def _bitwise(self, op: str, a: Expr, b: Expr) -> Expr:
        if isinstance(a, Const):
            a, b = b, a
        if isinstance(b, Const):
            return a if b.value == 0 else self.node(op, a, b)
        return self.node(op, *sorted((a, b), key=self._order.__getitem__))

    def bitor(self, a: Expr, b: Expr) -> Expr:
        return a if a is b else self._bitwise("bitor", a, b)

    def bitxor(self, a: Expr, b: Expr) -> Expr:
        return self.number(0) if a is b else self._bitwise("bitxor", a, b)

    # ------------------------------------------------------------ extremes

    def min(self, *args: Expr) -> Expr:
        return self._extreme("min", args)

    def max(self, *args: Expr) -> Expr:
        return self._extreme("max", args)

    def _extreme(self, op: str, args: tuple[Expr, ...]) -> Expr:
        distinct = list(dict.fromkeys(flat for arg in args for flat in _flattened(op, arg)))
        if len(distinct) <= _MOST_COMPARED:
            distinct = self._needed(op, distinct)
        while len(distinct) > 1:  # in pairs: hundreds of lookups must not nest hundreds deep
            pairs = zip(distinct[::2], distinct[1::2], strict=False)
            rest = distinct[len(distinct) // 2 * 2 :]
            distinct = [self.leaf(Apply(a.type, op, (a, b))) for a, b in pairs] + rest
        return distinct[0]

    def _needed(self, op: str, args: list[Expr]) -> list[Expr]:
        """Leaves out what never is the extreme, since another argument is always at least as extreme."""
        needed: list[Expr] = []
        for arg in args:
            if not any(self._beats(op, other, arg) for other in needed):
                needed = [other for other in needed if not self._beats(op, arg, other)] + [arg]
        return needed

    def _beats(self, op: str, a: Expr, b: Expr) -> bool:
        low, high = self.form_range(self.form(a).plus(self.form(b), -1))
        return high <= 0 if op == "min" else low >= 0

    def abs(self, a: Expr) -> Expr:
        low, high = self.range(a)
        if low >= 0:
            return a
        if high <= 0 and low > -(2**63):
            return self.neg(a)
        return self.node("abs", a)

    def select(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """`a if condition else b`, of ints."""
        if isinstance(condition, Const):
            return a if condition.value else b
        if isinstance(b, Apply) and b.op == "select" and b.args[0] is condition:
            b = b.args[2]
        return a if a is b else self.node("select", condition, a, b)


def _flattened(op: str, expr: Expr) -> list[Expr]:
    if isinstance(expr, Apply) and expr.op == op:
        return [flat for arg in expr.args for flat in _flattened(op, arg)]
    return [expr]


def _split(form: Affine, c: int) -> tuple[Affine, Affine]:
    """(y, z) with form = c * y + z, z without terms that c divides, and its constant in [0, c)."""
    whole = Affine({atom: k // c for atom, k in form.terms.items() if k % c == 0}, form.const // c)
    rest = Affine({atom: k for atom, k in form.terms.items() if k % c != 0}, form.const % c)
    return whole, rest


def _reduced(form: Affine, c: int) -> tuple[Affine, int, int]:
    """(y, c / g, r) with form = g * y + r, 0 <= r < g, g the greatest divisor of c and all coefficients.

    So form // c = y // (c / g), and form % c = g * (y % (c / g)) + r.
    """
    factor = gcd(form.divisor, c)
    reduced = Affine({atom: k // factor for atom, k in form.terms.items()}, form.const // factor)
    return reduced, c // factor, form.const % factor

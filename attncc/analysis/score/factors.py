"""Builds float expressions that are sums of products: simplified, shared, and with what pairs have in common apart.

The ground of `gradient`. A product keeps its factors, so that a later division cancels; it is written as what all
pairs share, times what a row shares, times the rest, so that codegen can hoist the first two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from ...ir import Apply, Const, Expr, Symbol, apply, const

ONE = const(1.0)
ZERO = const(0.0)

_ROW_SYMBOLS = frozenset({"q_idx", "q_pos"})
_PAIR_SYMBOLS = frozenset({"kv_idx", "score"})


@dataclass(frozen=True)
class Product:
    """coefficient * the product of factor ** exponent, exponents not 0. The coefficient is exact: c * x / c is x."""

    coefficient: Fraction
    powers: tuple[tuple[Expr, int], ...]

    def times(self, other: Product, sign: int = 1) -> Product:
        """With sign -1: the quotient; the other's coefficient is then not 0."""
        powers = dict(self.powers)
        for factor, exponent in other.powers:
            powers[factor] = powers.get(factor, 0) + sign * exponent
        kept = tuple((factor, exponent) for factor, exponent in powers.items() if exponent)
        return Product(self.coefficient * other.coefficient**sign, kept)


class Factors:
    """One node for each distinct expression, and the factors of those that were built here.

    0 and 1 are folded as in exact arithmetic: 0 * x is 0 whatever x is, since these zeros stand for "doesn't depend".
    """

    def __init__(self) -> None:
        self._nodes: dict[Expr, Expr] = {}
        self._products: dict[Expr, Product] = {}
        self._levels: dict[Expr, int] = {}

    def leaf(self, expr: Expr) -> Expr:
        """The one shared node that equals `expr`, not simplified."""
        return self._nodes.setdefault(expr, expr)

    # ------------------------------------------------------------ operations

    def times(self, a: Expr, b: Expr) -> Expr:
        return self._built(self._product(a).times(self._product(b)))

    def over(self, a: Expr, b: Expr) -> Expr:
        """a / b; a division by a literal 0 stays one."""
        divisor = self._product(b)
        if divisor.coefficient == 0:
            divisor = Product(Fraction(1), ((self.leaf(ZERO), 1),))
        return self._built(self._product(a).times(divisor, -1))

    def negated(self, a: Expr) -> Expr:
        return self.times(const(-1.0), a)

    def plus(self, a: Expr, b: Expr) -> Expr:
        """a + b, with the factors that both have in front."""
        first, second = self._product(a), self._product(b)
        if first.coefficient == 0 or second.coefficient == 0:
            return b if first.coefficient == 0 else a
        shared = Product(Fraction(1), tuple(power for power in first.powers if power in second.powers))
        if shared.powers:
            rest, other = (self._built(product.times(shared, -1)) for product in (first, second))
            return self._built(shared.times(self._product(self.plus(rest, other))))
        if not first.powers and not second.powers:
            return self._built(Product(first.coefficient + second.coefficient, ()))
        if second.coefficient < 0:
            return self.leaf(apply("sub", a, self.negated(b)))
        return self.leaf(apply("add", a, b))

    def choice(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """`a if condition else b`."""
        if a is b:
            return a
        if isinstance(condition, Const):
            return a if condition.value else b
        return self.leaf(apply("select", self.leaf(condition), a, b))

    # ------------------------------------------------------------ products

    def _product(self, expr: Expr) -> Product:
        if expr in self._products:
            return self._products[expr]
        if isinstance(expr, Const) and math.isfinite(expr.value):
            return Product(Fraction(expr.value), ())
        return Product(Fraction(1), ((self.leaf(expr), 1),))

    def _built(self, product: Product) -> Expr:
        if not product.powers or product.coefficient == 0:
            number = self.leaf(const(_rounded(product.coefficient)))
            self._products[number] = Product(product.coefficient, ())
            return number
        parts: list[Expr] = []
        for level in (0, 1, 2):
            powers = [(factor, exponent) for factor, exponent in product.powers if self._level(factor) == level]
            if powers:
                parts.append(self._quotient(powers))
        whole = self._scaled(parts.pop(0), product.coefficient)
        for part in parts:
            whole = self.leaf(apply("mul", whole, part))
        self._products[whole] = product
        return whole

    def _quotient(self, powers: list[tuple[Expr, int]]) -> Expr:
        above = self._multiplied([(factor, exponent) for factor, exponent in powers if exponent > 0])
        below = self._multiplied([(factor, -exponent) for factor, exponent in powers if exponent < 0])
        return above if below is ONE else self.leaf(apply("div", above, below))

    def _multiplied(self, powers: list[tuple[Expr, int]]) -> Expr:
        whole: Expr | None = None
        for factor, exponent in powers:
            for _ in range(exponent):
                whole = factor if whole is None else self.leaf(apply("mul", whole, factor))
        return ONE if whole is None else whole

    def _scaled(self, expr: Expr, coefficient: Fraction) -> Expr:
        number = _rounded(coefficient)
        if abs(number) == 1.0:
            return expr if number == 1.0 else self.leaf(apply("neg", expr))
        if isinstance(expr, Apply) and expr.op == "div" and expr.args[0] is ONE:
            return self.leaf(apply("div", const(number), expr.args[1]))
        return self.leaf(apply("mul", expr, const(number)))

    def _level(self, expr: Expr) -> int:
        """0: the same for all pairs of a head; 1: for those of a row; 2: it differs from pair to pair."""
        found = self._levels.get(expr)
        if found is None:
            own = 0
            if isinstance(expr, Symbol):
                own = 2 if expr.name in _PAIR_SYMBOLS else int(expr.name in _ROW_SYMBOLS)
            found = self._levels[expr] = max([own, *map(self._level, expr.children)])
        return found


def _rounded(coefficient: Fraction) -> float:
    try:
        return float(coefficient)
    except OverflowError:
        return math.inf if coefficient > 0 else -math.inf

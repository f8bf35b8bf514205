"""Score lines in a form that whole tiles compute cheaply: score · (t₀ + t₁ score² + …) + bias.

The bias is a polynomial in kv_idx, of degree two at most: of a lane's share of a tile it takes one evaluation, and a
multiply-add a score for each degree; nothing at all if it is the same for all keys of a row. Some lines have this form
in part: a function such as tanh near 0, as a polynomial, a table of distances where all pairs of a tile read one entry,
and the size of a distance where all pairs are on one side of the diagonal. Kernels take it for those blocks of scores,
and the exact form for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...descales import product_scale
from ...ir import Apply, Const, Expr, Load, Symbol, Type, Variant, apply, const, walk
from ..algebra.algebra import FALSE, TRUE
from ..algebra.ranges import StaticRanges
from ..mask.tiles import same_for_all
from .distances import by_distance
from .factors import ZERO, Factors
from .gradient import final_score

_PAIR_SYMBOLS = frozenset({"score", "kv_idx", "q_idx", "q_pos"})


_PIECEWISE = frozenset({"select", "abs", "min", "max"})
_POLYNOMIAL = frozenset({"add", "sub", "neg", "mul", "div", "to_float"})
# Ints that are the same for all pairs of many tiles: of clamped distances, those far from the diagonal.
_STEPPED = frozenset({"min", "max", "floordiv", "shr", "select"})


@dataclass(frozen=True)
class Series:
    """f(x) is about x · (terms[0] + terms[1] x² + …) for |x| <= reach."""

    reach: float
    terms: tuple[float, ...]


# Minimax fits in the measure |error| / sqrt(|x|), between absolute and relative: of tanh 7.4e-6 and 4.9e-5 at most; of
# the shorter one, which serves where all arguments are smaller yet, 8.7e-6 and 1e-4.
SERIES = {"tanh": Series(0.5, (0.999951, -0.33124442, 0.1137456))}
NEAR_SERIES = {"tanh": Series(0.24, (0.9999004, -0.32472326))}


class Growth(NamedTuple):
    """By how much an expression grows from kv_idx on: step · keys + curve · keys², as floats."""

    step: Expr = ZERO
    curve: Expr = ZERO


@dataclass(frozen=True)
class ScoreForm:
    """The final score as product · (terms[0] + terms[1] product² + …) + bias; closed expressions, without lets.

    The product is q·k with the sign of the scale: the score is |scale| times it. `terms` are the same for all pairs.
    `keys` behind kv_idx, `bias` is larger by step · keys + curve · keys² (ZERO: it doesn't depend on the key, or is
    affine).
    With several terms, the form holds while |argument · product| <= reach. It holds in tiles where `holds`, over the
    tile's ends, is true.
    """

    terms: tuple[Expr, ...]
    bias: Expr = ZERO
    step: Expr = ZERO
    curve: Expr = ZERO
    argument: Expr = ZERO
    reach: float = 0
    holds: Expr = TRUE

    @property
    def degree(self) -> int:
        """Of the bias, in kv_idx."""
        return 2 if self.curve != ZERO else int(self.step != ZERO)


def score_form(
    variant: Variant, block_q: int, block_kv: int, series: Mapping[str, Series] = SERIES
) -> ScoreForm | None:
    """The form of the variant's score lines in tiles of at most block_q x block_kv; None where they have none.

    Softmax alone uses it: the bias joins the maximum that is subtracted.
    """
    if variant.normalize != "softmax":
        return None
    former = _Former(variant, series)
    found = former.of(final_score(variant))
    if found is None or not found.terms:
        return None
    growth = former.growth(found.bias)
    holds = same_for_all(variant, block_q, block_kv, former.stepped)
    if growth is None or holds is FALSE:
        return None
    return replace(found, step=growth.step, curve=growth.curve, holds=holds)


def distance_form(variant: Variant) -> ScoreForm | None:
    """The form of score lines that add an entry for the distance, where no tile is known to read one alone: it holds in
    none, but rows of a warp share what they read. None where there are no such lines."""
    found = _Former(variant).of(final_score(variant)) if variant.normalize == "softmax" else None
    if found is None or len(found.terms) != 1 or not by_distance(found.bias):
        return None
    reads = any(isinstance(node, Load) for node in walk(found.bias)) and "kv_idx" in _symbols(found.bias)
    return replace(found, holds=FALSE) if reads else None


class _Former:
    def __init__(self, variant: Variant, series: Mapping[str, Series] = SERIES) -> None:
        self.factors = Factors()
        self.product_scale = product_scale(variant)
        self.series = series
        self.ranges = StaticRanges(variant)
        self.stepped: list[Expr] = []  # what a step takes to be the same for all pairs of a tile
        self.forms: dict[Expr, ScoreForm | None] = {}  # lets that read others twice and again would take forever

    # ---------------------------------------------------------------- products and biases

    def of(self, expr: Expr) -> ScoreForm | None:
        """The form of an expression, its step not yet known; without terms where the score isn't read."""
        if expr not in self.forms:
            self.forms[expr] = self._of(expr)
        return self.forms[expr]

    def _of(self, expr: Expr) -> ScoreForm | None:
        if "score" not in _symbols(expr):
            return ScoreForm((), self.factors.leaf(expr))
        if isinstance(expr, Symbol):
            return ScoreForm((self.factors.leaf(apply("abs", self.product_scale)),))
        return self._of_operator(expr) if isinstance(expr, Apply) else None

    def _of_operator(self, expr: Apply) -> ScoreForm | None:
        forms = [self.of(arg) for arg in expr.args]
        first, second = forms[0], forms[-1]
        if first is None or second is None:
            return None
        match expr.op:
            case "neg":
                return self._times(first, const(-1.0))
            case "add" | "sub":
                return self._sum(first, second if expr.op == "add" else self._times(second, const(-1.0)))
            case "mul" | "div":
                return self._product(expr.op, first, second)
        return self._series(self.series[expr.op], first) if expr.op in self.series else None

    def _product(self, op: str, first: ScoreForm, second: ScoreForm) -> ScoreForm | None:
        if op == "mul" and second.terms:
            first, second = second, first
        if second.terms or _symbols(second.bias) & _PAIR_SYMBOLS:
            return None
        return self._times(first, second.bias if op == "mul" else self.factors.over(const(1.0), second.bias))

    def _sum(self, a: ScoreForm, b: ScoreForm) -> ScoreForm | None:
        if a.terms and b.terms:
            return None
        longer = a if a.terms else b
        bias = self.factors.plus(a.bias, b.bias)
        return ScoreForm(longer.terms, bias, argument=longer.argument, reach=longer.reach)

    def _times(self, form: ScoreForm, factor: Expr) -> ScoreForm:
        terms = tuple(self.factors.times(term, factor) for term in form.terms)
        bias = self.factors.times(form.bias, factor)
        return ScoreForm(terms, bias, argument=form.argument, reach=form.reach)

    def _series(self, series: Series, inner: ScoreForm) -> ScoreForm | None:
        if len(inner.terms) != 1 or inner.bias != ZERO:
            return None
        (argument,) = inner.terms
        terms, power = [], argument
        for term in series.terms:
            terms.append(self.factors.times(power, const(term)))
            power = self.factors.times(power, self.factors.times(argument, argument))
        return ScoreForm(tuple(terms), argument=argument, reach=series.reach)

    # ---------------------------------------------------------------- from key to key

    def growth(self, expr: Expr) -> Growth | None:
        """Of an expression, from key to key; None where it isn't a polynomial in it, of degree two at most."""
        if "kv_idx" not in _symbols(expr):
            return Growth()
        if expr.type is Type.INT and not self.ranges.of(expr).fits(63):  # it might wrap
            return None
        if isinstance(expr, Load):
            return Growth() if all(map(self._is_stepped, expr.indices)) else None
        if isinstance(expr, Apply) and expr.op in _POLYNOMIAL:
            return self._operator_growth(expr)
        if isinstance(expr, Apply) and expr.op in _PIECEWISE:
            return self._piecewise_growth(expr)
        return Growth(const(1.0)) if isinstance(expr, Symbol) else None

    def _is_stepped(self, index: Expr) -> bool:
        """Whether an index is the same for all keys of a row, or of many tiles."""
        form = _without_offset(index)
        if "kv_idx" not in _symbols(form):
            return True
        if not isinstance(form, Apply) or form.op not in _STEPPED:
            return False
        self.stepped.append(form)
        return True

    def _operator_growth(self, expr: Apply) -> Growth | None:
        grown = [self.growth(arg) for arg in expr.args]
        first, second = grown[0], grown[-1]
        if first is None or second is None:
            return None
        match expr.op:
            case "add" | "sub":
                return self._sum_of(first, second if expr.op == "add" else self._scaled(second, const(-1.0)))
            case "neg":
                return self._scaled(first, const(-1.0))
            case "mul" | "div":
                return self._product_growth(expr, first, second)
        return first  # of to_float

    def _piecewise_growth(self, expr: Apply) -> Growth | None:
        """Of `a if condition else b`, |a|, the larger or smaller of two ints: in tiles where one arm holds for all."""
        *_, last = expr.args
        if expr.op == "select":
            condition, *arms = expr.args
        elif expr.type is not Type.INT:  # little is known of floats
            return None
        elif expr.op == "abs":
            condition, arms = apply("ge", last, const(0)), [last, apply("neg", last)]
        else:
            condition, arms = apply("ge", *expr.args), [*expr.args][:: 1 if expr.op == "max" else -1]
        first, second = map(self.growth, arms)
        if first is None or second is None or not self._seldom_differs(condition):
            return None
        if "kv_idx" in _symbols(condition):
            self.stepped.append(apply("select", condition, const(1), const(0)))
        leaf = self.factors.leaf
        return Growth(*(self.factors.choice(condition, leaf(a), leaf(b)) for a, b in zip(first, second, strict=True)))

    def _seldom_differs(self, condition: Expr) -> bool:
        """Whether a condition compares what is affine in the key: few tiles have pairs on both sides."""
        if "kv_idx" not in _symbols(condition):
            return True
        if not isinstance(condition, Apply):
            return False
        if condition.op in ("and", "or", "not"):
            return all(map(self._seldom_differs, condition.args))
        before = len(self.stepped)
        grown = [self.growth(arg) for arg in condition.args if arg.type is Type.INT]
        del self.stepped[before:]  # what the arms of a comparison are doesn't matter
        affine = [growth for growth in grown if growth is not None and growth.curve == ZERO]
        return len(affine) == len(condition.args)

    def _sum_of(self, first: Growth, second: Growth) -> Growth:
        return Growth(*map(self.factors.plus, first, second))

    def _scaled(self, growth: Growth, factor: Expr) -> Growth:
        return Growth(*(self.factors.times(part, factor) for part in growth))

    def _product_growth(self, expr: Apply, first: Growth, second: Growth) -> Growth | None:
        """Of a * b, and of a / b, where b doesn't grow."""
        if ZERO not in (first.curve, second.step) or ZERO not in (first.step, second.curve):
            return None  # a curve times what grows is of degree three
        plus, times = self.factors.plus, self.factors.times
        a, b = map(_converted, expr.args)
        if expr.op == "div":
            if second != Growth():
                return None
            b = self.factors.over(const(1.0), b)
        step = plus(times(a, second.step), times(b, first.step))
        curves = plus(times(a, second.curve), times(b, first.curve))
        return Growth(step, plus(curves, times(first.step, second.step)))


def _without_offset(index: Expr) -> Expr:
    """The index less what is added to it and doesn't depend on the key."""
    while isinstance(index, Apply) and index.op in ("add", "sub"):
        varying = [arg for arg in index.args if "kv_idx" in _symbols(arg)]
        if len(varying) != 1:
            break
        (index,) = varying
    return index


def _converted(expr: Expr) -> Expr:
    if expr.type is Type.FLOAT:
        return expr
    return const(float(expr.value)) if isinstance(expr, Const) else apply("to_float", expr)


def _symbols(expr: Expr) -> frozenset[str]:
    return frozenset(node.name for node in walk(expr) if isinstance(node, Symbol))

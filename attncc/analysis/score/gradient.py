"""The gradient of a variant's score lines, derived symbolically: reverse-mode differentiation over the IR.

What flows back to a side of a choice counts where that side was taken, and is a choice itself, never a product with 0:
so the side that wasn't taken may have an infinite derivative, as sqrt at 0. docs/backward.md says what kinks give.

A kernel multiplies these derivatives with dS, the gradient of the final score. Where dS is exactly 0, for pairs that
are masked or weigh nothing, it must select 0: at such pairs, with a score of -inf or of what a masked key holds, a
derivative may be anything, NaN included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...ir import Apply, Expr, Keep, Let, Load, Local, Symbol, Type, Variant, apply, symbol, walk
from ...statements import AXIS_INDEX
from .derivatives import Literal, derivatives
from .factors import ONE, ZERO, Factors


@dataclass(frozen=True)
class InputGradient:
    """One read of a learnable input: d final score / d input[indices], for one pair."""

    input: str
    indices: tuple[Expr, ...]  # () for a scalar input
    value: Expr


@dataclass(frozen=True)
class ScoreGradient:
    """Closed expressions over symbols and inputs, without lets; `score` in them is the raw scale * q·k.

    `inputs` has each learnable input once for each distinct read by the score lines. An index may be out of range: that
    read has no gradient. `sink` is the read of a learnable sink (its value is 1: the logit isn't changed); its gradient
    comes from the softmax and not from a pair's score.
    """

    score: Expr  # d final score / d raw score; 1.0 where there are no score lines
    inputs: tuple[InputGradient, ...]
    sink: InputGradient | None = None


@lru_cache(maxsize=256)
def gradient(variant: Variant) -> ScoreGradient:
    """How the final score of a pair moves with the raw score and with each learnable input that it reads."""
    factors = Factors()
    root = _final_score(variant, factors)
    learnable = frozenset(item.name for item in variant.inputs if item.learnable)
    found = _Sweep(factors, learnable).adjoints(root)
    reads = [node for node in walk(root) if isinstance(node, Load) and node in found]
    return ScoreGradient(
        found.get(symbol("score"), ZERO),
        tuple(InputGradient(node.input, node.indices, found[node]) for node in reads),
        _sink(variant, learnable),
    )


def final_score(variant: Variant) -> Expr:
    """What the score lines make of the raw score, as one closed expression."""
    return _final_score(variant, Factors())


def _sink(variant: Variant, learnable: frozenset[str]) -> InputGradient | None:
    if variant.sink is None or variant.sink not in learnable:
        return None
    axes = variant.input(variant.sink).axes
    return InputGradient(variant.sink, tuple(symbol(AXIS_INDEX[axis.tag or "head"]) for axis in axes), ONE)


def _final_score(variant: Variant, factors: Factors) -> Expr:
    score = factors.leaf(symbol("score"))
    lets: dict[str, Expr] = {}
    for statement in variant.statements:
        if isinstance(statement, Let):
            lets[statement.name] = _closed(statement.value, score, lets, factors)
        elif not isinstance(statement, Keep):
            score = _closed(statement.value, score, lets, factors)
    return score


def _closed(expr: Expr, score: Expr, lets: dict[str, Expr], factors: Factors) -> Expr:
    """`expr` with lets and the score so far written out."""
    known: dict[Expr, Expr] = {}
    for node in walk(expr):
        match node:
            case Symbol(name="score"):
                known[node] = score
            case Local():
                known[node] = lets[node.name]
            case Load():
                indices = tuple(known[index] for index in node.indices)
                known[node] = factors.leaf(Load(node.type, node.input, indices))
            case Apply():
                args = tuple(known[arg] for arg in node.args)
                known[node] = factors.leaf(Apply(node.type, node.op, args, span=node.span))
            case _:
                known[node] = factors.leaf(node)
    return known[expr]


@dataclass(frozen=True)
class _Adjoint:
    """d root / d node = value where all guards hold, outermost first; 0 elsewhere, whatever the value is there."""

    value: Expr
    guards: tuple[Literal, ...]


class _Sweep:
    """From the root down, the adjoint of every node that a gradient passes through."""

    def __init__(self, factors: Factors, learnable: frozenset[str]) -> None:
        self._factors = factors
        self._learnable = learnable

    def adjoints(self, root: Expr) -> dict[Expr, Expr]:
        """d root / d node for the raw score and the reads of learnable inputs below the root."""
        order = list(walk(root))
        active = self._active(order)
        found = {root: _Adjoint(ONE, ())} if root in active else {}
        for node in reversed(order):
            if node in found and isinstance(node, Apply):
                self._pass_on(node, found, active)
        return {node: self._chosen(found[node]) for node in found if not isinstance(node, Apply)}

    def _active(self, order: list[Expr]) -> set[Expr]:
        """The floats that move with a target; what turns a float into an int or a bool ends it."""
        active: set[Expr] = set()
        for node in order:
            target = node == symbol("score") or (isinstance(node, Load) and node.input in self._learnable)
            below = isinstance(node, Apply) and any(arg in active for arg in node.args)
            if node.type is Type.FLOAT and (target or below):
                active.add(node)
        return active

    def _pass_on(self, node: Apply, found: dict[Expr, _Adjoint], active: set[Expr]) -> None:
        own = found[node]
        for part in derivatives(node, self._factors):
            if part.arg in active:
                guards = own.guards if part.guard in (None, *own.guards) else (*own.guards, part.guard)
                adjoint = _Adjoint(self._factors.times(own.value, part.value), guards)  # type: ignore[arg-type]
                found[part.arg] = self._sum(found[part.arg], adjoint) if part.arg in found else adjoint

    # ------------------------------------------------------------ guards

    def _sum(self, a: _Adjoint, b: _Adjoint) -> _Adjoint:
        shared = 0
        while a.guards[shared : shared + 1] == b.guards[shared : shared + 1] != ():
            shared += 1
        common, own, other = a.guards[:shared], a.guards[shared:], b.guards[shared:]
        if own and other and own[0][0] == other[0][0]:
            return _Adjoint(self._either(own, a.value, other, b.value), common)
        first, second = self._chosen(_Adjoint(a.value, own)), self._chosen(_Adjoint(b.value, other))
        total = self._factors.plus(first, second)
        if not own or not other:
            return _Adjoint(total, common)
        return _Adjoint(total, (*common, (self._any(own, other), True)))

    def _either(self, own: tuple[Literal, ...], a: Expr, other: tuple[Literal, ...], b: Expr) -> Expr:
        """Two sides of one choice."""
        (condition, holds), first = own[0], self._chosen(_Adjoint(a, own[1:]))
        second = self._chosen(_Adjoint(b, other[1:]))
        return self._factors.choice(condition, *((first, second) if holds else (second, first)))

    def _any(self, own: tuple[Literal, ...], other: tuple[Literal, ...]) -> Expr:
        return self._factors.leaf(apply("or", self._all(own), self._all(other)))

    def _all(self, guards: tuple[Literal, ...]) -> Expr:
        parts = [condition if holds else apply("not", condition) for condition, holds in guards]
        return self._factors.leaf(parts[0] if len(parts) == 1 else apply("and", *parts))

    def _chosen(self, adjoint: _Adjoint) -> Expr:
        value = adjoint.value
        for condition, holds in reversed(adjoint.guards):
            value = self._factors.choice(condition, *((value, ZERO) if holds else (ZERO, value)))
        return value

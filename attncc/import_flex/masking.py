"""Masks hidden in score_mods: `torch.where(keep, score, -inf)` is `keep if keep`.

A pair whose final score is -inf weighs 0, which is what `keep if` says, and with `keep if` tiles can be skipped. So the
-inf is taken out, as long as what follows leaves -inf as it is: nothing, or adding something finite. Where the
condition reads the score, the -inf stays: the language leaves such a pair out, too, but skips no tiles for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from .fold import known
from .machine import ScoreLine
from .terms import Apply, Number, Score, Term, bare, is_number, walk


def separate(lines: Sequence[ScoreLine]) -> tuple[list[ScoreLine], list[ScoreLine]]:
    """The conditions that score lines hide, each with the order of its line, and the lines without them."""
    keeps: list[ScoreLine] = []
    rest: list[ScoreLine] = list(lines)
    for place in reversed(range(len(lines))):
        line = lines[place]
        value, conditions = _peel(line.value)
        keeps[:0] = [ScoreLine(condition, line.order) for condition in conditions]
        rest[place] = replace(line, value=value)
        if not _keeps_infinity(value):
            break
    return keeps, rest


def _peel(term: Term) -> tuple[Term, list[Term]]:
    """A term without the `where(condition, ..., -inf)` around or added to it, and the conditions."""
    match bare(term):
        case Apply(op="where", args=(condition, *_)) if _reads_score(condition):
            return _left_in(term)
        case Apply(op="where", args=(condition, value, other)) if _is_minus_infinity(other):
            inner, conditions = _peel(value)
            return inner, [condition, *conditions]
        case Apply(op="where", args=(condition, other, value)) if _is_minus_infinity(other):
            inner, conditions = _peel(value)
            return inner, [Apply(op="logical_not", args=(condition,), span=condition.span), *conditions]
        case Apply(op="where", args=(condition, then, other), span=span):
            left, if_true = _peel(then)
            right, if_false = _peel(other)
            if if_true or if_false:
                chosen = (
                    left if _is_same_score(left, right) else Apply(op="where", args=(condition, left, right), span=span)
                )
                return chosen, _of_sides(condition, if_true, if_false)
        case Apply(op="add", args=(value, bias), span=span):
            inner, more = _peel(value)
            added, conditions = _peel(bias)
            if more or conditions:
                both = inner if known(added) == 0 else Apply(op="add", args=(inner, added), span=span)
                return both, [*more, *conditions]
    return term, []


def _left_in(term: Term) -> tuple[Term, list[Term]]:
    """A `where` whose condition reads the score, which no `keep` may: -inf stays in it. Beside it, what the other side
    leaves out is left out in any case."""
    choice = bare(term)
    assert isinstance(choice, Apply)
    condition, *sides = choice.args
    if not any(map(_is_minus_infinity, sides)):
        return _with_logarithms(term), []
    peeled = [(side, []) if _is_minus_infinity(side) else _peel(side) for side in sides]
    rest = replace(choice, args=(condition, *(side for side, _ in peeled)))
    return _with_logarithms(rest), [item for _, conditions in peeled for item in conditions]


def _with_logarithms(term: Term) -> Term:
    """A choice of values with log(0) for -inf, which has no literal."""
    if _is_minus_infinity(term):
        return Apply(op="log", args=(Number(value=0.0, span=term.span),), span=term.span)
    choice = bare(term)
    if not (isinstance(choice, Apply) and choice.op == "where"):
        return term
    condition, *sides = choice.args
    return replace(choice, args=(condition, *map(_with_logarithms, sides)))


def _reads_score(term: Term) -> bool:
    return any(isinstance(item, Score) for item in walk(term))


def _is_same_score(left: Term, right: Term) -> bool:
    one, other = bare(left), bare(right)
    return isinstance(one, Score) and isinstance(other, Score) and one.version == other.version


def _of_sides(condition: Term, if_true: Sequence[Term], if_false: Sequence[Term]) -> list[Term]:
    """The conditions of the side that is taken."""
    span = condition.span
    other = Apply(op="logical_not", args=(condition,), span=span)
    on_left = [Apply(op="logical_or", args=(other, item), span=span) for item in if_true]
    return [*on_left, *(Apply(op="logical_or", args=(condition, item), span=span) for item in if_false)]


def _keeps_infinity(term: Term) -> bool:
    """Whether a line leaves a score of -inf at -inf."""
    match bare(term):
        case Score():
            return True
        case Apply(op="add" | "sub", args=(score, other)):
            return _keeps_infinity(score) and not any(isinstance(item, Score) for item in walk(other))
    return False


def _is_minus_infinity(term: Term) -> bool:
    return known(term) == -math.inf


def is_true(term: Term) -> bool:
    return is_number(bare(term), True)

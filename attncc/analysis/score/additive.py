"""Whether score lines only add to the score: what is subtracted before them is then subtracted after them."""

from __future__ import annotations

from ...ir import Apply, Expr, Symbol, Variant, symbol, walk
from .gradient import final_score


def only_adds(variant: Variant) -> bool:
    """Whether the final score is the raw one plus something that doesn't read it. True where there are no score lines.

    That its derivative is 1 isn't enough: floor has the derivative 0.
    """
    return _adds(final_score(variant))


def _adds(expr: Expr) -> bool:
    if isinstance(expr, Symbol):
        return expr == symbol("score")
    if not isinstance(expr, Apply) or len(expr.args) != 2:
        return False
    left, right = expr.args
    if expr.op == "add" and _adds(right) and not _reads_score(left):
        return True
    return expr.op in ("add", "sub") and _adds(left) and not _reads_score(right)


def _reads_score(expr: Expr) -> bool:
    return any(node == symbol("score") for node in walk(expr))

"""Whether what is computed for a pair depends on how far its query and key are from each other alone."""

from __future__ import annotations

from ...ir import Apply, Const, Expr, Load, Symbol

_POSITIONS = frozenset({"kv_idx", "q_idx", "q_pos"})


def by_distance(expr: Expr) -> bool:
    """Whether a closed expression, without lets, has one value for all pairs of a head that are as far from each other.

    Told from its form alone: positions are read as affine sums that don't change if both move on by one.
    """
    return _growth(expr) == 0


def _growth(expr: Expr) -> int | None:
    """By how much it grows if query and key both move on by one; None where that can't be told."""
    if isinstance(expr, Symbol):
        return 1 if expr.name in _POSITIONS else None if expr.name == "score" else 0
    if isinstance(expr, Apply | Load):
        grown = [_growth(part) for part in expr.children]
        if not any(item != 0 for item in grown):
            return 0
        return _growth_of_sum(expr, grown) if isinstance(expr, Apply) else None
    return 0 if isinstance(expr, Const) else None


def _growth_of_sum(expr: Apply, grown: list[int | None]) -> int | None:
    first, last = grown[0], grown[-1]
    if first is None or last is None:
        return None
    match expr.op:
        case "add":
            return first + last
        case "sub":
            return first - last
        case "neg":
            return -first
        case "mul":
            return _scaled(expr, first, last)
    return None


def _scaled(expr: Apply, first: int, last: int) -> int | None:
    """Of a product one of whose factors is a literal."""
    for factor, growth in ((expr.args[0], last), (expr.args[1], first)):
        if isinstance(factor, Const) and isinstance(factor.value, int):
            return factor.value * growth
    return None

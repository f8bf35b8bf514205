"""Whether tests of pairs ask of a row nothing but ids, which rows near it often share."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import Apply, Expr, Load, Local, Type, Variant, needs, reads, walk

_OF_ROW = frozenset({"q_idx", "q_pos"})


def ask_for_ids(variant: Variant, tests: Iterable[Expr]) -> bool:
    """Whether every value of a row is an entry of an input, or a quotient, that is a bool or compared for equality.

    Rows with the same values keep the same keys. That some rows have the same is a guess: of other values, such as
    times that are compared by order, each row may well have its own.
    """
    tests = tuple(tests)
    return any(reads(variant, test) & _OF_ROW for test in tests) and all(_asks_for_ids(variant, test) for test in tests)


def in_order(variant: Variant, tests: Iterable[Expr]) -> bool:
    """Whether what tests look up for a row is declared nondecreasing, as documents are. Then rows near it share ids."""
    declared = {item.name for item in variant.inputs if item.nondecreasing}
    parts = walk(*tests, *(item.value for item in needs(variant, *tests)))
    return all(part.input in declared for part in parts if isinstance(part, Load) and reads(variant, part) & _OF_ROW)


def _asks_for_ids(variant: Variant, node: Expr) -> bool:
    symbols = reads(variant, node)
    if not symbols & _OF_ROW:
        return True
    if "kv_idx" not in symbols:
        return node.type is Type.BOOL and _is_id(variant, node)
    if isinstance(node, Local):
        return _asks_for_ids(variant, variant.lets[node.name].value)
    if isinstance(node, Apply) and node.op in ("eq", "ne"):
        return all(_is_id(variant, side) or _asks_for_ids(variant, side) for side in node.args)
    return all(_asks_for_ids(variant, child) for child in node.children)


def _is_id(variant: Variant, node: Expr) -> bool:
    """Of a row, and such that neighbours may have the same."""
    if "kv_idx" in reads(variant, node) or node.type is Type.FLOAT:
        return False
    parts = walk(node, *(item.value for item in needs(variant, node)))
    return any(isinstance(part, Load) or (isinstance(part, Apply) and part.op == "floordiv") for part in parts)

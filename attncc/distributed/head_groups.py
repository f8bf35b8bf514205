"""Calls of some heads: which variants allow them, and what of their inputs such a call gets."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import Expr, Load, Local, Symbol, Variant, root_of
from ..problem.inputs import merges

_INDEX = {"head": "h", "kv_head": "kv_h"}  # what indexes axes of heads
_NAMES = frozenset({"h", "kv_h", "num_heads", "num_kv_heads"})


def heads_apart(variant: Variant) -> bool:
    """Whether heads can be computed by several calls: each counts its own from 0.

    So heads may be read as indices of axes of heads alone, which are cut, one of an input. Dropout's bits belong to
    heads' numbers.
    """
    if variant.dropout is not None or any(sum(axis.tag in _INDEX for axis in item.axes) > 1 for item in variant.inputs):
        return False
    lets, seen = variant.lets, set[Expr]()
    pending = [*map(root_of, variant.statements)]
    pending += [] if variant.scale is None else [variant.scale]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Symbol) and node.name in _NAMES:
            return False
        if isinstance(node, Local):
            pending.append(lets[node.name].value)
        pending += _without_heads(variant, node)
    return True


def _without_heads(variant: Variant, node: Expr) -> Iterator[Expr]:
    """What a node reads, without indices of axes of heads."""
    axes = variant.input(node.input).axes if isinstance(node, Load) else ()
    for number, child in enumerate(node.children):
        tag = axes[number].tag if number < len(axes) else None
        if not (isinstance(child, Symbol) and child.name == _INDEX.get(tag or "")):
            yield child


def head_cuts(variant: Variant, *, packed: bool) -> Iterator[tuple[str, int]]:
    """The inputs along heads of q or of k, and the axis as calls pass them (packing drops `batch`)."""
    for item in variant.inputs:
        for place, axis in enumerate(item.axes):
            if axis.tag in _INDEX:
                dropped = sum(before.tag == "batch" for before in item.axes[:place]) if packed and merges(item) else 0
                yield item.name, place - dropped

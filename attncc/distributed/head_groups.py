"""Calls of some heads: which variants allow them, and what of their inputs such a call gets."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import Load, Symbol, Variant
from ..problem.inputs import merges
from .read_names import read_names

_INDEX = {"head": "h", "kv_head": "kv_h"}  # what indexes axes of heads
_NAMES = frozenset({"h", "kv_h", "num_heads", "num_kv_heads"})


def heads_apart(variant: Variant) -> bool:
    """Whether heads can be computed by several calls: each counts its own from 0.

    So heads may be read as indices of axes of heads alone, which are cut, one of an input. Dropout's bits belong to
    heads' numbers.
    """
    if variant.dropout is not None or any(sum(axis.tag in _INDEX for axis in item.axes) > 1 for item in variant.inputs):
        return False

    def is_cut(node: Load, number: int) -> bool:
        index, axis = node.indices[number], variant.input(node.input).axes[number]
        return isinstance(index, Symbol) and index.name == _INDEX.get(axis.tag or "")

    return not _NAMES & read_names(variant, is_cut)


def head_cuts(variant: Variant, *, packed: bool) -> Iterator[tuple[str, int]]:
    """The inputs along heads of q or of k, and the axis as calls pass them (packing drops `batch`)."""
    for item in variant.inputs:
        for place, axis in enumerate(item.axes):
            if axis.tag in _INDEX:
                dropped = sum(before.tag == "batch" for before in item.axes[:place]) if packed and merges(item) else 0
                yield item.name, place - dropped

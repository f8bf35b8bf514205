"""How long the axes of inputs are at least."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import Expr, Input, size_symbol

if TYPE_CHECKING:
    from .algebra import Algebra

_LENGTHS = {"q": "q_len", "kv": "kv_len", "pos": "kv_len"}


def length_of_axis(algebra: Algebra, declared: Input) -> Expr:
    """A length that the last axis has at least: a `pos` axis may be longer."""
    axis = declared.axes[-1]
    if axis.length is not None:
        return algebra.number(axis.length)
    if axis.tag in _LENGTHS:
        return algebra.symbol(_LENGTHS[axis.tag])
    return algebra.leaf(size_symbol(declared.name, len(declared.axes) - 1))

"""`base[index]`: an element or a part of a tensor, an item of a list or a dict."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import EllipsisType

from ..diagnostics import Diagnostic
from ..source import Span
from .blocks import MAKE_SHAPE_KNOWN, SOME, indexed
from .fold import known
from .machine import Machine
from .terms import Captured, Element, Term, bare
from .values import BAD, NOTHING, Block, Items, Lookup, Scope, Text, Value

Index = Value | slice | EllipsisType


@dataclass
class _Indices:
    """What stands in the brackets: `values` are all that it reads, bounds of slices too."""

    items: list[Index] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    known_bounds: bool = True

    @property
    def are_numbers(self) -> bool:
        return not any(item is NOTHING or isinstance(item, slice | EllipsisType | Block) for item in self.items)

    def of_rank(self, rank: int) -> list[Value | slice] | None:
        """One for each axis of a tensor, and for each new one; None where there are more than axes."""
        used = sum(item is not NOTHING and item is not ... for item in self.items)
        whole = [slice(None)] * (rank - used)
        if used > rank or sum(item is ... for item in self.items) > 1:
            return None
        spread: list[Value | slice] = []
        for item in self.items:
            spread += whole if isinstance(item, EllipsisType) else [item]
        return spread


def subscript(machine: Machine, node: ast.Subscript, scope: Scope) -> Value:
    """The value of `base[index]`."""
    base = machine.evaluate(node.value, scope)
    if isinstance(base, Items):
        return _item(machine, base, node, scope)
    if isinstance(base, Lookup):
        return _looked_up(machine, base, node, scope)
    indices = _indices(machine, node.slice, scope)
    return BAD if base is BAD or BAD in indices.values else _of_tensor(machine, node, base, indices, scope)


def _of_tensor(machine: Machine, node: ast.Subscript, base: Value, indices: _Indices, scope: Scope) -> Value:
    span = machine.span(node, scope)
    part = _part(machine, base, indices, span)
    if not machine.inside:
        shape = part.shape if isinstance(part, Block) else None if part is None else ()
        return machine.derive(span, [base, *indices.values], shape=shape)
    if part is not None:
        return part
    if isinstance(base, Captured) and any(isinstance(value, Text) for value in indices.values):  # of a dict
        return machine.derive(span, [base, *indices.values])
    if not indices.are_numbers:
        help = f"to take a part of a tensor, {MAKE_SHAPE_KNOWN}" if indices.known_bounds else _ONE_ELEMENT
        why = Diagnostic("A707", "a slice of a tensor can't be taken", span, help=help)
        return machine.cannot(span, [base, *indices.values], why)
    return _element(machine, machine.span(node.value, scope), base, indices, span)


_ONE_ELEMENT = "a mod sees one pair: give one index for each axis, as in t[b, h, i]; loop over an axis with `for`"


def _indices(machine: Machine, node: ast.expr, scope: Scope) -> _Indices:
    found = _Indices()
    for item in node.elts if isinstance(node, ast.Tuple) else [node]:
        found.spans.append(machine.span(item, scope))
        if isinstance(item, ast.Slice):
            bounds = [
                machine.evaluate(part, scope) if part else NOTHING for part in (item.lower, item.upper, item.step)
            ]
            places = [_place(bound) for bound in bounds]
            is_known = all(place is not None or bound is NOTHING for place, bound in zip(places, bounds, strict=True))
            found.known_bounds &= is_known
            found.items.append(slice(*places) if is_known else SOME)
            found.values += [bound for bound in bounds if bound is not NOTHING]
        elif isinstance(item, ast.Constant) and item.value is ...:
            found.items.append(...)
        else:
            found.values.append(machine.evaluate(item, scope))
            found.items.append(found.values[-1])
    return found


def _place(value: Value) -> int | None:
    """A known index or bound."""
    number = known(value) if isinstance(value, Term) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _part(machine: Machine, base: Value, indices: _Indices, span: Span) -> Value | None:
    """Of a tensor whose axes are known; None for another, or where the index doesn't fit it."""
    new_axes = all(item is NOTHING or item is ... for item in indices.items)
    shaped = isinstance(base, Captured) and machine.shape_of(base) is not None
    if not (shaped or isinstance(base, Block) or (isinstance(base, Term) and new_axes)):
        return None
    if machine.inside and not indices.known_bounds:
        return None
    block = machine.as_block(base, span)
    items = indices.of_rank(len(block.shape))
    if items is None or sum(map(machine.has_axes, indices.values)) > 1:
        return None
    if machine.inside and _moves_unknown(block, items):
        return None
    return indexed(machine, block, items, span)


def _moves_unknown(base: Block, items: Sequence[Value | slice]) -> bool:
    """Whether a slice of an axis of unknown length gives its entries other indices than they have in the tensor."""
    axes = zip(base.shape, (item for item in items if item is not NOTHING), strict=False)
    return any(
        length is None and isinstance(item, slice) and (item.start not in (None, 0) or item.step not in (None, 1))
        for length, item in axes
    )


def _element(machine: Machine, at: Span, base: Value, indices: _Indices, span: Span) -> Value:
    """An element of a tensor of which only the indices are known; `row[i]` is one of `t[b][i]`."""
    terms = machine.numbers(indices.values, indices.spans)
    if terms is None:
        return BAD
    if isinstance(base, Captured) and base.auto and not any(term.varies for term in terms):  # table.shape[0]
        return machine.derive(span, [base, *terms])
    for term, place in zip(terms, indices.spans, strict=True):
        _refuse_negative(machine, term, place)
    if isinstance(base, Captured):
        return Element(captured=base, indices=terms, span=span)
    row = bare(base) if isinstance(base, Term) else base
    if isinstance(row, Element) and row.indices:
        return Element(captured=row.captured, indices=(*row.indices, *terms), span=span)
    help = "index the captured tensor itself; compute on its elements, or bring the result as a tensor"
    return machine.error("A707", f"`{at.text}` has no elements here", span, help=help)


def _refuse_negative(machine: Machine, index: Term, at: Span) -> None:
    value = known(index)
    if value is not None and value < 0:
        help = f"count from the start, or {MAKE_SHAPE_KNOWN}; in .attn an index below 0 reads 0"
        machine.error("A707", f"the index `{at.text}` counts from the end", at, help=help)


def _item(machine: Machine, base: Items, node: ast.Subscript, scope: Scope) -> Value:
    """An item of a list, or some of them, at a known place."""
    indices = _indices(machine, node.slice, scope)
    if len(indices.items) == 1 and indices.known_bounds:
        (item,) = indices.items
        place = item if isinstance(item, slice) else None if isinstance(item, EllipsisType) else _place(item)
        try:
            if isinstance(place, slice):
                return Items(base.items[place])
            if place is not None:
                return base.items[place]
        except (IndexError, ValueError):
            pass
    span = machine.span(node, scope)
    why = Diagnostic("A707", "which item of the list this is isn't known", span, help="make the list a tensor outside")
    return machine.cannot(span, [base, *indices.values], why)


def _looked_up(machine: Machine, base: Lookup, node: ast.Subscript, scope: Scope) -> Value:
    """An item of a dict at a known key."""
    value, span = machine.evaluate(node.slice, scope), machine.span(node, scope)
    key = key_of(value)
    if key is not None and key in base.items:
        return base.items[key]
    why = Diagnostic("A707", "which item of the dict this is isn't known", span, help="give a key that the dict has")
    return machine.cannot(span, [base, value], why)


def key_of(value: Value) -> int | float | str | None:
    """A known key of a dict."""
    return value.value if isinstance(value, Text) else known(value) if isinstance(value, Term) else None


def looked_up(base: Lookup, keys: Sequence[Value]) -> Value | None:
    """`dict.get(key)` and `dict.get(key, default)`; None where the key isn't known."""
    key = key_of(keys[0]) if keys else None
    if key is None:
        return None
    return base.items.get(key, keys[1] if len(keys) > 1 else NOTHING)

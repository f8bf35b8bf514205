"""Axes in a mod: broadcasting, views, reductions over a few entries, and tensors that hold one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..import_flex.terms import Reduce, Term, Variable
from .aten import Rule, Untranslated
from .host import Host
from .indexing import indexed
from .terms import Maker, Places, Value, entry

MOST_ENTRIES = 64  # of an axis that is written out

_TOO_LONG = f"at most {MOST_ENTRIES} entries are written out for each pair: reduce the tensor outside of the mod"


@dataclass(frozen=True)
class Operation:
    """One operator of torch's that the mod calls. `shape` and `dtype` are those of its result, as torch has them."""

    host: Host
    make: Maker
    shape: tuple[int, ...]
    dtype: Any

    def gives(self, at: Callable[[Places], Term]) -> Value:
        return Value(self.shape, self.dtype, at)


def pointwise(op: Operation, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Value:
    """An operator that makes each entry of its result from one entry of each operand."""
    values = [_operand(op, item) for item in args]
    named = {name: _operand(op, item) for name, item in kwargs.items()}

    def at(places: Places) -> Term:
        given = [_entry(item, places) for item in values]
        return rule(op.make, *given, **{name: _entry(item, places) for name, item in named.items()})

    return op.gives(at)


def _operand(op: Operation, item: Any) -> Any:
    """A tensor as a value, a number as a term, and all else as it is."""
    if isinstance(item, torch.Tensor):
        return op.host.value(item)
    return op.make.number(item) if isinstance(item, bool | int | float) else item


def _entry(item: Any, places: Places) -> Any:
    return entry(item, places) if isinstance(item, Value) else item


# -------------------------------------------------------------------- views


def _select(op: Operation, tensor: Any, dim: int, index: int) -> Value:
    return indexed(op.host, tensor, _along(tensor, dim, index))


def _slice(op: Operation, tensor: Any, dim: int = 0, *bounds: int | None) -> Value:
    start, end, step = [*bounds, None, None, None][:3]
    return indexed(op.host, tensor, _along(tensor, dim, slice(start, end, step)))


def _along(tensor: Any, dim: int, index: Any) -> tuple[Any, ...]:
    whole: list[Any] = [slice(None)] * (dim % tensor.ndim)
    return (*whole, index)


def _reshaped(op: Operation, tensor: Any, *_: Any) -> Value:
    """Axes of one entry come and go; the others stay in their order."""
    value = op.host.value(tensor)
    if [size for size in value.shape if size != 1] != [size for size in op.shape if size != 1]:
        raise Untranslated("index the tensor: only axes of length 1 can be added or dropped")

    def at(places: Places) -> Term:
        given = iter([place for place, size in zip(places, op.shape, strict=True) if size != 1])
        return value.at(tuple(op.make.number(0) if size == 1 else next(given) for size in value.shape))

    return op.gives(at)


def _expand(op: Operation, tensor: Any, *_: Any, **__: Any) -> Value:
    value = op.host.value(tensor)
    return op.gives(lambda places: entry(value, places))


def _permute(op: Operation, tensor: Any, dims: Sequence[int]) -> Value:
    value = op.host.value(tensor)
    order = [dim % tensor.ndim for dim in dims]
    return op.gives(lambda places: value.at(tuple(places[order.index(axis)] for axis in range(len(order)))))


def _transpose(op: Operation, tensor: Any, first: int, second: int) -> Value:
    dims = list(range(tensor.ndim))
    dims[first], dims[second] = dims[second], dims[first]
    return _permute(op, tensor, dims)


def _index_select(op: Operation, tensor: Any, dim: int, index: Any) -> Value:
    taken = indexed(op.host, tensor, _along(tensor, dim, index))
    if taken.shape == op.shape:
        return taken
    dim %= tensor.ndim  # torch gives an axis of one entry for an index without axes
    return op.gives(lambda places: taken.at((*places[:dim], *places[dim + 1 :])))


def _index(op: Operation, tensor: Any, indices: Sequence[Any]) -> Value:
    return indexed(op.host, tensor, tuple(slice(None) if item is None else item for item in indices))


def _embedding(op: Operation, weight: Any, index: Any, *_: Any, **__: Any) -> Value:
    return indexed(op.host, weight, index)


# -------------------------------------------------------------------- reductions

Fold = Callable[[Operation, Value, int, Callable[[Term], Term]], Term]


def _reduction(fold: Fold) -> Callable[..., Value]:
    """A reduction over some axes, one after the other: `fold(operation, value, axis, inner)` folds one of them, where
    `inner` gives the entry at a place of the axis."""

    def reduce(op: Operation, tensor: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
        value = op.host.value(tensor)
        rank = len(value.shape)
        given = [dims] if isinstance(dims, int) else dims
        over = sorted(dim % rank for dim in given) if given else list(range(rank))
        if any(value.shape[dim] > MOST_ENTRIES for dim in over):
            raise Untranslated(_TOO_LONG)

        def folded(frame: Places, left: list[int]) -> Term:
            if not left:
                return value.at(frame)
            dim, *rest = left
            return fold(op, value, dim, lambda place: folded((*frame[:dim], place, *frame[dim + 1 :]), rest))

        def at(places: Places) -> Term:
            kept = iter([place for i, place in enumerate(places) if i not in over] if keepdim else places)
            return folded(tuple(op.make.number(0) if i in over else next(kept) for i in range(rank)), over)

        return op.gives(at)

    return reduce


def _loop(function: str) -> Callable[..., Value]:
    """`any`, `all` and `sum`, as the language has them."""

    def fold(op: Operation, value: Value, dim: int, inner: Callable[[Term], Term]) -> Term:
        span = op.make.span
        variable = Variable(name="ijmn"[dim % 4], span=span)
        count = op.make.number(value.shape[dim])
        return Reduce(function=function, body=inner(variable), variable=variable, count=count, span=span)

    return _reduction(fold)


def _chain(name: str) -> Callable[..., Value]:
    """`max` and `min` of the entries of an axis, written out."""

    def fold(op: Operation, value: Value, dim: int, inner: Callable[[Term], Term]) -> Term:
        found = [inner(op.make.number(i)) for i in range(value.shape[dim])]
        whole = found[0]
        for item in found[1:]:
            whole = op.make(name, whole, item)
        return whole

    return _reduction(fold)


def _over(op: Operation, function: str, shape: Sequence[int], body: Callable[[Term], Term]) -> Term:
    """`function(body(i) for i in range(n))`, for the only axis of a shape."""
    span = op.make.span
    variable = Variable(name="i", span=span)
    count = op.make.number(shape[0])
    return Reduce(function=function, body=body(variable), variable=variable, count=count, span=span)


def _few(op: Operation, tensor: Any) -> Value:
    """A tensor with one axis of a few entries."""
    value = op.host.value(tensor)
    if len(value.shape) != 1 or value.shape[0] > MOST_ENTRIES:
        raise Untranslated(_TOO_LONG)
    return value


def _bucketize(op: Operation, x: Any, boundaries: Any, *, right: bool = False, **_: Any) -> Value:
    """How many boundaries are below x, or with `right` not above it."""
    value, limits, sign = _operand(op, x), _few(op, boundaries), "<=" if right else "<"

    def at(places: Places) -> Term:
        own = _entry(value, places)
        return _over(op, "sum", limits.shape, lambda i: op.make.compare(sign, limits.at((i,)), own))

    return op.gives(at)


def _searchsorted(op: Operation, boundaries: Any, x: Any, *, right: bool = False, side: Any = None, **_: Any) -> Value:
    return _bucketize(op, x, boundaries, right=right or side == "right")


def _isin(op: Operation, elements: Any, test: Any, *, assume_unique: bool = False, invert: bool = False) -> Value:
    value, items = _operand(op, elements), _few(op, test)

    def at(places: Places) -> Term:
        own = _entry(value, places)
        found = _over(op, "any", items.shape, lambda i: op.make.compare("==", items.at((i,)), own))
        return op.make("logical_not", found) if invert else found

    return op.gives(at)


def _dot(op: Operation, left: Any, right: Any) -> Value:
    one, other = op.host.value(left), op.host.value(right)
    if one.shape[0] > MOST_ENTRIES:
        raise Untranslated("append the vectors to those of q and k, as further head dims")
    return op.gives(lambda places: _over(op, "sum", one.shape, lambda i: op.make("mul", one.at((i,)), other.at((i,)))))


def _stack(op: Operation, tensors: Sequence[Any], dim: int = 0) -> Value:
    """One of the tensors, by the place on the new axis."""
    values = [op.host.value(item) for item in tensors]
    dim %= len(op.shape)

    def at(places: Places) -> Term:
        place, rest = places[dim], (*places[:dim], *places[dim + 1 :])
        *others, chosen = [item.at(rest) for item in values]
        for number, item in reversed(list(enumerate(others))):
            chosen = op.make("where", op.make.compare("==", place, op.make.number(number)), item, chosen)
        return chosen

    return op.gives(at)


def _mean(op: Operation, tensor: Any, *args: Any, **kwargs: Any) -> Value:
    total = SHAPES["sum"](op, tensor, *args, **kwargs)
    count = math.prod(tensor.shape) // max(math.prod(total.shape), 1)
    return op.gives(lambda places: op.make("truediv", total.at(places), op.make.number(count)))


# -------------------------------------------------------------------- tensors that are one number


def _filled(op: Operation, value: float) -> Value:
    kind = float if op.dtype.is_floating_point else bool if op.dtype == torch.bool else int
    return op.gives(lambda places: op.make.number(kind(value)))


def _ones(op: Operation, *_: Any, **__: Any) -> Value:
    return _filled(op, 1)


def _zeros(op: Operation, *_: Any, **__: Any) -> Value:
    return _filled(op, 0)


def _full(op: Operation, *args: Any, **kwargs: Any) -> Value:
    value = kwargs.get("fill_value", args[-1])
    if isinstance(value, torch.Tensor):
        return _expand(op, value)
    return _filled(op, value)


_VIEWS = ("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "_reshape_alias")

SHAPES: dict[str, Callable[..., Value]] = {
    **dict.fromkeys(_VIEWS, _reshaped),
    "select": _select,
    "slice": _slice,
    "expand": _expand,
    "permute": _permute,
    "transpose": _transpose,
    "index": _index,
    "index_select": _index_select,
    "embedding": _embedding,
    "any": _loop("any"),
    "all": _loop("all"),
    "sum": _loop("sum"),
    "mean": _mean,
    "amax": _chain("max"),
    "amin": _chain("min"),
    "max": _chain("max"),
    "min": _chain("min"),
    "bucketize": _bucketize,
    "searchsorted": _searchsorted,
    "isin": _isin,
    "dot": _dot,
    "stack": _stack,
    "ones_like": _ones,
    "zeros_like": _zeros,
    "new_ones": _ones,
    "new_zeros": _zeros,
    "full_like": _full,
    "new_full": _full,
    "fill": _full,
    "scalar_tensor": _full,
}

"""`x[i]` in a mod, where `i` depends on the pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..import_flex.bounds import least
from ..import_flex.terms import Number, Term
from .aten import Untranslated
from .host import Host
from .terms import Maker, Places, Value, entry


def indexed(host: Host, tensor: Any, index: Any) -> Value:
    """`tensor[index]`, of a tensor from outside or one of the mod."""
    return _Indexing(host, tensor).value(index if isinstance(index, tuple) else (index,))


class _Indexing:
    """Each axis of the tensor is indexed by a term, by a range (a slice), or by a `Value` with axes of its own; None in
    the plan stands for a new axis."""

    def __init__(self, host: Host, tensor: Any) -> None:
        self.host, self.tensor, self.make = host, tensor, Maker(host.span())
        self.captured = None if host.is_symbolic(tensor) else host.captured(tensor)

    def value(self, index: tuple[Any, ...]) -> Value:
        plan: list[Any] = []
        axis = 0
        for item in _expanded(index, self.tensor.ndim):
            plan.append(None if item is None else self.chosen(axis, item))
            axis += item is not None
        if any(isinstance(item, Value) for item in plan):
            return self.gathered(plan)
        shape = tuple(1 if item is None else len(item) for item in plan if item is None or isinstance(item, range))
        return Value(shape, self.tensor.dtype, lambda places: self.read(self.spread(plan, places)))

    def chosen(self, axis: int, item: Any) -> Any:
        """What an axis is indexed by."""
        if isinstance(item, bool) or (isinstance(item, torch.Tensor) and item.dtype == torch.bool):
            raise self.host.refusal("a mod can't choose elements by a bool", "write torch.where(condition, a, b)")
        if isinstance(item, torch.Tensor):
            value = self.host.value(item)
            return value if value.shape else self.wrapped(axis, value.term)
        if isinstance(item, slice):
            self.host.fix_shape(self.tensor)
            return range(*item.indices(self.tensor.shape[axis]))
        if isinstance(item, int):
            return self.wrapped(axis, self.make.number(item))
        help = "index by the mod's own indices, or by numbers"
        raise self.host.refusal(f"a mod can't index by a {type(item).__name__}", help)

    def wrapped(self, axis: int, index: Term) -> Term:
        """An index that counts from the end where it is negative, as torch's do. Entries of tensors are taken as 0 or
        more."""
        if least(index, of_elements=0) >= 0:
            return index
        make = self.make
        if isinstance(index, Number) or self.host.is_symbolic(self.tensor):
            self.host.fix_shape(self.tensor)
            length: Term = make.number(self.tensor.shape[axis])
            if isinstance(index, Number):
                return make.number(index.value + self.tensor.shape[axis])
        else:
            length = make.element(self.host.length(self.tensor, axis), ())
        return make("where", make.compare("<", index, make.number(0)), make("add", index, length), index)

    def spread(self, plan: Sequence[Any], places: Places) -> Places:
        """The index of each axis, where the result's places are these."""
        given, make = iter(places), self.make
        found = []
        for item in plan:
            if item is None:
                next(given)
            elif isinstance(item, range):
                place = next(given)
                step = place if item.step == 1 else make("mul", place, make.number(item.step))
                found.append(step if item.start == 0 else make("add", step, make.number(item.start)))
            else:
                found.append(item)
        return tuple(found)

    def gathered(self, plan: Sequence[Any]) -> Value:
        """Where indices have axes: these stand together in place of the first, or before all others where a slice is
        between them."""
        if None in plan:
            raise self.host.refusal("a mod can't index by tensors with axes and by None together", "use unsqueeze")
        lead = tuple(torch.broadcast_shapes(*(item.shape for item in plan if isinstance(item, Value))))
        where = [i for i, item in enumerate(plan) if not isinstance(item, range)]
        before = where[0] if where == list(range(where[0], where[-1] + 1)) else 0
        whole = [len(item) for item in plan if isinstance(item, range)]

        def at(places: Places) -> Term:
            own = places[before : before + len(lead)]
            rest = iter((*places[:before], *places[before + len(lead) :]))
            indices: list[Term] = []
            for axis, item in enumerate(plan):
                if isinstance(item, Value):
                    indices.append(self.wrapped(axis, entry(item, own)))
                else:
                    indices += self.spread([item], (next(rest),) if isinstance(item, range) else ())
            return self.read(tuple(indices))

        return Value((*whole[:before], *lead, *whole[before:]), self.tensor.dtype, at)

    def read(self, places: Places) -> Term:
        if self.captured is None:
            return self.host.value(self.tensor).at(places)
        return self.make.element(self.captured, places)


def _expanded(items: tuple[Any, ...], rank: int) -> list[Any]:
    """With a whole axis for each that isn't indexed."""
    used = sum(item is not None and item is not ... for item in items)
    if used > rank:
        raise Untranslated("index a tensor by one element for each axis")
    whole = [slice(None)] * (rank - used)
    place = next((i for i, item in enumerate(items) if item is ...), None)
    return [*items, *whole] if place is None else [*items[:place], *whole, *items[place + 1 :]]

"""The tensors that a mod reads: which inputs they become, and where a later call finds them.

A tensor comes from a cell, a global, an attribute (`Contents` lists them in an order that a later call has too); from a
function of such tensors that the mod calls (which is called again); or it is made in the mod, from numbers, and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..diagnostics import AttnccError, Diagnostic
from ..import_flex.terms import Captured, Element, Number
from ..source import Span
from .frames import NOWHERE
from .terms import Places, Value

_DTYPES = {
    torch.bool: "bool", torch.int8: "i32", torch.uint8: "i32", torch.int16: "i32", torch.int32: "i32",
    torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f32",
}  # fmt: skip
_MOST_AXES = 4

# Properties and methods of tensors that the key tells, and those that shapes tell.
_OF_KEY = frozenset({
    "dtype", "device", "requires_grad", "ndim", "dim", "ndimension", "is_cuda", "get_device", "layout", "is_complex",
    "is_floating_point", "is_sparse", "is_nested", "element_size", "__hash__",
})  # fmt: skip
_OF_SHAPE = frozenset({"shape", "size", "numel", "nelement", "__len__", "stride", "is_contiguous"})


@dataclass(frozen=True)
class Slot:
    """A tensor that the mods hold: `Contents.tensors[place]`."""

    place: int


@dataclass(frozen=True)
class Step:
    """The result of a step of `Recipe`."""

    place: int


@dataclass(frozen=True)
class Axis:
    """The length of an axis."""

    of: Slot | Step
    axis: int


Source = Slot | Step | Axis


@dataclass
class Recipe:
    """How a later call finds its inputs: steps that compute tensors from others, and the shapes that must be as before.

    A step is a tensor that is kept, or a function with its arguments, in which `Slot`s and `Step`s stand for tensors.
    """

    steps: list[Any]
    shapes: dict[Slot | Step, tuple[int, ...]]
    lasting: bool = True  # all that the mods read can be found again

    def fits(self, tensors: Sequence[Any], made: Sequence[Any]) -> bool:
        return all(tuple(found(item, tensors, made).shape) == shape for item, shape in self.shapes.items())

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """The result of each step."""
        made: list[Any] = []
        for step in self.steps:
            if isinstance(step, tuple):
                func, args, kwargs = step
                made.append(func(*_filled(args, tensors, made), **_filled(kwargs, tensors, made)))
            else:
                made.append(step)
        return made


def found(source: Source, tensors: Sequence[Any], made: Sequence[Any]) -> Any:
    """The tensor, or the length, that a source stands for."""
    if isinstance(source, Axis):
        return found(source.of, tensors, made).shape[source.axis]
    return tensors[source.place] if isinstance(source, Slot) else made[source.place]


def _filled(item: Any, tensors: Sequence[Any], made: Sequence[Any]) -> Any:
    if isinstance(item, Slot | Step):
        return found(item, tensors, made)
    if isinstance(item, dict):
        return {name: _filled(value, tensors, made) for name, value in item.items()}
    if isinstance(item, tuple | list):
        return type(item)(_filled(value, tensors, made) for value in item)
    return item


class Held(Protocol):
    """What mods hold, as `keys.Contents` lists it."""

    tensors: list[Any]
    names: list[str]
    known: bool

    def place(self, tensor: Any) -> int | None:
        """Where a tensor stands in `tensors`."""


class Sources:
    """The tensors that mods read while they are traced."""

    def __init__(self, contents: Held, device: Any, double: bool = False) -> None:
        self.contents, self._device = contents, device
        self.recipe = Recipe([], {}, contents.known)
        self.inputs: dict[Captured, Source] = {}
        self._double = double
        self._steps: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used twice
        self._constants: set[int] = set()
        self._names: dict[int, str] = {}  # of steps
        self._captured: dict[Source, Captured] = {}

    # ---------------------------------------------------------------- tensors

    def source(self, tensor: Any) -> Slot | Step:
        place = self.contents.place(tensor)
        if place is not None:
            return Slot(place)
        if id(tensor) not in self._steps:  # it came from nowhere: it serves this call alone
            self.recipe.lasting = False
            self._add(tensor, tensor, "table")
        return Step(self._steps[id(tensor)])

    def constant(self, tensor: Any) -> None:
        """A tensor that is made of numbers of the mod, and is the same in every call."""
        self._constants.add(id(tensor))
        self._add(tensor, tensor.to(self._device), "table")

    def is_known(self, tensor: Any) -> bool:
        return self.contents.place(tensor) is not None or id(tensor) in self._steps

    def captured(self, tensor: Any, span: Span) -> Captured:
        """The input that a tensor becomes. AttnccError A713 for a dtype that none has."""
        source = self.source(tensor)
        if source not in self._captured:
            name = self._name(source)
            if tensor.ndim > _MOST_AXES:
                what = f"`{name}` has {tensor.ndim} axes, and an input at most {_MOST_AXES}"
                raise _refusal(what, span, "flatten axes outside of the mod, and index what they became")
            dtype = _dtype(tensor, span, self._double)
            self._captured[source] = captured = Captured(name, span, "", dtype, learnable=tensor.requires_grad)
            self.inputs[captured] = source
        return self._captured[source]

    def length(self, tensor: Any, axis: int, span: Span) -> Captured:
        """The length of an axis, as an input of its own."""
        source = Axis(self.source(tensor), axis)
        if source not in self._captured:
            name = f"{self._name(source.of)}_length" + (f"_{axis}" if tensor.ndim > 1 else "")
            self._captured[source] = captured = Captured(name, span, "", "i64")
            self.inputs[captured] = source
        return self._captured[source]

    def number(self, place: int, dtype: str) -> Captured:
        """A number among the tensors, as an input of its own."""
        source = Slot(place)
        if source not in self._captured:
            self._captured[source] = captured = Captured(self._name(source), NOWHERE, "", dtype)
            self.inputs[captured] = source
        return self._captured[source]

    def value(self, tensor: Any, span: Span) -> Value:
        """A tensor's elements. A number that the mod itself has made is that number."""
        if id(tensor) in self._constants and tensor.ndim == 0:
            number = Number(value=tensor.item(), span=span)
            return Value((), tensor.dtype, lambda places: number)
        captured = self.captured(tensor, span)
        if tensor.ndim:
            self.fix_shape(tensor)

        def at(places: Places) -> Element:
            return Element(captured=captured, indices=places, span=span)

        return Value(tuple(tensor.shape), tensor.dtype, at)

    def fix_shape(self, tensor: Any) -> None:
        """What is traced holds for this shape of the tensor alone."""
        if id(tensor) not in self._constants:
            self.recipe.shapes[self.source(tensor)] = tuple(tensor.shape)

    def _name(self, source: Slot | Step) -> str:
        names = self.contents.names if isinstance(source, Slot) else self._names
        return names[source.place] or "table"

    # ---------------------------------------------------------------- what mods do with plain tensors

    def note(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """A function that a mod has called with plain tensors, or with none."""
        tensors = [item for item in flat((args, kwargs)) if isinstance(item, torch.Tensor)]
        if isinstance(result, torch.Tensor):
            if all(id(item) in self._constants for item in tensors):
                self.constant(result)
            else:
                base = next(self._name(self.source(item)) for item in tensors)
                called = "" if name.startswith("__") else f"_{name}"
                self._add(result, (func, self._replaced(args), self._replaced(kwargs)), f"{base}{called}")
            return
        of = getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name
        if of in _OF_SHAPE:
            for item in tensors:
                self.fix_shape(item)
        elif of not in _OF_KEY and tensors:
            self.recipe.lasting = False

    def _add(self, tensor: Any, step: Any, name: str) -> None:
        self._steps[id(tensor)] = len(self.recipe.steps)
        self._names[len(self.recipe.steps)] = name
        self._kept.append(tensor)
        self.recipe.steps.append(step)

    def _replaced(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return self.source(item)
        if isinstance(item, dict):
            return {name: self._replaced(value) for name, value in item.items()}
        if isinstance(item, tuple | list):
            return type(item)(map(self._replaced, item))
        return item


def flat(items: Any) -> list[Any]:
    """What lists, tuples and dicts hold, however deep."""
    if isinstance(items, dict):
        items = items.values()
    elif not isinstance(items, tuple | list):
        return [items]
    return [inner for item in items for inner in flat(item)]


def _dtype(tensor: Any, span: Span, double: bool) -> str:
    if tensor.dtype not in _DTYPES or (tensor.dtype == torch.float64 and not double):
        what = f"a mod reads a tensor of {tensor.dtype}, which no input has"
        raise _refusal(what, span, "cast it outside of the mod, to torch.float32 or torch.int64")
    return _DTYPES[tensor.dtype]


def _refusal(what: str, span: Span, help: str) -> AttnccError:
    return AttnccError(Diagnostic("A713", what, span if span.source.text else None, help=help))

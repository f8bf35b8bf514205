"""Functions that the machine itself knows: operators of terms, casts, constants, Python's functions of lists."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ..diagnostics import Diagnostic
from ..source import Span
from .blocks import listed
from .fold import known
from .machine import Machine, Shape
from .terms import OPERATORS, Captured, Number, Role, Term
from .values import NOTHING, Block, Class, Function, Given, Instance, Items, Library, Like, Lookup, Nothing, Text, Value

Intrinsic = Callable[[Machine, Given], Value]

MAX_ITEMS = 1000  # of a range that is written out

_OUTSIDE = "make the tensor outside of the mod, and index it"
_A_LIST = "write a list or `range(n)`, with n known"

# -------------------------------------------------------------------- casts and constants

_CASTS = {
    **dict.fromkeys(("float", "float16", "float32", "float64", "bfloat16", "half", "double"), "to_float"),
    **dict.fromkeys(("int", "int8", "int16", "int32", "int64", "uint8", "short", "long"), "to_int"),
    "bool": "to_bool",
}


def _cast(machine: Machine, given: Given) -> Value:
    """`x` in the first of some dtypes; what is no dtype (a device, None) changes nothing."""
    value, *others = given.values
    for other in others:
        like = other.term if isinstance(other, Like) else other
        if isinstance(like, Term) and not isinstance(like, Number):
            return machine.apply("to_like", [value, like], given.span)
        if isinstance(other, Library) and (op := _CASTS.get(other.path.rpartition(".")[2])):
            return machine.apply(op, [value], given.span)
        if not isinstance(other, Nothing | Text | Captured | Number):
            return _cannot(machine, given, "A704", "this dtype can't be taken", "cast to float32, int32, int64 or bool")
    return value


def _full(machine: Machine, given: Given) -> Value:
    """A tensor that holds one number: that number, where it has no axes. Outside of mods one with axes is captured."""
    size, value, dtype = given.values
    shape = size_of(size)
    number = _cast(machine, replace(given, values=(value, dtype)))
    if shape == ():
        return number
    if shape is None or None in shape or not machine.inside or not isinstance(number, Term):
        why = Diagnostic("A704", "a mod can't make a tensor", given.span, help=_OUTSIDE)
        return machine.cannot(given.span, given.every, why, shape)
    return Block(shape, lambda places: number)


def size_of(size: Value) -> Shape:
    """The shape that `torch.zeros(2, 3)` and `torch.zeros((2, 3))` name."""
    while isinstance(size, Items) and len(size.items) == 1 and isinstance(size.items[0], Items):
        size = size.items[0]
    sizes = size.items if isinstance(size, Items) else (size,)
    if len(sizes) == 1 and not isinstance(sizes[0], Term):  # a number, or a shape of any length
        return None
    numbers = [known(item) if isinstance(item, Term) else None for item in sizes]
    return tuple(number if isinstance(number, int) else None for number in numbers)


def _drawn(machine: Machine, given: Given) -> Value:
    """A tensor that holds anything: only its shape matters."""
    why = Diagnostic("A704", "a mod can't make a tensor", given.span, help=_OUTSIDE)
    return machine.cannot(given.span, given.every, why, size_of(Items(given.values)))


_DRAWN = ("rand", "randn")


def made_shape(name: str, given: Given) -> Shape:
    """The shape of what another function of torch makes, where its arguments say it."""
    if name in _DRAWN:
        return size_of(Items(given.values))
    return size_of(given.values[-1]) if name == "randint" and given.values else None


def _of_elements(value: Value) -> Shape:
    """The shape of a list of numbers, or of lists of them; None if it has anything else in it."""
    if not isinstance(value, Items):
        return () if isinstance(value, Term) else None
    inner = {_of_elements(item) for item in value.items}
    rest = next(iter(inner)) if len(inner) == 1 else None
    return None if rest is None else (len(value.items), *rest)


def _tensor(machine: Machine, given: Given) -> Value:
    """`torch.tensor(5.0)` is a number; one of a list comes from outside."""
    data = given.values[0]
    if isinstance(data, Captured) and not machine.inside:
        return machine.derive(given.span, given.every, shape=machine.shape_of(data))
    if isinstance(data, Items):
        block = (
            listed(machine, data.items, given.span) if machine.inside and len(_of_elements(data) or ()) == 1 else None
        )
        why = Diagnostic("A704", "a mod can't make a tensor", given.span, help=_OUTSIDE)
        return block or machine.cannot(given.span, given.every, why, _of_elements(data))
    return _cast(machine, given)


def _truncate(machine: Machine, given: Given) -> Value:
    """Towards 0, as a float."""
    return machine.apply("to_float", [machine.apply("to_int", given.values, given.span)], given.span)


def _number(op: str) -> Intrinsic:
    """`int(x)`, `float(x)`, `bool(x)`, and `float("-inf")`."""

    def cast(machine: Machine, given: Given) -> Value:
        value = given.values[0] if len(given.every) == 1 else NOTHING
        if isinstance(value, Text):
            try:
                number = float(value.value) if op == "to_float" else int(value.value)
            except ValueError:
                return machine.derive(given.span)
            return Number(value=number, span=given.span)
        if value is NOTHING:
            return _cannot(machine, given, "A704", "this cast can't be taken", "cast one number")
        return machine.apply(op, [value], given.span)

    return cast


def _parameter(machine: Machine, given: Given) -> Value:
    """`nn.Parameter(tensor)`: as it is, where it has a name and a shape."""
    value = given.values[0] if given.values else NOTHING
    shape = machine.shape_of(value) if isinstance(value, Captured) else None
    return machine.derive(given.span, given.every, shape=shape)


_TYPES: dict[str, tuple[type, ...]] = {
    "builtins.int": (int,), "builtins.float": (float,), "builtins.bool": (bool,), "builtins.str": (Text,),
    "builtins.list": (Items,), "builtins.tuple": (Items,), "builtins.dict": (Lookup,),
}  # fmt: skip


def _isinstance(machine: Machine, given: Given) -> Value:
    """Whether a value is of a type, where both are known: numbers, texts, lists, None, tensors of known shape."""
    value, kinds = given.values if len(given.values) == 2 else (NOTHING, NOTHING)
    every = kinds.items if isinstance(kinds, Items) else (kinds,)
    found = [_is_of(machine, value, kind) for kind in every]
    if True in found or None not in found:
        return Number(value=True in found, span=given.span)
    return machine.derive(given.span, given.every)


def _is_of(machine: Machine, value: Value, kind: Value) -> bool | None:
    """None where it isn't known."""
    if isinstance(kind, Class):
        return False if isinstance(value, Nothing | Number | Text | Items | Lookup | Function) else None
    if not isinstance(kind, Library):
        return None
    if isinstance(value, Captured):
        return _is_tensor_of(kind.path) if machine.shape_of(value) is not None else None
    if isinstance(value, Nothing | Function):
        return False
    number = known(value) if isinstance(value, Term) else None
    held = value if number is None else number
    if isinstance(held, Term | Instance):
        return None
    return isinstance(held, _TYPES.get(kind.path, ()))


def _is_tensor_of(path: str) -> bool | None:
    """Whether a tensor is of a type: of a special sort of tensor it isn't known."""
    if path == "torch.Tensor":
        return True
    return None if re.search(r"Tensor$|Parameter$", path) else False


def _finfo(machine: Machine, given: Given) -> Value:
    """The limits of a dtype; that of the score counts as float32, in which scores are computed."""
    dtype = given.values[0] if given.values else NOTHING
    return Library(f"torch.finfo.{dtype.path.removeprefix('torch.') if isinstance(dtype, Library) else 'float32'}")


# -------------------------------------------------------------------- lists


def _range(machine: Machine, given: Given) -> Value:
    numbers = [known(value) if isinstance(value, Term) else None for value in given.values]
    bounds = [number for number in numbers if isinstance(number, int)]
    if len(bounds) < len(numbers) or not 1 <= len(bounds) <= 3 or 0 in bounds[2:]:
        help = "give its value in the call, as in FILE.py:factory(value)"
        return _cannot(machine, given, "A709", "how long this range is isn't known", help)
    places = range(*bounds)
    if len(places) > MAX_ITEMS:
        return _cannot(machine, given, "A711", "this range is too long", _OUTSIDE)
    return Items(tuple(Number(value=place, span=given.span) for place in places))


def _of_lists(combine: Callable[[list[tuple[Value, ...]], Span], Value], least: int = 1) -> Intrinsic:
    """A function of lists; of anything else its result comes from outside."""

    def apply(machine: Machine, given: Given) -> Value:
        lists = [value.items for value in given.values if isinstance(value, Items)]
        if len(lists) < len(given.every) or len(lists) < least:
            return _cannot(machine, given, "A703", "this list isn't known", _A_LIST)
        return combine(lists, given.span)

    return apply


def _listed(lists: list[tuple[Value, ...]], span: Span) -> Value:
    return Items(lists[0] if lists else ())


def _reversed(lists: list[tuple[Value, ...]], span: Span) -> Value:
    return Items(lists[0][::-1])


def _enumerated(lists: list[tuple[Value, ...]], span: Span) -> Value:
    return Items(tuple(Items((Number(value=i, span=span), item)) for i, item in enumerate(lists[0])))


def _zipped(lists: list[tuple[Value, ...]], span: Span) -> Value:
    return Items(tuple(Items(items) for items in zip(*lists, strict=False)))


def _length(lists: list[tuple[Value, ...]], span: Span) -> Value:
    return Number(value=len(lists[0]), span=span)


def _joined(op: str, start: bool | int | None = None) -> Intrinsic:
    """`sum(items)` and its like, and `min(a, b)`: an operator between the items of a list, or between the arguments."""

    def apply(machine: Machine, given: Given) -> Value:
        only = given.values[0] if len(given.values) == 1 else None
        items = only.items if isinstance(only, Items) else given.values
        if given.keywords or (items is given.values and (start is not None or len(items) < 2)):
            return _cannot(machine, given, "A703", "this list isn't known", _A_LIST)
        if not items:
            return machine.derive(given.span) if start is None else Number(value=start, span=given.span)
        if op == "add":
            items = (Number(value=0, span=given.span), *items)  # so that a sum of bools counts them
        result = items[0]
        for item in items[1:]:
            result = machine.apply(op, [result, item], given.span)
        return result

    return apply


# -------------------------------------------------------------------- functions of functions


def _partial(machine: Machine, given: Given) -> Value:
    """`functools.partial(function, *arguments, **keywords)`: a function that has some of its arguments."""
    function = given.values[0] if given.values else NOTHING
    if not isinstance(function, Function):
        return _cannot(machine, given, "A704", "`partial` of this can't be taken", "give it a function of this file")
    role = Role.ARGUMENT if machine.inside else Role.OUTER
    more = {name: machine.named(value, name, given.span, role) for name, value in given.keywords.items()}
    bound = (*function.bound, *given.values[1:])
    return replace(function, bound=bound, defaults={**function.defaults, **more})


def _reduce(machine: Machine, given: Given) -> Value:
    """`functools.reduce(function, items, start)`."""
    function, items, *start = given.values if len(given.values) > 1 else (NOTHING, NOTHING)
    values = [*start, *items.items] if isinstance(items, Items) else []
    if not values:
        return _cannot(machine, given, "A703", "this list isn't known", "write a list, with an item at least")
    result = values[0]
    for value in values[1:]:
        result = machine.call(function, Given((result, value), {}, given.span))
    return result


def _cannot(machine: Machine, given: Given, code: str, message: str, help: str) -> Value:
    return machine.cannot(given.span, given.every, Diagnostic(code, message, given.span, help=help))


def _operator(op: str) -> Intrinsic:
    return lambda machine, given: machine.apply(op, given.values, given.span)


INTRINSICS: dict[str, Intrinsic] = {
    **{f"attncc.{op}": _operator(op) for op in OPERATORS},
    "attncc.cast": _cast,
    "attncc.full": _full,
    "attncc.tensor": _tensor,
    "attncc.truncate": _truncate,
    "attncc.reduce": _reduce,
    "torch.empty": _drawn,
    "torch.nn.Parameter": _parameter,
    "builtins.isinstance": _isinstance,
    "functools.reduce": _reduce,
    "functools.partial": _partial,
    "torch.finfo": _finfo,
    "builtins.int": _number("to_int"),
    "builtins.float": _number("to_float"),
    "builtins.bool": _number("to_bool"),
    "builtins.range": _range,
    "builtins.list": _of_lists(_listed, least=0),
    "builtins.tuple": _of_lists(_listed, least=0),
    "builtins.len": _of_lists(_length),
    "builtins.reversed": _of_lists(_reversed),
    "builtins.enumerate": _of_lists(_enumerated),
    "builtins.zip": _of_lists(_zipped),
    "builtins.min": _joined("min"),
    "builtins.max": _joined("max"),
    "builtins.sum": _joined("add", 0),
    "builtins.any": _joined("logical_or", False),
    "builtins.all": _joined("logical_and", True),
}

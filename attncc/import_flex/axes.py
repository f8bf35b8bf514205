"""What torch does over the axes of a tensor, inside of a mod: the functions of the prelude that `blocks` computes."""

from __future__ import annotations

from collections.abc import Callable

from ..semantics.builtins import MAX_ITERATIONS
from ..source import Span
from . import library
from .blocks import MAKE_SHAPE_KNOWN, block, counted, fold, reduced, settled, squeezed, unsqueezed
from .fold import known, truth
from .machine import Machine
from .terms import Captured, Element, Number, Term, walk
from .values import BAD, NOTHING, Block, Given, Items, Text, Value, parts

Intrinsic = Callable[[Machine, Given], Value]
Rule = Callable[..., Value]

_FOLDS = {"any": "any", "all": "all", "sum": "sum", "mean": "sum", "amax": "max", "amin": "min"}


def _inside(rule: Rule) -> Intrinsic:
    """A rule for the arguments and the span of a call in a mod; what doesn't depend on the pair is captured."""

    def apply(machine: Machine, given: Given) -> Value:
        every = [part for value in given.every for part in parts(value)]
        varies = any(isinstance(part, Block) or (isinstance(part, Term) and part.varies) for part in every)
        if not machine.inside or (not varies and any(isinstance(part, Captured | Element) for part in every)):
            return machine.derive(given.span, given.every)
        return BAD if BAD in given.values else rule(machine, *given.values, span=given.span)

    return apply


def _over(machine: Machine, function: Value, value: Value, dim: Value, keeps: Value, *, span: Span) -> Value:
    """`any`, `all`, `sum`, `mean`, `amax`, `amin` over one axis, some, or all."""
    assert isinstance(function, Text)
    found = block(machine, value, span)
    if found is None:
        return BAD
    if not found.shape:
        return _of_unknown_axes(machine, function.value, value, dim, span)
    dims = _dims(machine, dim, len(found.shape), span)
    if dims is None:
        return BAD
    result = reduced(machine, _FOLDS[function.value], found, dims, span, keeps=_is_true(keeps))
    if function.value != "mean":
        return result
    count = 1
    for axis in {item % len(found.shape) for item in dims}:
        count *= found.shape[axis] or 1
    return machine.apply("truediv", [result, Number(value=count, span=span)], span)


def _of_unknown_axes(machine: Machine, name: str, value: Value, dim: Value, span: Span) -> Value:
    """Over a value without known axes: a number, unless it reads a tensor that may have more axes than indices."""
    term = machine.number(value, span)
    if term is None:
        return BAD
    read = [item.captured for item in walk(term) if isinstance(item, Element)]
    unsure = next((captured for captured in read if machine.shape_of(captured) is None), None)
    if unsure is not None:
        message = f"how long an axis of `{unsure.name}` is isn't known"
        return machine.error("A707", message, span, help=MAKE_SHAPE_KNOWN)
    if dim is NOTHING:  # of a number it is the number
        return machine.apply("to_bool", [term], span) if name in ("any", "all") else term
    return machine.error("A704", f"`.{name}()` over an axis of a number", span, help=library.ADVICE[name])


def _dims(machine: Machine, dim: Value, rank: int, span: Span) -> list[int] | None:
    """The axes that an argument names; None after an error."""
    if dim is NOTHING:
        return list(range(rank))
    named = dim.items if isinstance(dim, Items) else (dim,)
    values = [known(item) if isinstance(item, Term) else None for item in named]
    found = [value for value in values if isinstance(value, int) and -rank <= value < rank]
    if len(found) == len(values):
        return found
    machine.error(
        "A707", f"which of {rank} axes this goes over isn't known", span, help="give a number, as in .any(-1)"
    )
    return None


def _is_true(value: Value) -> bool:
    return isinstance(value, Term) and truth(value) is True


def _extreme(machine: Machine, function: Value, value: Value, other: Value, dim: Value, *, span: Span) -> Value:
    """`torch.max(a, b)`, and `torch.max(a)` over all axes. Over one axis torch gives values and indices."""
    assert isinstance(function, Text)
    if dim is not NOTHING or (isinstance(other, Number) and isinstance(other.value, int)):
        message = f"`{function.value}` over an axis gives values and indices"
        return machine.error("A704", message, span, help=f"write .a{function.value}(dim) for the values")
    if other is NOTHING:
        return _over(machine, Text(f"a{function.value}"), value, NOTHING, NOTHING, span=span)
    return machine.apply(function.value, [value, other], span)


def _unsqueeze(machine: Machine, value: Value, dim: Value, *, span: Span) -> Value:
    found, place = block(machine, value, span), known(dim) if isinstance(dim, Term) else None
    if found is None or not isinstance(place, int):
        return BAD if found is None else machine.error("A707", "which axis this adds isn't known", span, help=_DIM)
    return unsqueezed(machine, found, place, span)


def _squeeze(machine: Machine, value: Value, dim: Value, *, span: Span) -> Value:
    found = block(machine, value, span)
    dims = None if found is None else _dims(machine, dim, len(found.shape), span)
    return BAD if found is None or dims is None else squeezed(found, dims, span)


_DIM = "give a number, as in .unsqueeze(-1)"


def _dot(machine: Machine, left: Value, right: Value, *, span: Span) -> Value:
    """The product of two vectors of one known length."""
    rows = [block(machine, value, span) for value in (left, right)]
    lengths = {row.shape for row in rows if row is not None}
    if None in rows:
        return BAD
    length = next(iter(lengths))[0] if len(lengths) == 1 and len(next(iter(lengths))) == 1 else None
    if length is None or length > MAX_ITERATIONS:
        message = f"a dot product of vectors of {length or 'unknown'} length can't be taken"
        help = library.ADVICE["dot"] if length else f"{library.ADVICE['dot']}; or {MAKE_SHAPE_KNOWN}"
        return machine.error("A704", message, span, help=help)
    products = machine.apply("mul", [left, right], span)
    return reduced(machine, "sum", machine.as_block(products, span), [0], span)


def _counts(compares: str) -> Rule:
    """How many elements of a vector compare with a value like that; `isin`: whether any does."""

    def rule(machine: Machine, value: Value, vector: Value, *others: Value, span: Span) -> Value:
        items, own = block(machine, vector, span), block(machine, value, span)
        if items is None or own is None:
            return BAD
        if len(items.shape) != 1 or (length := items.shape[0]) is None or not 1 <= length <= MAX_ITERATIONS:
            message = f"this needs a vector of known length, of at most {MAX_ITERATIONS} elements"
            return machine.error("A707", message, span, help=MAKE_SHAPE_KNOWN)
        op = compares if not (others and _is_true(others[0])) else "<="

        def at(places: tuple[Term, ...]) -> Term | None:
            wanted = own.at(places) or BAD

            def compared(place: Term) -> Term | None:
                found = machine.compare([op], [items.at((place,)) or BAD, wanted], [span] * 2, span)
                return machine.number(found, span)

            return fold(machine, "any" if op == "==" else "sum", length, span, compared)

        return settled(Block(own.shape, at))

    return rule


def _arange(machine: Machine, *bounds: Value, span: Span) -> Value:
    numbers = [known(value) for value in bounds if isinstance(value, Term)]
    whole = [number for number in numbers if isinstance(number, int)]
    if len(whole) < len(bounds) or not 1 <= len(whole) <= 3 or 0 in whole[2:]:
        return machine.error("A709", "how long this range is isn't known", span, help=MAKE_SHAPE_KNOWN)
    return counted(machine, range(*whole), span)


INTRINSICS: dict[str, Intrinsic] = {
    "attncc.over": _inside(_over),
    "attncc.extreme": _inside(_extreme),
    "attncc.unsqueeze": _inside(_unsqueeze),
    "attncc.squeeze": _inside(_squeeze),
    "attncc.dot": _inside(_dot),
    "attncc.bucketize": _inside(_counts("<")),
    "attncc.isin": _inside(_counts("==")),
    "attncc.arange": _inside(_arange),
}

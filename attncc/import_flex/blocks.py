"""Tensors with axes inside of a mod: their elements, views and reductions, written out for one pair.

A `Block` has a shape, and gives the term of the element at some places. It comes from a tensor whose shape is known and
that is indexed by less than all its axes. An operator on blocks gives a block (`Machine.apply`); a reduction over its
axes makes it a number again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..semantics.builtins import MAX_ITERATIONS
from ..source import Span
from .bounds import least
from .fold import known
from .machine import Machine
from .terms import Captured, Element, Number, Reduce, Term, Variable, walk
from .values import BAD, NOTHING, Block, Given, Items, Places, Value

MAKE_SHAPE_KNOWN = "give the tensor's shape, as in FILE.py:factory(torch.empty(2, 8)) or --input 't:i32[batch, 8]'"
_FEWER = "reduce the tensor outside of the mod, and index the result"

SOME = slice("some")  # a slice whose bounds aren't known

Reader = Callable[[Places], Term | None]


# -------------------------------------------------------------------- blocks from values, and numbers from blocks


def block(machine: Machine, value: Value, span: Span) -> Block | None:
    """A value as a block: a number has no axes, a list of numbers one. None after an error."""
    if isinstance(value, Items):
        return listed(machine, value.items, span)
    return None if value is BAD else machine.as_block(value, span)


def settled(found: Block) -> Value:
    """A block without axes as the number that it is."""
    if found.shape:
        return found
    term = found.at(())
    return BAD if term is None else term


def listed(machine: Machine, items: Sequence[Value], span: Span) -> Block | None:
    """A list of numbers; the one at a place that isn't known is chosen by comparing it."""
    terms = machine.numbers(items, [span] * len(items))
    if not terms:
        return None

    def at(places: Places) -> Term | None:
        place = known(places[0])
        if isinstance(place, int):
            return terms[place]
        chosen: Value = terms[-1]
        for number, term in reversed(list(enumerate(terms[:-1]))):
            is_here = machine.compare(["=="], [places[0], Number(value=number, span=span)], [span] * 2, span)
            chosen = machine.apply("where", [is_here, term, chosen], span)
        return machine.number(chosen, span)

    return Block((len(terms),), at)


def counted(machine: Machine, places: range, span: Span) -> Block:
    """`torch.arange(...)`."""

    def at(where: Places) -> Term | None:
        return machine.number(_stepped(machine, where[0], places, span), span)

    return Block((len(places),), at)


def _stepped(machine: Machine, place: Term, places: range, span: Span) -> Value:
    """`places[place]`."""
    found: Value = place
    if places.step != 1:
        found = machine.apply("mul", [found, Number(value=places.step, span=span)], span)
    return found if not places.start else machine.apply("add", [found, Number(value=places.start, span=span)], span)


def asked_of_shape(machine: Machine, value: Captured | Block, name: str, given: Given) -> Value | None:
    """`x.shape`, `x.size(0)`, `x.dim()`, `x.numel()`; None where the shape isn't known, or for another name."""
    shape = value.shape if isinstance(value, Block) else machine.shape_of(value)
    if shape is None or name not in _OF_SHAPE:
        return None
    if name in ("ndim", "dim"):
        return Number(value=len(shape), span=given.span)
    lengths = [length for length in shape if length is not None]
    return _OF_SHAPE[name](lengths, given) if len(lengths) == len(shape) else None


def _sizes(lengths: list[int], given: Given) -> Value | None:
    """All lengths, or the one of an axis."""
    numbers = Items(tuple(Number(value=length, span=given.span) for length in lengths))
    if not given.every:
        return numbers
    place = next((known(item) for item in given.every if isinstance(item, Term)), None)
    return numbers.items[place] if isinstance(place, int) and -len(lengths) <= place < len(lengths) else None


def _element_count(lengths: list[int], given: Given) -> Value | None:
    return Number(value=math.prod(lengths), span=given.span)


_OF_SHAPE: dict[str, Callable[[list[int], Given], Value | None]] = {
    **dict.fromkeys(("shape", "size", "ndim", "dim"), _sizes),
    **dict.fromkeys(("numel", "nelement"), _element_count),
}


# -------------------------------------------------------------------- indices and views


def indexed(machine: Machine, base: Block, items: Sequence[Value | slice], span: Span) -> Value:
    """`base[items]`: each a number, a slice with known bounds, None for a new axis, or a block (at most one)."""
    lengths = iter(base.shape)
    shape: list[int | None] = []
    readers: list[Reader] = []
    for item in items:
        if item is NOTHING:
            shape.append(1)
            continue
        length, start = next(lengths), len(shape)
        if isinstance(item, slice):
            places = None if length is None or item == SOME else range(*item.indices(length))
            shape.append(None if places is None else len(places))
            is_whole = places is None or places == range(length or 0)
            readers.append(_of_slice(machine, start, None if is_whole else places, span))
        elif isinstance(item, Block):
            shape += item.shape
            readers.append(_of_block(item, start))
        else:
            term = _from_the_start(machine, item, length, span)
            if term is None:
                return BAD
            readers.append(lambda places, term=term: term)  # type: ignore[misc]
    whole = list(lengths)
    readers += [_of_slice(machine, len(shape) + place, None, span) for place in range(len(whole))]

    def at(places: Places) -> Term | None:
        indices = [reader(places) for reader in readers]
        good = tuple(index for index in indices if index is not None)
        return base.at(good) if len(good) == len(indices) else None

    return settled(Block((*shape, *whole), at))


def _of_slice(machine: Machine, axis: int, taken: range | None, span: Span) -> Reader:
    """`taken`: the places of a part of an axis; None for all. An index below 0 counts from the end of the part: what
    stands before it is another element."""
    if taken is None:
        return lambda places: places[axis]

    def read(places: Places) -> Term | None:
        place: Value = places[axis]
        if least(places[axis]) < 0:
            place = machine.apply("mod", [place, Number(value=len(taken), span=span)], span)
        index = machine.number(place, span)
        return index and machine.number(_stepped(machine, index, taken, span), span)

    return read


def _of_block(item: Block, axis: int) -> Reader:
    return lambda places: item.at(places[axis : axis + len(item.shape)])


def _from_the_start(machine: Machine, item: Value, length: int | None, span: Span) -> Term | None:
    """An index; a known one below 0 counts from the end of an axis of known length. A707 for one beyond."""
    term = machine.number(item, span)
    value = None if term is None else known(term)
    if length == 0:
        machine.error("A707", f"`{span.text}` indexes an axis without entries", span, help="check the slice's bounds")
        return None
    if isinstance(value, int) and length is not None:
        if -length <= value < length:
            return Number(value=value % length, span=span) if value < 0 else term
        help = f"an axis of {length} has the indices 0 to {length - 1}, from the end {-length} to -1"
        machine.error("A707", f"the index {value} of `{span.text}` is out of range", span, help=help)
        return None
    if value is None or value >= 0:
        return term
    machine.error("A707", f"an index of `{span.text}` counts from the end", span, help=MAKE_SHAPE_KNOWN)
    return None


def unsqueezed(machine: Machine, base: Block, dim: int, span: Span) -> Value:
    """With a new axis of length 1."""
    place = dim % (len(base.shape) + 1)
    return indexed(machine, base, [*[slice(None)] * place, NOTHING], span)


def squeezed(base: Block, dims: Sequence[int], span: Span) -> Value:
    """Without those of the axes that have length 1."""
    gone = {dim % len(base.shape) for dim in dims if base.shape and base.shape[dim] == 1}
    shape = tuple(length for axis, length in enumerate(base.shape) if axis not in gone)

    zero = Number(value=0, span=span)

    def at(places: Places) -> Term | None:
        given = iter(places)
        return base.at(tuple(zero if axis in gone else next(given) for axis in range(len(base.shape))))

    return settled(Block(shape, at))


# -------------------------------------------------------------------- reductions


def reduced(
    machine: Machine, function: str, base: Block, dims: Sequence[int], span: Span, *, keeps: bool = False
) -> Value:
    """`any`, `all`, `sum`, `max` or `min` over some axes, which have known lengths; with `keeps` they have length 1."""
    over = sorted({dim % len(base.shape) for dim in dims} if base.shape else ())
    lengths = [base.shape[axis] for axis in over]
    if not _countable(machine, lengths, span):
        return BAD
    kept = [1 if axis in over else length for axis, length in enumerate(base.shape) if keeps or axis not in over]
    zero = Number(value=0, span=span)

    def folded(frame: Places, left: Sequence[int]) -> Term | None:
        if not left:
            return base.at(frame)
        axis, *rest = left
        length = base.shape[axis] or 0
        return fold(machine, function, length, span, lambda place: folded(_with(frame, axis, place), rest))

    def at(places: Places) -> Term | None:
        given = iter([place for axis, place in enumerate(places) if not (keeps and axis in over)])
        return folded(tuple(zero if axis in over else next(given) for axis in range(len(base.shape))), over)

    result = settled(Block(tuple(kept), at))
    return result if not isinstance(result, Term) or _is_sure(machine, result, lengths, span) else BAD


def _is_sure(machine: Machine, result: Term, lengths: Sequence[int | None], span: Span) -> bool:
    """A tensor of unknown shape that meets an axis of length 1 may be the one that has the axis: A707."""
    read = [item.captured for item in walk(result) if isinstance(item, Element)] if 1 in lengths else []
    unsure = next((captured for captured in read if machine.shape_of(captured) is None), None)
    if unsure is not None:
        machine.error("A707", f"how many axes `{unsure.name}` has isn't known", span, help=MAKE_SHAPE_KNOWN)
    return unsure is None


def fold(machine: Machine, function: str, length: int, span: Span, inner: Callable[[Term], Term | None]) -> Term | None:
    """`function(inner(i) for i in range(length))`; `max` and `min` are written out."""
    if function in ("max", "min"):
        items = [inner(Number(value=place, span=span)) for place in range(length)]
        found: Value = items[0] or BAD
        for item in items[1:]:
            found = machine.apply(function, [found, item or BAD], span)
        return machine.number(found, span)
    variable = Variable(name="i", span=span)
    with machine.nameless():
        body = inner(variable)
    count = Number(value=length, span=span)
    return body and Reduce(function=function, body=body, variable=variable, count=count, span=span)


def _with(frame: Places, axis: int, place: Term) -> Places:
    return (*frame[:axis], place, *frame[axis + 1 :])


def _countable(machine: Machine, lengths: Sequence[int | None], span: Span) -> bool:
    """Whether axes have lengths that a loop of the language can have."""
    if None in lengths:
        machine.error("A707", "how long this axis is isn't known", span, help=MAKE_SHAPE_KNOWN)
    elif any(not 1 <= (length or 0) <= MAX_ITERATIONS for length in lengths):
        message = f"this goes over {max(map(int, lengths))} elements, and a mod over 1 to {MAX_ITERATIONS}"  # type: ignore[arg-type]
        machine.error("A707", message, span, help=_FEWER)
    else:
        return True
    return False

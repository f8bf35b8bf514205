"""int64 arrays where a kernel reads int32: torch's default for `cu_seqlens` and indices. Each call copies them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...ir import Input
from ...problem import ArrayFacts, Call
from ...problem.call_arguments import ARGUMENTS, READ, Arguments, Given
from ...problem.strides import contiguous
from ..frameworks.framework import Array, DeviceFramework
from .operands import INPUTS, OPERANDS

_INPUTS = Arguments._fields.index("inputs")
# Arguments that may be narrowed, by operand: their names, and their places among the arguments of a call.
_ARRAYS = {OPERANDS[name]: name for name in READ if ARGUMENTS[name].dtypes == ("int32", "int64")}
_PLACES = {operand: Arguments._fields.index(name) for operand, name in _ARRAYS.items()}


class Narrowed(NamedTuple):
    """An int64 array that the kernel reads as int32."""

    operand: int
    input: str | None  # its name; None: an argument of every variant

    def source(self, given: Given) -> Array:
        """The array itself, among the arguments of a call."""
        if self.input is None:
            return given[_PLACES[self.operand]]
        inputs: Any = given[_INPUTS]
        return inputs[self.input]


def copies(framework: DeviceFramework, given: Given, narrowed: Sequence[Narrowed], values: list[Any]) -> list[Array]:
    """int32 copies of a call's wide arrays, made on the current stream; their pointers go to `values`.

    What int32 can't hold wraps around. An array that stands for several operands is copied once.
    """
    made: dict[int, Array] = {}
    for item in narrowed:
        source = item.source(given)
        if id(source) not in made:
            made[id(source)] = framework.narrowed(source)
        values[item.operand] = framework.pointer(made[id(source)])
    return list(made.values())


def narrow(call: Call, inputs: Sequence[Input]) -> tuple[Call, tuple[Narrowed, ...]]:
    """The call as its kernel sees it, and the arrays to copy for that."""
    declared = {item.name: (INPUTS + number, item.dtype) for number, item in enumerate(inputs)}
    found = tuple(_wide(call, declared))
    if not found:
        return call, ()
    names = {item.input for item in found}
    seen = tuple((name, _as_int32(facts) if name in names else facts) for name, facts in call.inputs)
    own = (_ARRAYS[item.operand] for item in found if item.input is None)
    return call._replace(inputs=seen, **{name: _as_int32(getattr(call, name)) for name in own}), found


def _wide(call: Call, declared: dict[str, tuple[int, str]]) -> Iterator[Narrowed]:
    for operand, name in _ARRAYS.items():
        facts = getattr(call, name)
        if isinstance(facts, ArrayFacts) and facts.dtype == "int64":
            yield Narrowed(operand, None)
    for name, given in call.inputs:
        operand, dtype = declared[name]
        if dtype == "i32" and isinstance(given, ArrayFacts) and given.dtype == "int64":
            yield Narrowed(operand, name)


def _as_int32(facts: Any) -> Any:
    return facts._replace(strides=contiguous(facts.shape), dtype="int32")

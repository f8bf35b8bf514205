"""Code that reads calls, written for the arguments that there are and run by Python. Loops over operands, which do for
any form of call, take twice as long, and reading is most of what a call does before its launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ...problem.call_arguments import OPTIONS, Arguments

# Reads the arguments of a call (`Given`), and of a backward call its results: its pointers and numbers by operand. None
# if it is of another form.
Read = Callable[..., list[Any] | None]

ARRAY = "array"  # how an operand is given: as an array of q's framework, or by the name of its type
_ABSENT = "NoneType"
_TILED = ("q", "k", "v", "out")
_ARGUMENTS = ", ".join(Arguments._fields)
_RESULTS = ("lse", "counter", "prefix_q")  # operands that no argument brings

_SOURCE = """
def made(guard, count, options, pointer):
    {same_options} = options
    alike, modes = guard
    {modes}
    def read(given{results}):
        {arguments} = given
        {inputs}
        if len(inputs) != count{other_options}{other_types}{other_modes}:
            return None
        if not alike({arrays}):
            return None
        {pointers}
        return None if ({tiled}) & {misaligned} else [{values}]
    return read
"""

_TAKE = """
def take(given):
    {arguments} = given
    return [{values}], ({options},), len(inputs)
"""


class Operand(NamedTuple):
    """One operand of a form of call."""

    name: str
    given: str  # how
    is_input: bool = False
    is_result: bool = False  # of the forward call, or a gradient of one: it comes beside the call

    @property
    def variable(self) -> str:
        return f"input_{self.name}" if self.is_input else f"result_{self.name}" if self.is_result else self.name

    @property
    def is_aligned(self) -> bool:
        """Whether its address has to be a multiple of 16."""
        return self.is_result or (self.name in _TILED and not self.is_input)


@cache
def taker(names: tuple[str, ...], inputs: tuple[str, ...]) -> Callable[[Any], tuple[list[Any], tuple[Any, ...], int]]:
    """Takes a call apart, whatever its form: its operands in order, what is absent None; its options; how many inputs
    were given."""
    values = ["None" if name in _RESULTS else name for name in names] + [f"inputs.get({name!r})" for name in inputs]
    source = _TAKE.format(arguments=_ARGUMENTS, values=", ".join(values), options=", ".join(OPTIONS))
    take: Callable[[Any], tuple[list[Any], tuple[Any, ...], int]] = _run(source)["take"]
    return take


@cache
def maker(operands: tuple[Operand, ...], misaligned: int, modes: int = 0) -> Callable[..., Read]:
    """Makes such functions, for forms whose operands are given like this. Pointers of q, k, v, out and results have
    none of the bits `misaligned`.

    It takes what else tells a form: a guard of its arrays, with so many `modes`, the number of inputs and the options;
    and what gives an array's pointer.
    """
    arrays = [item for item in operands if item.given == ARRAY]
    others = [item for item in operands if item.given != ARRAY and item.variable not in _RESULTS]
    results = [item for item in operands if item.is_result]
    source = _SOURCE.format(
        arguments=_ARGUMENTS,
        results="".join(f", {item.variable}" for item in results),
        same_options=", ".join(f"same_{name}" for name in OPTIONS),
        other_options="".join(f" or {name} is not same_{name}" for name in OPTIONS),
        modes="; ".join(f"ask_{at}, was_{at} = modes[{at}]" for at in range(modes)) or "pass",
        other_modes="".join(f" or ask_{at}() != was_{at}" for at in range(modes)),
        inputs="; ".join(f"{item.variable} = inputs.get({item.name!r})" for item in operands if item.is_input),
        other_types="".join(map(_other_type, others)),
        arrays=", ".join(item.variable for item in arrays),
        pointers="; ".join(f"{item.variable} = pointer({item.variable})" for item in arrays),
        tiled=" | ".join(item.variable for item in arrays if item.is_aligned),
        misaligned=misaligned,
        values=", ".join("None" if item.given == _ABSENT else item.variable for item in operands),
    )
    made: Callable[..., Read] = _run(source)["made"]
    return made


def _run(source: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)
    return scope


def _other_type(item: Operand) -> str:
    kind = f"{item.variable} is not None" if item.given == _ABSENT else f"type({item.variable}) is not {item.given}"
    return f" or {kind}"

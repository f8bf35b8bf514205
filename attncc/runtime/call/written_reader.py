"""Code that reads calls of one form, written for that form and run by Python: what loops over operands do for any form
takes twice as long, and is most of what a call does before its launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

# Reads the arguments of a call (`operands.Given`): its pointers and numbers by operand. None if it is of another form.
Read = Callable[[Any], list[Any] | None]

ARRAY = "array"  # how an operand is given: as an array of q's framework, or by the name of its type
_ABSENT = "NoneType"
_TILED = ("q", "k", "v", "out")
_RESULTS = ("lse", "counter")  # operands that no argument brings

_SOURCE = """
def made(alike, count, same_layout, same_return_lse, pointer):
    def read(given):
        q, k, v, inputs, scale, layout, cu_seqlens_q, cu_seqlens_kv, seed, out, return_lse = given
        {inputs}
        if len(inputs) != count or layout is not same_layout or return_lse is not same_return_lse{other_types}:
            return None
        if not alike({arrays}):
            return None
        {pointers}
        return None if ({tiled}) & {misaligned} else [{values}]
    return read
"""


class Operand(NamedTuple):
    """One operand of a form of call."""

    name: str
    given: str  # how
    is_input: bool = False

    @property
    def variable(self) -> str:
        return f"input_{self.name}" if self.is_input else self.name


@cache
def maker(operands: tuple[Operand, ...], misaligned: int) -> Callable[..., Read]:
    """Makes such functions, for forms whose operands are given like this. Pointers of q, k, v and out have none of the
    bits `misaligned`.

    It takes what else tells a form: a guard of its arrays, the number of inputs, `layout` and `return_lse`; and what
    gives an array's pointer.
    """
    arrays = [item for item in operands if item.given == ARRAY]
    others = [item for item in operands if item.given != ARRAY and item.variable not in _RESULTS]
    source = _SOURCE.format(
        inputs="; ".join(f"{item.variable} = inputs.get({item.name!r})" for item in operands if item.is_input),
        other_types="".join(map(_other_type, others)),
        arrays=", ".join(item.variable for item in arrays),
        pointers="; ".join(f"{item.variable} = pointer({item.variable})" for item in arrays),
        tiled=" | ".join(item.variable for item in arrays if item.variable in _TILED),
        misaligned=misaligned,
        values=", ".join("None" if item.given == _ABSENT else item.variable for item in operands),
    )
    scope: dict[str, Any] = {}
    exec(source, scope)
    made: Callable[..., Read] = scope["made"]
    return made


def _other_type(item: Operand) -> str:
    kind = f"{item.variable} is not None" if item.given == _ABSENT else f"type({item.variable}) is not {item.given}"
    return f" or {kind}"

"""The launches of one call: `Params` is packed from what never changes, the call's operands, and the workspace."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..schedule.parameters import Parameter, struct_format
from .driver import Driver, Function

if TYPE_CHECKING:
    from .tensor_maps import OperandMap

MAX_FLOAT = 3.4028234663852886e38  # of f32

Value = int | float  # of a field: a pointer, a stride, a size, a number


class Step(Protocol):
    """One thing that a call queues on its stream."""

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        """`operands` are the pointers and numbers of the call, `workspace` the address of its temporary memory."""


@dataclass(frozen=True, slots=True)
class Zero:
    """Sets 4 bytes of the workspace to 0."""

    context: int
    offset: int

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        driver.zero(self.context, workspace + self.offset, stream)


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One kernel launch. Operands are the pointers and numbers of a call, in the order that its `Prepared` knows."""

    function: Function
    grid: int
    packer: struct.Struct
    fields: tuple[Value, ...]  # what is the same in every call with these shapes
    operands: tuple[tuple[int, int], ...]  # (field, operand)
    workspace: tuple[tuple[int, int], ...]  # (field, offset in bytes)
    maps: tuple[OperandMap, ...]  # the kernel's arguments before `Params`

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        fields = list(self.fields)
        for field, operand in self.operands:
            fields[field] = operands[operand]
        for field, offset in self.workspace:
            fields[field] = workspace + offset
        maps = [item.at(driver, self.function.context, operands[item.operand]) for item in self.maps]
        driver.launch(self.function, self.grid, stream, self._pack(fields), maps)

    def _pack(self, fields: list[Value]) -> bytes:
        try:
            return self.packer.pack(*fields)
        except (OverflowError, struct.error):  # a number that f32 can't hold becomes an infinity, as in a C cast
            return self.packer.pack(*map(_saturated, fields))


def _saturated(value: Value) -> Value:
    if abs(value) > MAX_FLOAT:
        return math.inf if value > 0 else -math.inf
    return value


class ParamsLayout:
    """`struct Params` of one kernel: what packs it, and the number of each field."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        items = tuple(parameters)
        self.packer = struct.Struct(struct_format(items))
        self.index = {item.name: number for number, item in enumerate(items)}


class StepBuilder:
    """Collects the fields of a step by name; those never set stay 0, which is null for a pointer."""

    def __init__(self, layout: ParamsLayout) -> None:
        self._packer, self._index = layout.packer, layout.index
        self._fields: list[Value] = [0] * len(layout.index)
        self._operands: list[tuple[int, int]] = []
        self._workspace: list[tuple[int, int]] = []
        self._maps: tuple[OperandMap, ...] = ()

    def set(self, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            self._fields[self._index[name]] = value

    def operand(self, name: str, number: int) -> None:
        """The field takes the operand with this number at each call."""
        self._operands.append((self._index[name], number))

    def workspace(self, name: str, offset: int) -> None:
        """The field points into the workspace."""
        self._workspace.append((self._index[name], offset))

    def maps(self, maps: tuple[OperandMap, ...]) -> None:
        """The kernel takes maps of operands before `Params`."""
        self._maps = maps

    def build(self, function: Function, grid: int) -> KernelStep:
        numbers = tuple(self._fields), tuple(self._operands), tuple(self._workspace)
        return KernelStep(function, grid, self._packer, *numbers, self._maps)

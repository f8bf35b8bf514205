"""The launches of one call: `Params` is packed from what never changes, the call's operands, and the workspace."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from ..problem.values import saturated
from ..schedule.parameters import Layout, Parameter, struct_format
from .driver import Driver, Function
from .repeated import Attribute, Form, RepeatedLaunch

if TYPE_CHECKING:
    from .tensor_maps import OperandMap

Value = int | float  # of a field: a pointer, a stride, a size, a number


class Step(Protocol):
    """One thing that a call queues on its stream."""

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        """`operands` are the pointers and numbers of the call, `workspace` the address of its temporary memory."""


class Write(NamedTuple):
    """A field of `Params` that calls change."""

    form: Form
    place: int  # in `Params` as an array of this form
    source: int  # an operand by number, or an offset in the workspace


@dataclass(frozen=True, slots=True)
class Zero:
    """Sets words of 4 bytes to 0: of the workspace from `offset` on, or of an operand."""

    context: int
    offset: int
    words: int = 1
    operand: int | None = None

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        base = workspace if self.operand is None else operands[self.operand]
        driver.zero(self.context, base + self.offset, stream, self.words)


class _Ready(NamedTuple):
    """A launch that can be started, and where its fields are written: (array, place, source)."""

    launch: RepeatedLaunch
    writes: list[tuple[memoryview[Any], int, int]]
    workspace_writes: list[tuple[memoryview[Any], int, int]]


def _taker(numbers: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Takes the operands with these numbers; always a tuple, which `itemgetter` of a single one isn't."""
    first, *more = numbers
    return itemgetter(first, *more) if more else lambda operands: (operands[first],)


class KernelStep:
    """One kernel launch. Operands are the pointers and numbers of a call, in the order that its `Prepared` knows.

    A thread that launches takes one of the launches that are idle, or makes one, and puts it back.
    """

    def __init__(  # noqa: PLR0917
        self,
        function: Function,
        grid: int,
        params: bytes,
        writes: Sequence[Write],
        workspace_writes: Sequence[Write],
        maps: tuple[OperandMap, ...],
        attribute: Attribute | None = None,
    ) -> None:
        self._function, self._grid, self._params, self._maps = function, grid, params, maps
        self._attribute = attribute
        self._writes, self._workspace_writes = writes, workspace_writes
        self._bases = _taker([item.operand for item in maps]) if maps else None
        self._idle: list[_Ready] = []

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        try:
            ready = self._idle.pop()
        except IndexError:
            ready = self._ready(driver)
        repeated, writes, workspace_writes = ready
        try:
            for fields, place, operand in writes:
                fields[place] = operands[operand]
        except ValueError:  # an int that no float holds becomes an infinity, as larger floats than f32's do
            for fields, place, operand in writes:
                fields[place] = saturated(operands[operand]) if fields.format == "f" else operands[operand]
        for fields, place, offset in workspace_writes:
            fields[place] = workspace + offset
        if self._bases is not None:
            bases = self._bases(operands)
            if bases != repeated.bases:
                context, pairs = self._function.context, zip(self._maps, bases, strict=True)
                repeated.set_maps(bases, [item.at(driver, context, base) for item, base in pairs])
        repeated.start(stream)
        self._idle.append(ready)

    def _ready(self, driver: Driver) -> _Ready:
        maps, attribute = len(self._maps), self._attribute
        launch = RepeatedLaunch(driver, self._function, self._grid, self._params, maps, attribute)
        writes, workspace_writes = (
            [(launch.view(form), place, source) for form, place, source in writes]
            for writes in (self._writes, self._workspace_writes)
        )
        return _Ready(launch, writes, workspace_writes)


class ParamsLayout:
    """`struct Params` of one kernel: how it and each of its fields are packed, and the number of each field."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        items = tuple(parameters)
        self.packer = struct.Struct(struct_format(items))
        self.index = {item.name: number for number, item in enumerate(items)}
        self._items, self._offsets = items, Layout.of(items).offsets

    def writes(self, sources: Iterable[tuple[int, int]]) -> list[Write]:
        """Of pairs (field, source)."""
        return [self._write(self._items[field], self._offsets[field], source) for field, source in sources]

    @staticmethod
    def _write(item: Parameter, offset: int, source: int) -> Write:
        form = cast(Form, "Q" if item.format == "P" else item.format)
        return Write(form, offset // item.size, source)


class StepBuilder:
    """Collects the fields of a step by name; those never set stay 0, which is null for a pointer."""

    def __init__(self, layout: ParamsLayout) -> None:
        self._layout, self._index = layout, layout.index
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

    def build(self, function: Function, grid: int, attribute: Attribute | None = None) -> KernelStep:
        params = self._layout.packer.pack(*self._fields)
        writes, workspace = self._layout.writes(self._operands), self._layout.writes(self._workspace)
        return KernelStep(function, grid, params, writes, workspace, self._maps, attribute)

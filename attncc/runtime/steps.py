"""The launches of one call: `Params` is packed from what never changes, the call's operands, and the workspace."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..schedule.parameters import Layout, Parameter, struct_format
from .driver import Driver, Function
from .repeated import RepeatedLaunch

if TYPE_CHECKING:
    from .tensor_maps import OperandMap

MAX_FLOAT = 3.4028234663852886e38  # of f32

Value = int | float  # of a field: a pointer, a stride, a size, a number


class Step(Protocol):
    """One thing that a call queues on its stream."""

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        """`operands` are the pointers and numbers of the call, `workspace` the address of its temporary memory."""


class Write(NamedTuple):
    """Consecutive fields of `Params` that calls change: what packs them, where, and which values they take."""

    pack_into: Callable[..., None]
    offset: int  # of the first, in bytes
    sources: tuple[int, ...]  # operands by number, or offsets in the workspace


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


class KernelStep:
    """One kernel launch. Operands are the pointers and numbers of a call, in the order that its `Prepared` knows.

    A thread that launches takes one of the `RepeatedLaunch`es that are idle, or makes one, and puts it back.
    """

    def __init__(  # noqa: PLR0917
        self,
        function: Function,
        grid: int,
        params: bytes,
        writes: Iterable[Write],
        workspace_writes: Iterable[Write],
        maps: tuple[OperandMap, ...],
    ) -> None:
        self._function, self._grid, self._params, self._maps = function, grid, params, maps
        self._writes = tuple((write.pack_into, write.offset, _taking(write.sources)) for write in writes)
        self._workspace_writes = tuple((write.pack_into, write.offset, write.sources) for write in workspace_writes)
        self._bases = _taking(tuple(item.operand for item in maps)) if maps else None
        self._idle: list[RepeatedLaunch] = []

    def launch(self, driver: Driver, stream: int, operands: list[Any], workspace: int) -> None:
        try:
            repeated = self._idle.pop()
        except IndexError:
            repeated = RepeatedLaunch(driver, self._function, self._grid, self._params, len(self._maps))
        params = repeated.params
        for pack_into, offset, values in self._writes:
            try:
                pack_into(params, offset, *values(operands))
            except (OverflowError, struct.error):  # a number that f32 can't hold becomes an infinity, as in a C cast
                pack_into(params, offset, *map(_saturated, values(operands)))
        for pack_into, offset, places in self._workspace_writes:
            pack_into(params, offset, *[workspace + place for place in places])
        if self._bases is not None:
            bases = self._bases(operands)
            if bases != repeated.bases:
                context, pairs = self._function.context, zip(self._maps, bases, strict=True)
                repeated.set_maps(bases, [item.at(driver, context, base) for item, base in pairs])
        repeated.start(stream)
        self._idle.append(repeated)


def _taking(numbers: tuple[int, ...]) -> Callable[[list[Any]], Sequence[Any]]:
    """What takes the operands with these numbers."""
    return itemgetter(*numbers) if len(numbers) > 1 else itemgetter(slice(numbers[0], numbers[0] + 1))


def _saturated(value: Value) -> Value:
    if abs(value) > MAX_FLOAT:
        return math.inf if value > 0 else -math.inf
    return value


class ParamsLayout:
    """`struct Params` of one kernel: how it and each of its fields are packed, and the number of each field."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        items = tuple(parameters)
        self.packer = struct.Struct(struct_format(items))
        self.index = {item.name: number for number, item in enumerate(items)}
        self._items, self._offsets = items, Layout.of(items).offsets

    def writes(self, sources: Iterable[tuple[int, int]]) -> Iterator[Write]:
        """Pairs (field, source) as few writes: one for each run of fields that follow each other."""
        for _, run in groupby(enumerate(sorted(sources)), key=lambda item: item[1][0] - item[0]):
            fields, values = zip(*(pair for _, pair in run), strict=True)
            form = "=" + "".join(self._items[field].format for field in fields).replace("P", "Q")
            yield Write(struct.Struct(form).pack_into, self._offsets[fields[0]], values)


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

    def build(self, function: Function, grid: int) -> KernelStep:
        params = self._layout.packer.pack(*self._fields)
        writes, workspace = self._layout.writes(self._operands), self._layout.writes(self._workspace)
        return KernelStep(function, grid, params, writes, workspace, self._maps)

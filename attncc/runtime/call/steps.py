"""The launches of one call: `Params` is packed from what never changes, the call's operands, and the workspace."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, cast

from ...kernels.parameters import Layout, Parameter, struct_format
from ...problem.values import saturated
from ..cuda.driver import Driver, Function
from .repeated import Attribute, Form, RepeatedLaunch
from .tensor_maps import OperandMap

Value = int | float  # of a field: a pointer, a stride, a size, a number


class Write(NamedTuple):
    """A field of `Params` that calls change."""

    form: Form
    place: int  # in `Params` as an array of this form
    source: int  # an operand by number, or an offset in the workspace


Field = tuple["memoryview[Any]", int, int]  # an array of numbers in memory, and a `Write` of one: place, source


class Ready(Protocol):
    """A step whose arguments lie ready in memory, for one thread at a time."""

    @property
    def writes(self) -> Sequence[Field]: ...

    @property
    def workspace_writes(self) -> Sequence[Field]: ...

    @property
    def maps(self) -> Sequence[OperandMap]: ...

    def set_maps(self, operands: list[Any]) -> None: ...

    def follow(self, stream: int) -> None:
        """Is queued on this stream from now on."""

    @property
    def queue(self) -> Callable[[], int]:
        """Queues it, once its fields are written. CUDA's result."""

    def again(self, result: int) -> None:
        """After another result than 0. AttnccError A510 if nothing helps."""


class Step(Protocol):
    """One thing that a call queues on its stream."""

    def ready(self, driver: Driver) -> Ready: ...


@dataclass(frozen=True, slots=True)
class Zero:
    """Sets words of 4 bytes to 0: of the workspace from `place` on, or of the operand with that number."""

    context: int
    place: int
    words: int = 1
    of_operand: bool = False

    def ready(self, driver: Driver) -> Ready:
        return _ReadyZero(self, driver)


class _ReadyZero:
    maps = ()

    def __init__(self, step: Zero, driver: Driver) -> None:
        self._step, self._driver, self._stream = step, driver, 0
        self._address = memoryview(bytearray(8)).cast("Q")
        fields: list[Field] = [(self._address, 0, step.place)]
        self.writes, self.workspace_writes = (fields, []) if step.of_operand else ([], fields)

    def set_maps(self, operands: list[Any]) -> None: ...

    def follow(self, stream: int) -> None:
        self._stream = stream

    def queue(self) -> int:
        self._driver.zero(self._step.context, self._address[0], self._stream, self._step.words)
        return 0

    def again(self, result: int) -> None: ...


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One kernel launch. Operands are the pointers and numbers of a call, in the order that its `Prepared` knows."""

    function: Function
    grid: int
    params: bytes
    writes: Sequence[Write]
    workspace_writes: Sequence[Write]
    maps: tuple[OperandMap, ...]
    attributes: tuple[Attribute, ...] = ()

    def ready(self, driver: Driver) -> Ready:
        return _ReadyKernel(self, driver)


def _taker(numbers: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Takes the operands with these numbers; always a tuple, which `itemgetter` gives of two and more."""
    return itemgetter(*numbers) if len(numbers) > 1 else lambda operands: tuple(operands[at] for at in numbers)


class _ReadyKernel:
    def __init__(self, step: KernelStep, driver: Driver) -> None:
        launch = RepeatedLaunch(driver, step.function, step.grid, step.params, len(step.maps), step.attributes)
        self.writes, self.workspace_writes = (
            [(launch.view(form), place, source) for form, place, source in writes]
            for writes in (step.writes, step.workspace_writes)
        )
        self.maps = step.maps
        self._take_bases = _taker([item.operand for item in step.maps])
        self._launch, self._driver, self._context = launch, driver, step.function.context
        self.queue, self.follow, self.again = launch.queue, launch.follow, launch.again

    def set_maps(self, operands: list[Any]) -> None:
        bases = self._take_bases(operands)
        if not self._launch.has_maps(bases):
            pairs = zip(self.maps, bases, strict=True)
            self._launch.set_maps(bases, [item.at(self._driver, self._context, base) for item, base in pairs])


class _AllReady:
    """All steps of a call, ready, and what they were written for last."""

    def __init__(self, steps: Sequence[Step], driver: Driver) -> None:
        self.steps = [step.ready(driver) for step in steps]
        self.writes = [field for step in self.steps for field in step.writes]
        self.workspace_writes = [field for step in self.steps for field in step.workspace_writes]
        self.mapped = [step for step in self.steps if step.maps]
        self.stream = self.workspace = 0

    def follow(self, stream: int) -> None:
        self.stream = stream
        for step in self.steps:
            step.follow(stream)


class Launches:
    """What calls of one form queue, step by step.

    Threads may share them: each takes steps that are idle, or makes some, and puts them back.
    """

    def __init__(self, steps: Sequence[Step], driver: Driver) -> None:
        self.steps, self._driver = steps, driver
        self._idle: list[_AllReady] = []

    def start(self, stream: int, operands: list[Any], workspace: int) -> None:
        """`operands` are the pointers and numbers of the call, `workspace` the address of its temporary memory."""
        try:
            ready = self._idle.pop()
        except IndexError:
            ready = _AllReady(self.steps, self._driver)
        try:
            for fields, place, operand in ready.writes:
                fields[place] = operands[operand]
        except ValueError:  # an int that no float holds becomes an infinity, as larger floats than f32's do
            for fields, place, operand in ready.writes:
                fields[place] = saturated(operands[operand]) if fields.format == "f" else operands[operand]
        if workspace != ready.workspace:  # seldom: small ones are kept
            for fields, place, offset in ready.workspace_writes:
                fields[place] = workspace + offset
            ready.workspace = workspace
        if stream != ready.stream:
            ready.follow(stream)
        for step in ready.mapped:
            step.set_maps(operands)
        for step in ready.steps:
            result = step.queue()
            if result:
                step.again(result)
        self._idle.append(ready)


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

    def build(self, function: Function, grid: int, *attributes: Attribute) -> KernelStep:
        params = self._layout.packer.pack(*self._fields)
        writes, workspace = self._layout.writes(self._operands), self._layout.writes(self._workspace)
        return KernelStep(function, grid, params, writes, workspace, self._maps, attributes)

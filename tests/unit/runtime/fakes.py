"""A GPU that only takes notes: a CUDA driver that records launches, arrays with made-up pointers, a store of plans."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from attncc.ir import Variant
from attncc.kernels.helpers import append
from attncc.kernels.kernel_names import configuration_of
from attncc.kernels.launched import kernel_names, structs
from attncc.kernels.parameters import Parameter, struct_format
from attncc.problem import ArrayFacts
from attncc.problem.strides import dense
from attncc.runtime.call.repeated import Attribute
from attncc.runtime.frameworks.framework import Guard, Observer
from attncc.runtime.store.store import Configuration, MachineCode
from attncc.schedule.plan import BACKWARD_PASSES, FORWARD_PASSES, KernelPlan

ITEM_BYTES = {
    "int8": 1,
    "float8_e4m3fn": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int32": 4,
    "int64": 8,
    "bool": 1,
}
CONTEXT = 0xC0  # the primary context of device 0; the next device's is one more


# -------------------------------------------------------------------- driver


@dataclass
class Launch:
    """One launch that the fake driver saw; `params` by field name."""

    kernel: str
    grid: int
    threads: int
    shared_bytes: int
    stream: int
    params: dict[str, Any]
    context: int
    maps: tuple[int, ...] = ()  # the addresses of the arguments before `Params`
    early: bool = False  # it may begin before the launch ahead is done
    paired: bool = False  # its blocks are clusters of two


class _Function:
    """A C function: like ctypes', it has attributes."""

    argtypes: Any = None
    restype: Any = None

    def __init__(self, name: str, body: Any) -> None:
        self.__name__, self._body = name, body

    def __call__(self, *args: Any) -> int:
        return int(self._body(*args) or 0)


class FakeCuda:
    """libcuda as `Driver` uses it. `structs` names the fields of `Params` of each kernel that may be loaded."""

    def __init__(
        self, structs: dict[str, Sequence[Parameter]], capability: int = 90, cuda_version: int = 13000, devices: int = 2
    ) -> None:
        self.structs, self.capability, self.version, self.devices = structs, capability, cuda_version, devices
        self.launches: list[Launch] = []
        self.zeroed: list[tuple[int, int, int]] = []  # address, stream, number of launches before
        self.zeroed_words: list[int] = []
        self.zeroed_in: list[int] = []  # the contexts of that
        self.memory = 0xA0000
        self.allocated: list[int] = []  # sizes
        self.captured: set[int] = set()  # streams whose work is recorded
        self.stream_ids: dict[int, int] = {}
        self.maps: dict[int, dict[str, Any]] = {}  # what each tensor map was made of, by its address
        self.loaded: list[str] = []
        self.homes: list[int] = []  # the contexts of what was loaded
        self.retained: list[int] = []  # devices whose primary context was asked for
        self.contexts: list[int] = [CONTEXT]  # the current one last
        self.results: dict[str, int] = {}  # errors to return
        for name in dir(type(self)):
            if name.startswith("cu"):
                setattr(self, name, _Function(name, self._returning(name, getattr(self, name))))

    def _returning(self, name: str, body: Any) -> Any:
        return lambda *args: self.results.get(name) or body(*args)

    def cuInit(self, flags: int) -> None: ...  # noqa: N802

    def cuDriverGetVersion(self, version: Any) -> None:  # noqa: N802
        version._obj.value = self.version

    def cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802
        count._obj.value = self.devices

    def cuDeviceGet(self, device: Any, ordinal: int) -> None:  # noqa: N802
        device._obj.value = ordinal

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> None:  # noqa: N802
        name.value = b"Fake GPU"

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:  # noqa: N802
        self.retained.append(device.value)
        context._obj.value = CONTEXT + device.value

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> None:  # noqa: N802
        value._obj.value = {16: 132, 38: 50 << 20, 75: self.capability // 10, 76: self.capability % 10}[attribute]

    def cuModuleLoadData(self, module: Any, image: bytes) -> None:  # noqa: N802
        module._obj.value = 1

    def cuModuleGetFunction(self, function: Any, module: Any, entry: bytes) -> None:  # noqa: N802
        self.loaded.append(entry.decode())
        self.homes.append(self.contexts[-1])
        function._obj.value = len(self.loaded)

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> None:  # noqa: N802
        assert attribute == 8

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, count: Any, *_: Any) -> None:  # noqa: N802
        count._obj.value = 2

    def cuCtxGetCurrent(self, context: Any) -> None:  # noqa: N802
        context._obj.value = self.contexts[-1] if self.contexts else None

    def cuCtxPushCurrent_v2(self, context: Any) -> None:  # noqa: N802
        self.contexts.append(context.value)

    def cuCtxPopCurrent_v2(self, context: Any) -> None:  # noqa: N802
        self.contexts.pop()

    def cuCtxSynchronize(self) -> None: ...  # noqa: N802

    def cuGetErrorString(self, result: int, text: Any) -> None:  # noqa: N802
        text._obj.value = b"a made-up error"

    def cuLaunchKernelEx(self, config: Any, function: Any, arguments: Any, extra: Any) -> int:  # noqa: N802
        form = config._obj
        assert (form.grid_y, form.grid_z, form.threads_y, form.threads_z, extra) == (1, 1, 1, 1, None)
        assert (form.attributes is None) == (form.attribute_count == 0)
        kernel = self.loaded[function.value - 1]
        if not self.contexts or self.contexts[-1] != self.homes[function.value - 1]:
            return 400 if self.contexts else 201
        layout = struct.Struct(struct_format(self.structs[kernel]))
        *maps, address = arguments
        values = layout.unpack(ctypes.string_at(address, layout.size))
        params = dict(zip((item.name for item in self.structs[kernel]), values, strict=True))
        shape = form.grid, form.threads, form.shared_bytes, form.stream
        attributes = (Attribute * form.attribute_count).from_address(form.attributes) if form.attribute_count else ()
        found = {(item.id, item.value, *item.rest[:2]) for item in attributes}
        how = (6, 1, 0, 0) in found, (4, 2, 1, 1) in found
        assert len(found) == sum(how)
        self.launches.append(Launch(kernel, *shape, params, self.contexts[-1], tuple(maps), *how))
        return 0

    def cuTensorMapEncodeTiled(self, target: Any, dtype: int, rank: int, base: Any, *rest: Any) -> None:  # noqa: N802
        sizes, strides, box, steps, *modes = rest
        assert target.value % 64 == 0 and tuple(steps) == (1,) * rank and modes == [0, 3, 2, 0]
        made = {"dtype": dtype, "base": base.value, "sizes": tuple(sizes), "strides": tuple(strides), "box": tuple(box)}
        self.maps[target.value] = made

    def cuMemAlloc_v2(self, address: Any, size: Any) -> None:  # noqa: N802
        address._obj.value = self.memory + sum(self.allocated)
        self.allocated.append(size.value)

    def cuStreamIsCapturing(self, stream: Any, status: Any) -> None:  # noqa: N802
        status._obj.value = int(stream.value in self.captured)

    def cuStreamGetId(self, stream: Any, number: Any) -> None:  # noqa: N802
        assert stream.value not in self.captured
        number._obj.value = self.stream_ids.setdefault(stream.value, 1000 + len(self.stream_ids))

    def cuMemsetD32Async(self, address: Any, value: int, count: Any, stream: Any) -> None:  # noqa: N802
        assert value == 0
        self.zeroed.append((address, stream, len(self.launches)))
        self.zeroed_words.append(count)
        self.zeroed_in.append(self.contexts[-1])


# -------------------------------------------------------------------- arrays


@dataclass
class FakeArray:
    """An array on a GPU that isn't there."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()
    pointer: int = 0
    ordinal: int = 0
    contents: list[str] = field(default_factory=list)  # what was done to it

    def __post_init__(self) -> None:
        self.strides = self.strides or tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        self.pointer = self.pointer or _next_pointer(math.prod(self.shape) * ITEM_BYTES[self.dtype])

    def __getitem__(self, place: tuple[Any, slice]) -> FakeArray:
        """`array[..., :columns]`"""
        every, columns = place
        assert every is ... and (columns.start, columns.step) == (None, None)
        return FakeArray((*self.shape[:-1], columns.stop), self.dtype, self.strides, self.pointer, self.ordinal)


_end = [0x7F0000000000]


def _next_pointer(size: int) -> int:
    start = _end[0]
    _end[0] += -(-size // 256) * 256 + 256
    return start


class FakeFramework:
    """See `framework.DeviceFramework`."""

    def __init__(self) -> None:
        self.stream = 0x57
        self.allocated: list[FakeArray] = []
        self.released: list[FakeArray] = []
        self.in_place: list[FakeArray] = []

    def traces(self) -> bool:
        return False

    def records(self, variant: Variant, configurations: Sequence[Any], call: Any) -> bool:
        return False

    def observer(self) -> Observer:
        return FakeObserver(self)

    def facts(self, array: FakeArray) -> ArrayFacts:
        return ArrayFacts(array.shape, array.strides, array.dtype, f"cuda:{array.ordinal}")

    def ordinal(self, array: FakeArray) -> int:
        return array.ordinal

    def pointer(self, array: FakeArray) -> int:
        return array.pointer

    def allocator(
        self, shape: tuple[int, ...], dtype: str, ordinal: int, order: tuple[int, ...] | None = None
    ) -> Callable[[], FakeArray]:
        strides = dense(shape, order or range(len(shape)))

        def empty() -> FakeArray:
            self.allocated.append(FakeArray(shape, dtype, strides, ordinal=ordinal))
            return self.allocated[-1]

        return empty

    def packed(self, array: FakeArray, columns: int) -> FakeArray:
        shape, copied = (*array.shape[:-1], columns), f"copy of {array.pointer}"
        return FakeArray(shape, array.dtype, ordinal=array.ordinal, contents=[copied])

    def by_key_head(self, q: FakeArray, kv_heads: int, layout: str, columns: int) -> FakeArray:
        batch, heads, rows, _ = q.shape if layout == "bhsd" else (q.shape[0], q.shape[2], q.shape[1], 0)
        shape, copied = (kv_heads, batch, rows, heads // kv_heads, columns), f"copy of {q.pointer}"
        return FakeArray(shape, q.dtype, ordinal=q.ordinal, contents=[copied])

    def narrowed(self, array: FakeArray) -> FakeArray:
        return FakeArray(array.shape, "int32", ordinal=array.ordinal, contents=[f"copy of {array.pointer}"])

    def written(self, array: FakeArray) -> None:
        self.in_place.append(array)

    def assign(self, target: FakeArray, source: FakeArray) -> None:
        target.contents.append(f"copy of {source.pointer}")

    def add_up(self, target: FakeArray, source: FakeArray) -> None:
        target.contents.append(f"sum of {source.pointer}")

    def current_stream(self, ordinal: int) -> int:
        return self.stream

    @contextmanager
    def on_stream(self, handle: int, ordinal: int) -> Iterator[None]:
        before, self.stream = self.stream, handle
        yield
        self.stream = before

    def release(self, temporary: Sequence[FakeArray], ordinal: int) -> None:
        self.released += temporary


class FakeObserver:
    """See `framework.Observer`: with guards from the first call on."""

    def __init__(self, framework: FakeFramework) -> None:
        self._facts = framework.facts

    def observe(self, arrays: Sequence[FakeArray]) -> tuple[list[int], tuple[ArrayFacts, ...]]:
        return [array.pointer for array in arrays], tuple(map(self._facts, arrays))

    def guard(self, arrays: Sequence[FakeArray], *, new: bool = False) -> Guard:
        types, forms = list(map(type, arrays)), self.observe(arrays)[1]
        return Guard(lambda *others: list(map(type, others)) == types and self.observe(others)[1] == forms)


# -------------------------------------------------------------------- store


class FakeStore:
    """Plans made by hand, with machine code that can't run."""

    def __init__(self, *plans: KernelPlan, nvrtc: str = "13.0") -> None:
        self.all_plans, self.nvrtc = plans, nvrtc

    @property
    def variant(self) -> Variant:
        return self.all_plans[0].variant

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        found = [Configuration(plan.dtype, plan.head_dim, plan.value_head_dim) for plan in self.all_plans]
        return tuple(dict.fromkeys(found))

    @property
    def ready(self) -> tuple[Configuration, ...]:
        return self.configurations

    def targets(self, configuration: Configuration) -> tuple[str, ...]:
        return tuple(dict.fromkeys(plan.target for plan in self._of(configuration)))

    def plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        return self._plans(configuration, target, FORWARD_PASSES)

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        return self._plans(configuration, target, BACKWARD_PASSES)

    def check_backward(self, configuration: Configuration, target: str) -> None:
        pass

    def _plans(self, configuration: Configuration, target: str | None, passes: Sequence[str]) -> tuple[KernelPlan, ...]:
        of_target = (plan for plan in self._of(configuration) if target in (None, plan.target))
        return tuple(plan for plan in of_target if plan.pass_name in passes)

    def machine_codes(self, plans: Sequence[KernelPlan]) -> dict[str, MachineCode]:
        names = [name for plan in plans for name in kernel_names(plan)]
        return {name: MachineCode(b"\x7fELF", self.nvrtc, name, 128, 4096) for name in names}

    def append_code(self, dtype: str, angles: str, capability: int, kv_dtype: str | None = None) -> MachineCode:
        name = f"{append.prefix(dtype, angles, kv_dtype)}sm_{capability}"
        return MachineCode(b"\x7fELF", self.nvrtc, name, 128, 0)

    def _of(self, configuration: Configuration) -> list[KernelPlan]:
        return [plan for plan in self.all_plans if configuration_of(plan) == configuration.name]

    def structs(self) -> dict[str, Sequence[Parameter]]:
        """The fields of `Params` of every kernel, for the fake driver."""
        return {name: fields for plan in self.all_plans for name, fields in structs(plan).items()}

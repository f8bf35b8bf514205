"""Calls of kernels with NumPy arrays as device memory: the runtime prepares them, and its launches run on the emulated
GPU."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncc.kernels.kernel_names import kernel_name
from attncc.kernels.launched import helper_kernels
from attncc.problem.facts import numpy_dtype
from attncc.runtime.frameworks.framework import by_key_head_axes
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import MAP_BYTES
from tests.emulator.sources import rendered, rendered_helper
from tests.unit.runtime.fakes import FakeArray, FakeCuda, FakeFramework

Array = NDArray[Any]
MULTIPROCESSORS = 3


class DeviceArray(FakeArray):
    """An array on the emulated GPU."""

    def __init__(self, memory: Array, owner: Array | None = None) -> None:
        strides = tuple(stride // memory.itemsize for stride in memory.strides)
        self.memory, self.owner = memory, owner
        super().__init__(memory.shape, str(memory.dtype), strides, memory.ctypes.data)


class EmulatedFramework(FakeFramework):
    """One whose arrays have memory."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[DeviceArray] = []

    def array(self, memory: Array) -> DeviceArray:
        self.kept.append(DeviceArray(memory))
        return self.kept[-1]

    def allocator(
        self, shape: tuple[int, ...], dtype: str, ordinal: int, order: tuple[int, ...] | None = None
    ) -> Callable[[], FakeArray]:
        whole = tuple(shape[axis] for axis in order) if order else shape
        back = tuple(order.index(axis) for axis in range(len(shape))) if order else tuple(range(len(shape)))
        nan = np.nan if np.issubdtype(numpy_dtype(dtype), np.floating) or dtype == "bfloat16" else -1
        return lambda: self.array(np.full(whole, nan, numpy_dtype(dtype)).transpose(back))

    def packed(self, array: FakeArray, columns: int) -> FakeArray:
        assert isinstance(array, DeviceArray)
        wide = np.zeros((*array.shape[:-1], columns), array.memory.dtype)
        wide[..., : array.shape[-1]] = array.memory
        return self.array(wide)

    def by_key_head(self, q: FakeArray, kv_heads: int, layout: str, columns: int) -> FakeArray:
        assert isinstance(q, DeviceArray)
        axis, order = by_key_head_axes(layout)
        split = q.memory.reshape(*q.shape[:axis], kv_heads, -1, *q.shape[axis + 1 :])
        return self.packed(DeviceArray(split.transpose(order)), columns)

    def narrowed(self, array: FakeArray) -> FakeArray:
        assert isinstance(array, DeviceArray)
        return self.array(array.memory.astype(np.int32, order="C"))


class EmulatedCuda(FakeCuda):
    """A driver whose launches run at once. Those that begin early do so while the kernel ahead works on all memory."""

    def __init__(self, plans: Sequence[KernelPlan], structs: Any, framework: EmulatedFramework) -> None:
        super().__init__(structs, capability=int(plans[0].target.removeprefix("sm_").removesuffix("a")))
        self._framework = framework
        self._plans = {kernel_name(plan): plan for plan in plans}
        self._helpers = {helper.name: helper for plan in plans for helper in helper_kernels(plan)}
        self._allocated: list[Array] = []

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> None:  # noqa: N802
        super().cuDeviceGetAttribute(value, attribute, device)
        if attribute == 16:
            value._obj.value = MULTIPROCESSORS

    def cuMemAlloc_v2(self, address: Any, size: Any) -> None:  # noqa: N802
        self._allocated.append(np.zeros(size.value, np.uint8))
        address._obj.value = self._allocated[-1].ctypes.data

    def cuLaunchKernelEx(self, config: Any, function: Any, arguments: Any, extra: Any) -> int:  # noqa: N802
        result = super().cuLaunchKernelEx(config, function, arguments, extra)
        launch = self.launches[-1]
        maps = b"".join(self._map(address) for address in launch.maps)
        if launch.kernel in self._plans:
            source = rendered(self._plans[launch.kernel])
        else:
            source = rendered_helper(self._helpers[launch.kernel])
        memory = (*(item.memory for item in self._framework.kept), *self._allocated)
        with kernel.behind_kernel_ahead(*memory if launch.early else ()):
            kernel.run(source, tuple(self.structs[launch.kernel]), launch.params, launch.grid, maps)
        return result

    def _map(self, address: Any) -> bytes:
        """As `Map` of hopper.cpp, of a map of 1-D tiles."""
        made = self.maps[getattr(address, "value", address)]
        (columns, rows, heads, batch), steps = made["sizes"], [stride // 2 for stride in made["strides"]]
        extents, strides = (columns, rows, 1, heads, batch), (1, steps[0], steps[0], steps[1], steps[2])
        return struct.pack("<Q5q5q2i", made["base"], *extents, *strides, made["box"][1], 1).ljust(MAP_BYTES, b"\0")

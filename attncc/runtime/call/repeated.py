"""Launches whose arguments lie ready in memory, so that each start of them writes and converts little."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from ..cuda.driver import Driver, Function, TensorMap

Form = Literal["Q", "q", "i", "f"]  # of a number, as the module `struct` names it

_Pointer = ctypes.c_void_p
# Sets of maps that are kept of one launch, by where their tensors are: more than a model has layers, each with some
# KiB. At one more all are dropped, and made again when asked for.
_MOST_MAPS = 256


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid", "grid_y", "grid_z", "threads", "threads_y", "threads_z")),
        ("shared_bytes", ctypes.c_uint),
        ("stream", _Pointer),
        ("attributes", _Pointer),
        ("attribute_count", ctypes.c_uint),
    )


class Attribute(ctypes.Structure):
    """CUlaunchAttribute: how the blocks of a launch run beside others."""

    _fields_ = (*((name, ctypes.c_uint) for name in ("id", "padding", "value")), ("rest", ctypes.c_uint * 15))


# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: they don't wait for the kernel ahead on the stream, if that
# lets others begin. Only kernels that wait by themselves are launched so (finished.cuh, kernel_ahead.cuh).
# CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: 2i and 2i + 1 are one (cluster_of_two.cuh).
EARLY = Attribute(6, 0, 1)
PAIRED = Attribute(4, 0, 2, (1, 1))


class _Maps(NamedTuple):
    addresses: bytes
    maps: Sequence[TensorMap]  # kept: launches read their memory


class RepeatedLaunch:
    """A launch of `grid` blocks that can be started again and again, by one thread at a time.

    The kernel's arguments are `maps` tensor maps, then `Params`, whose bytes are at first those given. The driver has
    copied them all when `queue` returns, so that they may then be changed, through a `view`.
    """

    def __init__(  # noqa: PLR0917
        self,
        driver: Driver,
        function: Function,
        grid: int,
        params: bytes,
        maps: int = 0,
        attributes: Sequence[Attribute] = (),
    ) -> None:
        self._params = (ctypes.c_char * len(params)).from_buffer(bytearray(params))
        self._driver, self._function = driver, function
        self._config = _Config(grid, 1, 1, function.threads, 1, 1, function.shared_bytes)
        if attributes:
            self._attributes = (Attribute * len(attributes))(*attributes)  # kept: launches read them
            self._config.attributes = ctypes.addressof(self._attributes)
            self._config.attribute_count = len(attributes)
        self._addresses = (_Pointer * (maps + 1))()
        self._addresses[maps] = ctypes.addressof(self._params)
        self._map_addresses = memoryview(self._addresses).cast("B")[: maps * ctypes.sizeof(_Pointer)]
        self._bases: tuple[int, ...] = ()  # of the tensors that the maps are for
        self._kept: dict[tuple[int, ...], _Maps] = {}  # by these
        arguments = ctypes.byref(self._config), _Pointer(function.handle), self._addresses, None
        self.queue: partial[int] = partial(driver.start, *arguments)  # queues it and returns at once: CUDA's result

    def view(self, form: Form) -> memoryview[Any]:
        """`Params` as an array of numbers."""
        return memoryview(self._params).cast("B").cast(form)

    def has_maps(self, bases: tuple[int, ...]) -> bool:
        """Whether the next launches have the maps of tensors that start here. Layers of a model take turns, and each
        finds its tensors where they were in the step before."""
        if bases != self._bases:
            kept = self._kept.get(bases)
            if kept is None:
                return False
            self._map_addresses[:] = kept.addresses
            self._bases = bases
        return True

    def set_maps(self, bases: tuple[int, ...], maps: Sequence[TensorMap]) -> None:
        """The tensor maps of the next launches, and where their tensors are."""
        for position, item in enumerate(maps):
            self._addresses[position] = item.address
        if len(self._kept) >= _MOST_MAPS:
            self._kept.clear()
        self._kept[bases] = _Maps(bytes(self._map_addresses), maps)
        self._bases = bases

    def follow(self, stream: int) -> None:
        """Is queued on this stream from now on."""
        self._config.stream = stream

    def again(self, result: int) -> None:
        """After another result of `queue` than 0: once more in its context, where that wasn't the current one.

        AttnccError A510 if the driver refuses it.
        """
        self._driver.again(result, self._function.context, self.queue.func, *self.queue.args)

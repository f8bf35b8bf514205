"""CuPy arrays: memory from CuPy's pool, CuPy's current stream."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from ...ir import Variant
from ...problem.facts import ArrayFacts, numpy_dtype
from .framework import Array, Guard, Observer, by_key_head_axes


class CupyArrays:
    """See `framework.DeviceFramework`."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._captured: list[Array] = []

    def observer(self) -> Observer:
        return _CupyObserver()

    def facts(self, array: Array) -> ArrayFacts:
        strides = tuple(stride // array.itemsize for stride in array.strides)
        return ArrayFacts(array.shape, strides, str(array.dtype), f"cuda:{array.data.device_id}")

    def ordinal(self, array: Array) -> int:
        return int(array.data.device_id)

    def traces(self) -> bool:
        return False

    def records(self, variant: Variant, configurations: Sequence[Any], call: Any) -> bool:
        return False

    def pointer(self, array: Array) -> int:
        return int(array.data.ptr)

    def allocator(
        self, shape: tuple[int, ...], dtype: str, ordinal: int, order: tuple[int, ...] | None = None
    ) -> Callable[[], Array]:
        element = numpy_dtype(dtype)

        def empty(lengths: tuple[int, ...] = shape) -> Array:
            with self._on_device(ordinal):
                return self._cupy.empty(lengths, element)

        if order is None or order == tuple(range(len(shape))):
            return empty
        in_memory, back = tuple(shape[axis] for axis in order), tuple(map(order.index, range(len(order))))
        return lambda: empty(in_memory).transpose(back)

    def packed(self, array: Array, columns: int) -> Array:
        with self._on_device(array.data.device_id):
            if array.shape[-1] == columns:
                return array.copy(order="C")
            wide = self._cupy.zeros((*array.shape[:-1], columns), array.dtype)
            wide[..., : array.shape[-1]] = array
            return wide

    def by_key_head(self, q: Array, kv_heads: int, layout: str, columns: int) -> Array:
        axis, order = by_key_head_axes(layout)
        with self._on_device(q.data.device_id):
            heads = q.reshape(*q.shape[:axis], kv_heads, -1, *q.shape[axis + 1 :])
        return self.packed(heads.transpose(order), columns)

    def narrowed(self, array: Array) -> Array:
        with self._on_device(array.data.device_id):
            return array.astype(np.int32, order="C")

    def written(self, array: Array) -> None:
        """Nothing keeps account of it."""

    def assign(self, target: Array, source: Array) -> None:
        with self._on_device(target.data.device_id):
            target[...] = source

    def add_up(self, target: Array, source: Array) -> None:
        with self._on_device(target.data.device_id):
            target[...] = source.astype(np.float32).sum(axis=0, keepdims=True)

    def current_stream(self, ordinal: int) -> int:
        return int(self._cupy.cuda.get_current_stream(ordinal).ptr)

    @contextmanager
    def on_stream(self, handle: int, ordinal: int) -> Iterator[None]:
        """CuPy makes a stream the current one of the current GPU, whose ever it is."""
        cuda = self._cupy.cuda
        with self._on_device(ordinal):
            if hasattr(cuda.Stream, "from_external"):  # CuPy 14, which deprecates ExternalStream
                stream = cuda.Stream.from_external(_Handle(handle))
            else:
                stream = cuda.ExternalStream(handle, ordinal)
            with stream:
                yield

    def release(self, temporary: Sequence[Array], ordinal: int) -> None:
        """CuPy's pool would hand the memory of a recorded graph to others, so that is kept until the process ends."""
        with self._on_device(ordinal):  # or it is asked of the current one's default stream
            if self._cupy.cuda.get_current_stream(ordinal).is_capturing():
                self._captured.extend(temporary)

    def _on_device(self, ordinal: int) -> AbstractContextManager[Any]:
        if self._cupy.cuda.runtime.getDevice() == ordinal:
            return nullcontext()
        device: AbstractContextManager[Any] = self._cupy.cuda.Device(ordinal)
        return device


class _CupyObserver:
    """See `framework.Observer`."""

    def observe(self, arrays: Sequence[Array]) -> tuple[list[int], Hashable]:
        forms = [(array.shape, array.strides, array.dtype, array.data.device_id) for array in arrays]
        return [array.data.ptr for array in arrays], tuple(forms)

    def guard(self, arrays: Sequence[Array], *, new: bool = False) -> Guard | None:
        return None


class _Handle:
    """A stream, as the protocol `__cuda_stream__` tells it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle

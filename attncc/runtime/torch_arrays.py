"""torch tensors: those on a GPU use torch's allocator and current stream, those on the CPU are seen as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..diagnostics import AttnccError, Diagnostic
from ..ir import Variant
from ..problem.facts import ArrayFacts
from .arrays import NUMPY_BFLOAT16, NUMPY_E4M3, Array, Observer
from .autograd import wants_record
from .strides import contiguous
from .tensor_observer import TensorObserver, no_memory, pointer

_DTYPES = ("float16", "bfloat16", "float32", "float64", "bool", "int32", "int64")


class TorchArrays:
    """See `arrays.HostFramework` and `arrays.DeviceFramework`."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self.traces = torch.compiler.is_dynamo_compiling
        self._dtypes = {name: getattr(torch, name) for name in _DTYPES}
        # Where torch has no CUDA there is no such function, nor a tensor to ask it for.
        self._raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", int)

    def observer(self) -> Observer:
        return TensorObserver()

    def facts(self, array: Array) -> ArrayFacts:
        """AttnccError A652 if torch expects the tensor's gradient, A650 if it is neither on the CPU nor on a GPU."""
        if array.requires_grad and self._torch.is_grad_enabled():
            raise AttnccError(_no_gradient())
        if array.device.type not in ("cpu", "cuda"):
            raise AttnccError(_no_device(str(array.device)))
        if array.layout != self._torch.strided or array.is_neg():
            raise AttnccError(no_memory(array))
        dtype = str(array.dtype).removeprefix("torch.")
        return ArrayFacts(tuple(array.shape), array.stride(), dtype, str(array.device))

    def ordinal(self, array: Array) -> int:
        return array.get_device() if array.is_cuda else -1

    def records(self, variant: Variant, configurations: Sequence[Any], call: Any) -> bool:
        return wants_record(self._torch, variant, configurations, call)

    def pointer(self, array: Array) -> int:
        return pointer(array)

    def allocator(self, shape: tuple[int, ...], dtype: str, ordinal: int) -> Callable[[], Array]:
        device = self._torch.device("cuda", ordinal)
        # Half the time that `empty` takes to read its arguments.
        return partial(self._torch.empty_strided, shape, contiguous(shape), dtype=self._dtypes[dtype], device=device)

    def packed(self, array: Array) -> Array:
        return array.clone(memory_format=self._torch.contiguous_format)

    def assign(self, target: Array, source: Array) -> None:
        target.copy_(source)

    def current_stream(self, ordinal: int) -> int:
        return self._raw_stream(ordinal)

    def on_stream(self, handle: int, ordinal: int) -> AbstractContextManager[Any]:
        current: AbstractContextManager[Any] = self._torch.cuda.stream(
            self._torch.cuda.ExternalStream(handle, device=ordinal)
        )
        return current

    def release(self, temporary: Sequence[Array], ordinal: int) -> None:
        """torch records allocations into the graph's own pool: nothing needs to be kept."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        detached = array.detach()
        if array.dtype == self._torch.bfloat16:
            detached = detached.view(self._torch.int16).numpy().view(NUMPY_BFLOAT16)
        elif array.dtype == self._torch.float8_e4m3fn:
            detached = detached.view(self._torch.uint8).numpy().view(NUMPY_E4M3)
        return np.asarray(detached)

    def from_numpy(self, array: NDArray[Any]) -> Array:
        if array.dtype == NUMPY_BFLOAT16:
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)


def _no_gradient() -> Diagnostic:
    return Diagnostic(
        "A652",
        "a tensor of this call requires a gradient, which the call doesn't record",
        help="call under torch.no_grad(), or pass tensor.detach()",
    )


def _no_device(device: str) -> Diagnostic:
    return Diagnostic(
        "A650",
        f"a tensor is on device {device}",
        notes=("expected a tensor on the CPU or on an NVIDIA GPU",),
        help='move it: tensor.to("cuda"), or tensor.cpu() for the CPU executor',
    )

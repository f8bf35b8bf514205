"""torch tensors: those on a GPU use torch's allocator and current stream, those on the CPU are seen as NumPy arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..diagnostics import AttnccError, Diagnostic
from ..problem.facts import ArrayFacts
from .arrays import NUMPY_BFLOAT16, Array

_DTYPES = ("float16", "bfloat16", "float32", "float64", "bool", "int32", "int64")


class TorchArrays:
    """See `arrays.HostFramework` and `arrays.DeviceFramework`."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._dtypes = {name: getattr(torch, name) for name in _DTYPES}
        self._devices: dict[int, Any] = {}

    def key(self, array: Array) -> Hashable:
        differentiated = array.requires_grad and self._torch.is_grad_enabled()
        return array.shape, array.stride(), array.dtype, array.device, differentiated, array.is_neg()

    def facts(self, array: Array) -> ArrayFacts:
        """AttnccError A652 if torch expects the tensor's gradient, A650 if it is neither on the CPU nor on a GPU."""
        if array.requires_grad and self._torch.is_grad_enabled():
            raise AttnccError(_no_gradient())
        if array.device.type not in ("cpu", "cuda"):
            raise AttnccError(_no_device(str(array.device)))
        if array.layout != self._torch.strided or array.is_neg():
            raise AttnccError(_no_memory(array))
        dtype = str(array.dtype).removeprefix("torch.")
        return ArrayFacts(tuple(array.shape), array.stride(), dtype, str(array.device))

    def ordinal(self, array: Array) -> int:
        return array.get_device() if array.is_cuda else -1

    def pointer(self, array: Array) -> int:
        try:
            return int(array.data_ptr())
        except RuntimeError:
            raise AttnccError(_no_memory(array)) from None

    def empty(self, shape: tuple[int, ...], dtype: str, ordinal: int) -> Array:
        device = self._devices.get(ordinal)
        if device is None:  # kept: torch takes longer to make one of a number than to find it here
            device = self._devices[ordinal] = self._torch.device("cuda", ordinal)
        return self._torch.empty(shape, dtype=self._dtypes[dtype], device=device)

    def packed(self, array: Array) -> Array:
        return array.clone(memory_format=self._torch.contiguous_format)

    def assign(self, target: Array, source: Array) -> None:
        target.copy_(source)

    def current_stream(self, ordinal: int) -> int:
        return int(self._torch._C._cuda_getCurrentRawStream(ordinal))

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


def _no_memory(tensor: Array) -> Diagnostic:
    """For tensors whose values don't lie in memory one by one: sparse ones, views that negate, those of transforms."""
    kind = "a view that negates another tensor" if tensor.is_neg() else f"layout {tensor.layout}"
    return Diagnostic(
        "A650",
        "a tensor's values don't lie in memory as they are",
        notes=("expected a dense tensor", f"came {kind}"),
        help="pass tensor.to_dense(), or tensor.resolve_neg()",
    )


def _no_device(device: str) -> Diagnostic:
    return Diagnostic(
        "A650",
        f"a tensor is on device {device}",
        notes=("expected a tensor on the CPU or on an NVIDIA GPU",),
        help='move it: tensor.to("cuda"), or tensor.cpu() for the CPU executor',
    )

"""torch tensors: those on a GPU use torch's allocator and current stream, those on the CPU are seen as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...diagnostics import AttnccError, Diagnostic
from ...ir import Variant
from ...problem.facts import ArrayFacts, numpy_dtype
from ...problem.strides import contiguous, dense
from ..cuda.driver import LEGACY_STREAM
from ..torch.recordable import wants_record
from .framework import Array, Observer, by_key_head_axes
from .tensor_observer import TensorObserver, no_memory, pointer

_DTYPES = ("float16", "bfloat16", "float32", "float64", "bool", "int32", "int64")


class TorchArrays:
    """See `framework.HostFramework` and `framework.DeviceFramework`."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        # As torch has them: a method around each would take as long as they do.
        self.traces = torch.compiler.is_dynamo_compiling
        self.ordinal: Callable[[Array], int] = torch.Tensor.get_device
        self.pointer: Callable[[Array], int] = torch.Tensor.data_ptr
        # These two aren't of torch's documented interface: where they are missing, what it documents takes longer.
        self.current_stream: Callable[[int], int] = getattr(
            torch._C, "_cuda_getCurrentRawStream", lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream
        )
        self._current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        self._dtypes = {name: getattr(torch, name) for name in _DTYPES}
        self._empty_here = _empty_here()

    def observer(self) -> Observer:
        return TensorObserver()

    def facts(self, array: Array) -> ArrayFacts:
        """AttnccError A652 if torch expects the tensor's gradient or tangent, A650 if it is neither on the CPU nor on a
        GPU, or has no memory."""
        if array.requires_grad and self._torch.is_grad_enabled():
            raise AttnccError(_no_gradient())
        if array.device.type not in ("cpu", "cuda"):
            raise AttnccError(_no_device(str(array.device)))
        if array.layout != self._torch.strided or array.is_neg() or array.is_nested:
            raise AttnccError(no_memory(array))
        pointer(array)  # refuses what has none
        if self._torch.autograd.forward_ad.unpack_dual(array).tangent is not None:
            raise AttnccError(_no_tangent())
        dtype = str(array.dtype).removeprefix("torch.")
        return ArrayFacts(tuple(array.shape), array.stride(), dtype, str(array.device))

    def records(self, variant: Variant, configurations: Sequence[Any], call: Any) -> bool:
        return wants_record(self._torch, variant, configurations, call)

    def written(self, array: Array) -> None:
        """As torch's own operators in place do: autograd then refuses a graph that saved the tensor before."""
        self._torch.autograd.graph.increment_version(array)

    def allocator(
        self, shape: tuple[int, ...], dtype: str, ordinal: int, order: tuple[int, ...] | None = None
    ) -> Callable[[], Array]:
        strides = contiguous(shape) if order is None else dense(shape, order)
        element, device = self._dtypes[dtype], self._torch.device("cuda", ordinal)
        anywhere = partial(self._torch.empty_strided, shape, strides, dtype=element, device=device)
        if self._empty_here is None:
            return anywhere
        here, current = partial(self._empty_here, tuple(shape), strides, element), self._current_device
        return lambda: here() if current() == ordinal else anywhere()

    def packed(self, array: Array, columns: int) -> Array:
        if array.shape[-1] == columns:
            return array.clone(memory_format=self._torch.contiguous_format)
        wide = array.new_zeros((*array.shape[:-1], columns))
        wide[..., : array.shape[-1]].copy_(array)
        return wide

    def by_key_head(self, q: Array, kv_heads: int, layout: str, columns: int) -> Array:
        axis, order = by_key_head_axes(layout)
        return self.packed(q.unflatten(axis, (kv_heads, -1)).permute(order), columns)

    def narrowed(self, array: Array) -> Array:
        return array.to(self._torch.int32, memory_format=self._torch.contiguous_format)

    def assign(self, target: Array, source: Array) -> None:
        target.copy_(source)

    def add_up(self, target: Array, source: Array) -> None:
        self._torch.sum(source, 0, keepdim=True, out=target)

    def on_stream(self, handle: int, ordinal: int) -> AbstractContextManager[Any]:
        cuda = self._torch.cuda
        # An external stream without an address would be a new one.
        legacy = handle in LEGACY_STREAM
        stream = cuda.default_stream(ordinal) if legacy else cuda.ExternalStream(handle, device=ordinal)
        current: AbstractContextManager[Any] = cuda.stream(stream)
        return current

    def release(self, temporary: Sequence[Array], ordinal: int) -> None:
        """torch records allocations into the graph's own pool: nothing needs to be kept."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """By DLPack: torch's own `numpy()` ends for good that a storage can be resized, as FSDP does. AttnccError A604
        for an element type that NumPy doesn't have."""
        detached = array.detach()
        if array.dtype == self._torch.bfloat16:
            return np.from_dlpack(detached.view(self._torch.int16)).view(numpy_dtype("bfloat16"))
        if array.dtype == self._torch.float8_e4m3fn:
            return np.from_dlpack(detached.view(self._torch.uint8)).view(numpy_dtype("float8_e4m3fn"))
        try:
            return np.from_dlpack(detached)
        except (BufferError, RuntimeError):
            raise AttnccError(_no_dtype(array)) from None

    def from_numpy(self, array: NDArray[Any]) -> Array:
        if str(array.dtype) == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)


class SteeredTensors(TorchArrays):
    """Tensors whose type answers operators itself: fake ones, DTensor. Calls with them are an operator wherever they
    are, since what they have for a pointer is none."""

    def __init__(self) -> None:
        super().__init__()
        self.ordinal = _nowhere

    def records(self, variant: Variant, configurations: Sequence[Any], call: Any) -> bool:
        return True

    def facts(self, array: Array) -> ArrayFacts:
        raise AttnccError(no_memory(array))


def _nowhere(array: Array) -> int:
    return -1


def _empty_here() -> Callable[..., Array] | None:
    """What code of torch's compiler allocates by, on the current GPU: in half the time that `empty_strided` takes.

    It isn't of torch's documented interface: None where it is missing.
    """
    try:
        from torch._C._dynamo import guards
    except ImportError:
        return None
    return getattr(guards, "_empty_strided_cuda", None)


def _no_gradient() -> Diagnostic:
    return Diagnostic(
        "A652",
        "a tensor of this call requires a gradient, which the call doesn't record",
        help="call under torch.no_grad(), or pass tensor.detach()",
    )


def _no_tangent() -> Diagnostic:
    return Diagnostic(
        "A652",
        "a tensor of this call has a tangent, and there are no derivatives in forward mode",
        help="take first derivatives by backward(), or pass torch.autograd.forward_ad.unpack_dual(tensor).primal",
    )


def _no_dtype(array: Array) -> Diagnostic:
    what, came = "a tensor has an element type that nothing here takes", f"came {array.dtype}"
    return Diagnostic("A604", what, notes=(came,), help="convert it: tensor.to(…)")


def _no_device(device: str) -> Diagnostic:
    return Diagnostic(
        "A650",
        f"a tensor is on device {device}",
        notes=("expected a tensor on the CPU or on an NVIDIA GPU",),
        help='move it: tensor.to("cuda"), or tensor.cpu() for the CPU executor',
    )

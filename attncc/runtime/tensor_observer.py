"""What a call sees of its torch tensors: where they are, and a key of their shapes, strides, dtypes and devices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import call
from typing import Any

from ..diagnostics import AttnccError, Diagnostic
from .arrays import Array

Guard = Callable[..., bool]  # tells whether tensors have a form that it knows


class TensorObserver:
    """See `arrays.Observer`.

    Tensors are mostly as they were in the call before. torch can tell so at once: its compiler guards graphs by a check
    of type, dispatch keys, dtype, device, sizes, strides and gradients, in a fifth of the time that reading all these
    takes.
    """

    def __init__(self) -> None:
        import torch

        self._data_ptr, self._grad_mode = torch.Tensor.data_ptr, torch.is_grad_enabled
        self._last: tuple[Guard | None, tuple[Hashable, ...]] = None, ()

    def __call__(self, arrays: Sequence[Array]) -> tuple[list[int], Hashable]:
        """AttnccError A650 for a tensor without memory."""
        alike, forms = self._last
        try:
            if alike is None or len(arrays) != len(forms) or not alike(*arrays):
                forms = self._look(arrays)
            return list(map(self._data_ptr, arrays)), forms
        except RuntimeError:
            list(map(pointer, arrays))
            raise

    def _look(self, arrays: Sequence[Array]) -> tuple[Hashable, ...]:
        """The forms. Those that come twice in a row get a guard: making one takes longer than a call without."""
        alike, last = self._last
        forms = tuple(map(self._form, arrays))
        if forms != last:
            alike = None
        elif alike is not _never:
            alike = _guard(arrays)
        self._last = alike, forms
        return forms

    def _form(self, tensor: Array) -> Hashable:
        differentiated = tensor.requires_grad and self._grad_mode()
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, differentiated, tensor.is_neg()


def pointer(tensor: Array) -> int:
    """The address of a tensor's first element. AttnccError A650 if it has none."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:
        raise AttnccError(no_memory(tensor)) from None


def _never(*tensors: Array) -> bool:
    return False


def _guard(tensors: Sequence[Array]) -> Guard:
    """torch's guards aren't of its documented interface: where they aren't as expected, nothing is ever alike."""
    if any(tensor.requires_grad for tensor in tensors):  # guards don't all see whether gradients are recorded
        return _never
    try:
        together, apart = _check(*tensors), [_check(tensor) for tensor in tensors]
    except (ImportError, TypeError, RuntimeError):
        return _never
    guards: tuple[Guard, ...] = together, lambda *others: all(map(call, apart, others))
    # A tensor that comes twice, as in attention(x, x, x), fails the check of all together.
    return next((guard for guard in guards if guard(*tensors) is True), _never)


def _check(*tensors: Array) -> Guard:
    from torch._C._dynamo.guards import TensorGuards

    sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
    strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
    check: Guard = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def no_memory(tensor: Array) -> Diagnostic:
    """For tensors whose values don't lie in memory one by one: sparse ones, views that negate, those of transforms."""
    kind = "a view that negates another tensor" if tensor.is_neg() else f"layout {tensor.layout}"
    return Diagnostic(
        "A650",
        "a tensor's values don't lie in memory as they are",
        notes=("expected a dense tensor", f"came {kind}"),
        help="pass tensor.to_dense(), or tensor.resolve_neg()",
    )

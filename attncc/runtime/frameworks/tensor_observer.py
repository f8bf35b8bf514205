"""What a call sees of its torch tensors: where they are, and a key of their shapes, strides, dtypes and devices, of
gradients and tangents, of the type that autocast would turn them into, and of whether torch watches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import call
from typing import Any

from ...diagnostics import AttnccError, Diagnostic
from ...problem.refusal import type_text
from .framework import Array, Guard

Forms = tuple[Hashable, ...]
Check = Callable[..., bool]  # of tensors


class TensorObserver:
    """See `framework.Observer`.

    Tensors are mostly as they were in the call before. torch can tell so at once: its compiler guards graphs by a check
    of type, dispatch keys, dtype, device, sizes, strides and gradients, in a fifth of the time that reading all these
    takes.
    """

    def __init__(self) -> None:
        import torch

        self._torch, self._data_ptr = torch, torch.Tensor.data_ptr
        self._last: tuple[Guard | None, int, Forms] = None, 0, ()

    def observe(self, arrays: Sequence[Array]) -> tuple[list[int], Hashable]:
        """AttnccError A650 for a tensor without memory."""
        alike, count, forms = self._last
        try:
            if alike is None or len(arrays) != count or not alike(*arrays):
                forms = self._look(arrays)
            return list(map(self._data_ptr, arrays)), forms
        except RuntimeError:
            list(map(pointer, arrays))
            raise

    def guard(self, arrays: Sequence[Array], *, new: bool = False) -> Guard | None:
        """See `framework.Observer`."""
        if new:
            made = _NEVER if watched(self._torch) else self._guard(arrays, self._autocast(arrays[0].device.type))
            return None if made is _NEVER else made
        alike, count, _ = self._last
        known = alike is not None and alike is not _NEVER and len(arrays) == count and alike(*arrays)
        return alike if known else None

    def _look(self, arrays: Sequence[Array]) -> Forms:
        """The forms. Those that come twice in a row get a guard: making one takes longer than a call without."""
        alike, _, last = self._last
        autocast = self._autocast(arrays[0].device.type)
        forms = (*map(self._form, arrays), autocast, watched(self._torch))
        if forms != last:
            alike = None
        elif alike is not _NEVER:
            alike = self._guard(arrays, autocast)
        self._last = alike, len(arrays), forms
        return forms

    def _guard(self, arrays: Sequence[Array], autocast: Hashable) -> Guard:
        """torch's guard tells whether autocast is on, but not which type it gives."""
        guard, device = _guard(arrays), arrays[0].device.type
        if guard is _NEVER or autocast is None:
            return guard
        return guard._replace(modes=(*guard.modes, (partial(self._autocast, device), autocast)))

    def _form(self, tensor: Array) -> Hashable:
        differentiated = tensor.requires_grad and self._torch.is_grad_enabled()
        has_tangent = self._torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None
        how = differentiated, has_tangent, tensor.is_neg()
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, *how

    def _autocast(self, device: str) -> Hashable:
        """The type that autocast gives to calls on this device, None where it is off."""
        on = device in ("cpu", "cuda") and self._torch.is_autocast_enabled(device)
        return self._torch.get_autocast_dtype(device) if on else None


def steers(kind: type) -> bool:
    """Whether tensors of a type answer operators themselves, as fake ones and DTensor do."""
    import torch

    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]


def watched(torch: Any) -> bool:
    """Whether a dispatch mode or `torch.jit.trace` is on: they see operators alone, and would take what any other call
    gives for a constant."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None


def pointer(tensor: Array) -> int:
    """The address of a tensor's first element. AttnccError A650 if it has none."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:
        raise AttnccError(no_memory(tensor)) from None


_NEVER = Guard(lambda *tensors: False)


def _guard(tensors: Sequence[Array]) -> Guard:
    """torch's guards aren't of its documented interface: where they aren't as expected, nothing is ever alike."""
    try:
        together, apart = _check(*tensors), [_check(tensor) for tensor in tensors]
    except (ImportError, TypeError, RuntimeError):
        return _NEVER
    checks: tuple[Check, ...] = together, lambda *others: all(map(call, apart, others))
    # A tensor that comes twice, as in attention(x, x, x), fails the check of all together.
    check = next((check for check in checks if check(*tensors) is True), None)
    if check is None:
        return _NEVER
    return _in_this_mode(check, any(tensor.requires_grad for tensor in tensors))


def _in_this_mode(check: Check, has_gradients: bool) -> Guard:
    """A guard that asks for what torch's own don't, or not all of them: that no tensor has a tangent, for which there
    must be no dual level of forward mode; of tensors that require gradients, that these are recorded as they are now.
    """
    import torch
    from torch.autograd import forward_ad

    if not hasattr(forward_ad, "_current_level"):  # not documented
        return _NEVER
    no_level = partial(getattr, forward_ad, "_current_level"), -1
    recording = torch.is_grad_enabled, torch.is_grad_enabled()
    return Guard(check, (no_level, recording) if has_gradients else (no_level,))


def _check(*tensors: Array) -> Check:
    from torch._C._dynamo.guards import TensorGuards

    sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
    strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
    check: Check = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def no_memory(tensor: Array) -> Diagnostic:
    """For tensors whose values don't lie in memory one by one: sparse and nested ones, views that negate, those of
    transforms, and those whose type answers operators itself."""
    kind, help = f"layout {tensor.layout}", "pass tensor.to_dense()"
    if tensor.is_nested:
        kind = "a nested tensor"
        help = "pass a packed batch: of a jagged one tensor.values(), and tensor.offsets() in int32 as cu_seqlens"
    elif tensor.is_neg():
        kind, help = "a view that negates another tensor", "pass tensor.resolve_neg()"
    elif steers(type(tensor)):
        kind, help = type_text(type(tensor)), "pass the tensor that it stands for, such as dtensor.to_local()"
    elif str(tensor.layout) == "torch.strided":
        kind = "what torch.func.vmap, jvp or another transform passes for a tensor"
        help = "call the kernel outside the transform; it takes batches itself, and has first derivatives by autograd"
    return Diagnostic(
        "A650",
        "a tensor's values don't lie in memory as they are",
        notes=("expected a dense tensor", f"came {kind}"),
        help=help,
    )

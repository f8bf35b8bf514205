"""Calls that torch records: their gradient is wanted, or torch.compile traces them. They go through `torch_operator`.

torch is imported when one of its tensors has come, never before.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import AttnccError
from ..ir import Type, Variant
from ..problem.facts import KERNEL_DTYPES
from ..problem.inputs import declaration
from ..problem.refusal import refused
from .operands import Arguments
from .store import Configuration

if TYPE_CHECKING:
    from .kernel import Kernel
    from .torch_operator import TorchOperators

_operators: dict[str, TorchOperators] = {}
_lock = threading.Lock()


def _operators_of(token: str) -> TorchOperators:
    """The operators of the kernel with this token, registered when they are first asked for."""
    from .kernel import by_token
    from .torch_operator import TorchOperators

    with _lock:
        if token not in _operators:
            kernel = by_token[token]
            parts = kernel.variant, kernel.configurations, kernel.run_unrecorded, kernel.run_backward
            _operators[token] = TorchOperators(*parts)
        return _operators[token]


def operator_name(token: str) -> str:
    """The name of a kernel's forward operator."""
    return _operators_of(token).name


# What torch.compile is told with `torch.compiler.assume_constant_result`: to run the function and not look into it.
operator_name._dynamo_marked_constant = True  # type: ignore[attr-defined]


def wants_record(torch: Any, variant: Variant, configurations: Sequence[Configuration], call: Arguments) -> bool:
    """Whether a call can't be run as it is: its gradient is wanted, a seed is to be drawn, or autocast changes it."""
    seedless = call.seed is None and variant.dropout is not None
    return seedless or _differentiated(torch, call) or _autocast(torch, configurations, call) is not call


def _differentiated(torch: Any, call: Arguments) -> bool:
    return torch.is_grad_enabled() and any(
        getattr(array, "requires_grad", False) for array in (call.q, call.k, call.v, *call.inputs.values())
    )


def recorded(kernel: Kernel, call: Arguments, *, traced: bool = False) -> Any:
    """A call on torch's tensors: out, or (out, lse), with their autograd history.

    A seed that is needed and missing is drawn from torch's generator, on q's device. Under autocast q, k and v come in
    its type, if the kernel was built for that. AttnccError as `Kernel.__call__`, and A652 where a gradient is wanted of
    an input that isn't learnable, or `out` is given.
    """
    import torch

    from .torch_operator import NAMESPACE, flattened  # only here: it brings the backward pass, which few calls need

    variant = kernel.variant
    call = _autocast(torch, kernel.configurations, call)
    if call.seed is None and variant.dropout is not None:
        call = call._replace(seed=torch.randint(2**63 - 1, (), dtype=torch.int64, device=call.q.device))
    if not (traced or _differentiated(torch, call)):
        return kernel.run_unrecorded(call)
    if not traced and not _fits(variant, call):
        raise _refusal(torch, kernel, call)
    _check_recordable(torch, variant, call)
    flat = flattened(variant.inputs, call, torch.are_deterministic_algorithms_enabled())
    if traced:
        out, lse = getattr(getattr(torch.ops, NAMESPACE), operator_name(kernel.token))(*flat)
    else:
        out, lse = _operators_of(kernel.token).recorded(flat)
    return (out, lse) if call.return_lse else out


def _fits(variant: Variant, call: Arguments) -> bool:
    """Whether the arguments have a place in the operator's schema."""
    declared = {item.name: item for item in variant.inputs}
    needed = {name for name, item in declared.items() if item.default is None}
    if not needed <= call.inputs.keys() <= declared.keys() or (call.return_lse and variant.normalize != "softmax"):
        return False
    tensors = (call.k, call.v, *(x for x in (call.cu_seqlens_q, call.cu_seqlens_kv) if x is not None))
    return (
        all(map(_is_tensor, tensors))
        and all(
            _is_tensor(x) if declared[name].axes else _is_scalar(x, declared[name].type)
            for name, x in call.inputs.items()
        )
        and (call.seed is None or _is_scalar(call.seed, Type.INT))
        and (call.scale is None or _is_scalar(call.scale, Type.FLOAT))
        and isinstance(call.layout, str)
    )


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "requires_grad")


def _is_scalar(value: Any, kind: Type) -> bool:
    """Whether a tensor, or a number of a type that stands for this one; NumPy's numbers are such too."""
    if _is_tensor(value):
        return True
    plain = value.item() if isinstance(value, np.generic | np.ndarray) and value.shape == () else value
    kinds = {Type.FLOAT: (float, int), Type.INT: (int,), Type.BOOL: (bool,)}
    return type(plain) in kinds[kind]


def _refusal(torch: Any, kernel: Kernel, call: Arguments) -> AttnccError:
    """What is wrong with a call, as the kernel itself says it."""
    try:
        with torch.no_grad():
            kernel.run_unrecorded(call)
    except AttnccError as error:
        return error
    return refused(
        "A652",
        "an argument has a type that a call with gradients doesn't take",
        expected="tensors, and numbers for scalars",
        came=", ".join(f"{name}: {type(value).__name__}" for name, value in call.inputs.items()),
    )


def _autocast(torch: Any, configurations: Sequence[Configuration], call: Arguments) -> Arguments:
    """The call with q, k and v in autocast's type. fp64 stays, as everywhere under autocast."""
    kind = call.q.device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return call
    dtype = torch.get_autocast_dtype(kind)
    if call.q.dtype == call.k.dtype == call.v.dtype == dtype:
        return call
    built = any(dtype == getattr(torch, KERNEL_DTYPES[item.dtype]) for item in configurations)
    if not built or any(x.dtype == torch.float64 for x in (call.q, call.k, call.v)):
        return call
    return call._replace(q=call.q.to(dtype), k=call.k.to(dtype), v=call.v.to(dtype))


def _check_recordable(torch: Any, variant: Variant, call: Arguments) -> None:
    if call.out is not None:
        raise refused(
            "A652",
            "`out` can't be used in a call whose gradient is recorded",
            expected="out=None",
            came="a tensor",
            help="take the result that the call returns, or call under torch.no_grad()",
        )
    for item in variant.inputs:
        value = call.inputs.get(item.name)
        if not item.learnable and getattr(value, "requires_grad", False) and torch.is_grad_enabled():
            raise refused(
                "A652",
                f"input `{item.name}` requires a gradient, but isn't learnable",
                expected=f"input {declaration(item)} learnable",
                came=f"input {declaration(item)}",
                help=f"declare it learnable, or pass {item.name}.detach()",
            )

"""Whether a call on torch's tensors is to be an operator of torch's graphs, can be one, and loses no gradient by it.

torch.compile follows these functions, so they compare what Python compares, and tell what is wrong as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...descales import descaled
from ...ir import Input, Type, Variant
from ...problem.call_arguments import ARGUMENTS, ARRAYS, NUMBERS, SCALARS, Arguments
from ...problem.facts import LAYOUTS
from ...problem.inputs import declaration
from ..frameworks.tensor_observer import steers, watched
from ..store.store import Configuration
from .autocast import autocast

_KINDS = {"float": (float, int), "int": (int,), "bool": (bool,)}  # by value: torch.compile can't hash a `Type`
_NUMBERS = tuple((name, ARGUMENTS[name].code) for name in NUMBERS)
_SCALARS = tuple((name, ARGUMENTS[name].code) for name in SCALARS)
_OF_NUMPY = np.generic, np.ndarray


def wants_record(torch: Any, variant: Variant, configurations: Sequence[Configuration], call: Arguments) -> bool:
    """Whether a call can't be run as it is: its gradient is wanted, a seed is to be drawn, autocast changes it, or it
    must be an operator."""
    seedless = call.seed is None and variant.dropout is not None
    changed = seedless or autocast(torch, configurations, call) is not call
    return changed or differentiated(torch, call) or must_be_operator(torch, call)


def must_be_operator(torch: Any, call: Arguments) -> bool:
    """Whether torch, rather than a GPU or the executor, is to say what a call gives: of tensors without memory, and
    where something watches what runs. Not with `out`, which operators don't write; tangents are refused elsewhere."""
    if call.out is not None or not (steers(type(call.q)) or call.q.is_meta or watched(torch)):
        return False
    primals = map(torch.autograd.forward_ad.unpack_dual, tensors(torch, call))
    return all(primal.tangent is None for primal in primals)


def differentiated(torch: Any, call: Arguments) -> bool:
    """Whether a gradient of the call is wanted."""
    return torch.is_grad_enabled() and any(array.requires_grad for array in tensors(torch, call))


def tensors(torch: Any, call: Arguments) -> list[Any]:
    """The tensors of a call that may have a gradient."""
    return [x for x in (call.q, call.k, call.v, *call.inputs.values()) if isinstance(x, torch.Tensor)]


def unfit(torch: Any, variant: Variant, call: Arguments) -> str:
    """What has no place in the operator's schema, with its code; empty where all has."""
    declared = {item.name: item for item in variant.inputs}
    return _names(variant, declared, call) or _arrays(torch, declared, call) or _numbers(torch, declared, call)


def lost_gradient(torch: Any, variant: Variant, call: Arguments) -> dict[str, str]:
    """What a gradient of the call would be lost by, as `refused` takes it; empty where none is."""
    if call.out is not None:
        return {
            "what": "`out` can't be used in a call whose gradient is recorded",
            "expected": "out=None",
            "came": "a tensor",
            "help": "take the result that the call returns, or call under torch.no_grad()",
        }
    without = _without_gradients(variant, call)
    if without and differentiated(torch, call):
        trained = ", or train with a kernel of another dtype" if descaled(variant) else ""
        return {
            "what": without,
            "expected": "tensors that require none",
            "came": "one that requires a gradient",
            "help": f"call under torch.no_grad(){trained}",
        }
    for item in variant.inputs:
        value = call.inputs.get(item.name)
        if isinstance(value, torch.Tensor) and value.requires_grad and not item.learnable and torch.is_grad_enabled():
            return {
                "what": f"input `{item.name}` requires a gradient, but isn't learnable",
                "expected": f"input {declaration(item)} learnable",
                "came": f"input {declaration(item)}",
                "help": f"declare it learnable, or pass {item.name}.detach()",
            }
    return {}


def _without_gradients(variant: Variant, call: Arguments) -> str:
    """What of a call has no backward pass; empty where it has one."""
    if descaled(variant):
        return "kernels of e4m3 have no gradients"
    if call.k.dtype != call.q.dtype and call.k.dtype.itemsize == 1:
        return "a call over a cache of 8 bits has no gradients"
    if call.cu_seqlens_q is not None and call.kv_lens is not None:
        return "a call over packed queries and a cache has no gradients"
    return "a call over pages has no gradients" if call.block_table is not None else ""


def _names(variant: Variant, declared: dict[str, Input], call: Arguments) -> str:
    for name in call.inputs:
        if name not in declared:
            return f"A608: `{name}` is not an argument of {variant.name}"
    for name, item in declared.items():
        if name not in call.inputs and item.default is None:
            return f"A607: input `{name}` is missing"
    if call.return_lse and variant.normalize != "softmax":
        return "A614: `return_lse` has no meaning for this variant"
    known = isinstance(call.layout, str) and call.layout in LAYOUTS
    return "" if known else "A618: `layout` is unknown"


def _arrays(torch: Any, declared: dict[str, Input], call: Arguments) -> str:
    arrays = {"k": call.k, "v": call.v}
    arrays.update({name: value for name in ARRAYS if (value := getattr(call, name)) is not None})
    arrays.update({name: value for name, value in call.inputs.items() if declared[name].axes})
    for name, value in arrays.items():
        if not isinstance(value, torch.Tensor):
            return f"{'A654' if isinstance(value, np.ndarray) else 'A622'}: `{name}` is not a tensor"
        if value.is_nested or call.q.is_nested:
            return f"A650: `{name if value.is_nested else 'q'}` is a nested tensor"
        if value.device != call.q.device:
            return f"A605: `{name}` is on another device than `q`"
    return ""


def _numbers(torch: Any, declared: dict[str, Input], call: Arguments) -> str:
    for name, value in call.inputs.items():
        item = declared[name]
        if isinstance(value, torch.Tensor):
            if item.type is not Type.FLOAT and value.requires_grad:
                return f"A604: input `{name}` has the wrong element type"
        elif not item.axes and not is_number(value, item.type):
            return f"A610: input `{name}` is not a number of its type"
    for name, code in _NUMBERS:
        value = getattr(call, name)
        if value is not None and not is_number(value, Type.FLOAT):
            return f"{code}: `{name}` can't be used"
    for name, code in _SCALARS:
        value = getattr(call, name)
        if value is None or isinstance(value, torch.Tensor):
            continue
        if not (is_number(value, Type.INT) and -(2**63) <= value < 2**64):
            return f"{code}: `{name}` can't be used"
    return ""


def is_number(value: Any, kind: Type) -> bool:
    """Whether a number of a type that stands for this one; NumPy's numbers are such too."""
    if isinstance(value, _OF_NUMPY) and value.shape == ():
        value = value.item()
    return type(value) in _KINDS[kind.value]

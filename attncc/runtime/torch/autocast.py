"""Calls under torch.autocast: q, k and v come in its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...diagnostics import AttnccError
from ...problem.call_arguments import Arguments
from ...problem.facts import KERNEL_DTYPES, KV_DTYPES
from ...problem.refusal import refused
from ..store.store import Configuration


def autocast(torch: Any, configurations: Sequence[Configuration], call: Arguments) -> Arguments:
    """The call with q, k and v in autocast's type. fp64 stays, as everywhere under autocast.

    AttnccError A604 if the kernel was built neither for autocast's type nor for that of q.
    """
    kind = call.q.device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return call
    dtype = torch.get_autocast_dtype(kind)
    if call.q.dtype == call.k.dtype == call.v.dtype == dtype:
        return call
    built = [getattr(torch, KERNEL_DTYPES[item.dtype]) for item in configurations]
    if any(x.dtype == torch.float64 for x in (call.q, call.k, call.v)):
        return call
    if dtype not in built:
        if call.q.dtype == torch.float32 and call.q.dtype not in built and not torch.compiler.is_compiling():
            raise _unbuilt(str(dtype), [item.dtype for item in configurations])
        return call
    narrow = [getattr(torch, name) for name in KV_DTYPES.values()]  # caches of 8 bits stay as they are
    k, v = (x if x.dtype in narrow else x.to(dtype) for x in (call.k, call.v))
    return (
        call if call.q.dtype == dtype and k is call.k and v is call.v else call._replace(q=call.q.to(dtype), k=k, v=v)
    )


def _unbuilt(dtype: str, built: Sequence[str]) -> AttnccError:
    full = dict.fromkeys(KERNEL_DTYPES[name] for name in built)
    return refused(
        "A604",
        "autocast's type is none that the kernel was built for",
        expected=" or ".join(full),
        came=dtype.removeprefix("torch."),
        help=f"call under torch.autocast(…, dtype=torch.{next(iter(full))}), or build the kernel for autocast's type",
    )

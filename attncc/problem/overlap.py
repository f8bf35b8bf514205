"""`out` and the arrays that a call reads must not share memory: rows are written while others are still to be read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..diagnostics import AttnccError
from .facts import OF_ML_DTYPES, ArrayFacts
from .refusal import refused

Array = NDArray[Any]

_MOST_WORK = 10_000  # steps of NumPy's search for a shared element, microseconds; strides of real arrays need a few


def shares_memory(name: str) -> AttnccError:
    """The exception for `out` over the memory of an argument."""
    return refused(
        "A617",
        f"`out` shares memory with `{name}`",
        expected="memory of its own",
        came=f"the memory of `{name}`, which is read while `out` is written",
        help=f"leave `out` away, or pass a copy of `{name}`",
    )


def elements_meet(a: Array, b: Array) -> bool:
    """Whether two arrays share an element, or would take long to tell apart. Looks at addresses, not at contents."""
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]  # NumPy's stubs know of -1 and 0 alone
    except np.exceptions.TooHardError:
        return True


def addressed(facts: ArrayFacts, base: int) -> Array:
    """An array's addresses as a NumPy array. What lies there may be a GPU's memory: let none see it that would read."""
    size = item_bytes(facts.dtype)
    strides = tuple(stride * size for stride in facts.strides)
    view = type("_Addresses", (), {"__array_interface__": {
        "shape": facts.shape, "strides": strides, "typestr": f"|V{size}", "data": (base, False), "version": 3,
    }})  # fmt: skip
    return np.asarray(view())


def byte_span(facts: ArrayFacts) -> tuple[int, int]:
    """The first byte of an array and the one after its last, counted from its base; equal where it has no elements."""
    if 0 in facts.shape:
        return 0, 0
    size = item_bytes(facts.dtype)
    reaches = [stride * (length - 1) for stride, length in zip(facts.strides, facts.shape, strict=True)]
    return size * sum(min(reach, 0) for reach in reaches), size * (1 + sum(max(reach, 0) for reach in reaches))


def item_bytes(dtype: str) -> int:
    """The size of an element, of NumPy's name for its type."""
    return OF_ML_DTYPES.get(dtype) or np.dtype(dtype).itemsize

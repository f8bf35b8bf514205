"""Arrays of other frameworks, such as JAX, through DLPack: seen as CuPy or NumPy arrays, results handed back.

Results return through the caller's array namespace (`__array_namespace__`, the array API standard): `from_dlpack` on a
GPU, `asarray` on the CPU; where an array names no namespace, they stay CuPy or NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_DLPACK_CPU, _DLPACK_CUDA = 1, 2


def opened(value: Any) -> Any:
    """A CuPy or NumPy array over the same memory; what isn't an array stays as it is."""
    if not hasattr(value, "__dlpack__") or isinstance(value, np.ndarray | np.generic):
        return value
    device, _ = value.__dlpack_device__()
    if device != _DLPACK_CUDA:
        return np.asarray(value)
    import cupy

    return cupy.from_dlpack(value)


def handed_back(result: Any, like: Any) -> Any:
    """A result as an array of the framework of `like`, where that can take it."""
    namespace = like.__array_namespace__() if hasattr(like, "__array_namespace__") else None
    if namespace is None:
        return result
    if isinstance(result, np.ndarray):
        return namespace.asarray(result)
    return namespace.from_dlpack(result)

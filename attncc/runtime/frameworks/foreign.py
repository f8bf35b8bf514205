"""Arrays of other frameworks, such as JAX, through DLPack: seen as CuPy or NumPy arrays, results handed back.

Results return through the caller's array namespace (`__array_namespace__`, the array API standard): `from_dlpack` on a
GPU, `asarray` on the CPU; where an array names no namespace, they stay CuPy or NumPy arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...problem.refusal import refused

_DLPACK_CPU, _DLPACK_CUDA = 1, 2


def opened(name: str, value: Any) -> Any:
    """A CuPy or NumPy array over the same memory; what isn't an array stays as it is. AttnccError A622 if the argument
    of this name can't be read."""
    if not hasattr(value, "__dlpack__") or isinstance(value, np.ndarray | np.generic):
        return value
    device, _ = _device(name, value)
    if device != _DLPACK_CUDA:
        return _on_host(name, value)
    import cupy

    return cupy.from_dlpack(value)


def _device(name: str, value: Any) -> tuple[Any, Any]:
    """Where an array is. AttnccError A650 for what JAX passes for an array while it traces a function."""
    try:
        found: tuple[Any, Any] = value.__dlpack_device__()
    except AttributeError:
        came = f"{type(value).__module__}.{type(value).__qualname__}"
        raise refused(
            "A650",
            f"`{name}` has no memory yet",
            expected="an array",
            came=f"{came}, as a function that is traced sees it",
            help="under jax.jit, grad and vmap call attncc.jax.wrap(kernel)",
        ) from None
    return found


def _on_host(name: str, value: Any) -> Any:
    """NumPy reads no bfloat16 by DLPack: arrays of it, such as JAX's, tell themselves as `ml_dtypes` arrays."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        if hasattr(value, "__array__"):
            return np.asarray(value)
        raise refused(
            "A622",
            f"`{name}` can't be read",
            expected="an array that NumPy reads by DLPack, or one with __array__",
            came=f"{type(value).__module__}.{type(value).__qualname__}: {error}",
            help="convert it to a NumPy or torch array",
        ) from None


def handed_back(result: Any, like: Any) -> Any:
    """A result as an array of the framework of `like`, where that can take it."""
    namespace = like.__array_namespace__() if hasattr(like, "__array_namespace__") else None
    if namespace is None:
        return result
    if isinstance(result, np.ndarray):
        return namespace.asarray(result)
    return namespace.from_dlpack(result)

"""NumPy arrays to a GPU and back, for `attncc run`: those who call kernels bring arrays that are there already."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ...diagnostics import AttnccError, Diagnostic

ABSENT = "e4m3"  # the one dtype of kernels that CuPy has no arrays of


def to_gpu(array: NDArray[Any]) -> Any:
    """A CuPy array with the same contents. AttnccError A517 without CuPy."""
    return _cupy().asarray(array)


def to_host(array: Any) -> NDArray[Any]:
    """A CuPy array as a NumPy array, once the work queued on its stream is done."""
    result: NDArray[Any] = _cupy().asnumpy(array)
    return result


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise AttnccError(
            Diagnostic(
                "A517",
                "CuPy, which puts the arrays on the GPU, is not installed",
                notes=(str(error),),
                help="pip install 'attncc[cuda13]' (driver 580 or newer) or 'attncc[cuda12]', or give --device cpu",
            )
        ) from None
    return cupy

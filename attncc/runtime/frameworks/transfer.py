"""NumPy arrays to a GPU and back, for `attncc run`: those who call kernels bring arrays that are there already."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ...diagnostics import AttnccError, Diagnostic

ABSENT = "e4m3"  # the one dtype of kernels that CuPy has no arrays of


def to_gpu(array: NDArray[Any]) -> Any:
    """A CuPy array with the same contents. AttnccError A517 without CuPy."""
    return usable_cupy().asarray(array)


def to_host(array: Any) -> NDArray[Any]:
    """A CuPy array as a NumPy array, once the work queued on its stream is done."""
    result: NDArray[Any] = usable_cupy().asnumpy(array)
    return result


def usable_cupy() -> Any:
    """CuPy. AttnccError A517 if it isn't installed, or was built for a newer driver than this machine has."""
    try:
        import cupy
    except ImportError as error:
        raise _no_cupy("is not installed", error) from None
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise _no_cupy("can't use the GPU", error) from None
    return cupy


def _no_cupy(why: str, error: Exception) -> AttnccError:
    return AttnccError(
        Diagnostic(
            "A517",
            f"CuPy, which puts the arrays on the GPU, {why}",
            notes=(str(error),),
            help="pip install 'attncc[cuda13]' (driver 580 or newer) or 'attncc[cuda12]'; "
            "`attncc run --device cpu` needs neither",
        )
    )

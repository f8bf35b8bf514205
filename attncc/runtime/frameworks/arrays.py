"""The arrays that callers bring: NumPy, CuPy, torch, and by DLPack any other. Read in place, never copied here.

`framework_of` finds the framework of an array. None is imported before one of its arrays comes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...diagnostics import AttnccError, Diagnostic
from ...ir import Variant
from ...problem.facts import ArrayFacts
from ...problem.refusal import is_masked, masked, mixed, not_an_array
from .framework import Array, Framework

_HANDLES = 2**64  # streams are addresses


class NumpyArrays:
    """NumPy arrays live on the CPU: the executor runs them."""

    def facts(self, array: Array) -> ArrayFacts:
        strides = tuple(stride // array.itemsize for stride in array.strides)
        return ArrayFacts(array.shape, strides, str(array.dtype))

    def ordinal(self, array: Array) -> int:
        return -1

    def traces(self) -> bool:
        return False

    def records(self, variant: Variant, configurations: Sequence[Any], call: Any) -> bool:
        return False

    def written(self, array: Array) -> None:
        """Nothing keeps account of it."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        return np.asarray(array)

    def from_numpy(self, array: NDArray[Any]) -> Array:
        return array


def _numpy(_: type) -> type[Framework]:
    return NumpyArrays


def _cupy(_: type) -> type[Framework]:
    from .cupy_arrays import CupyArrays

    return CupyArrays


def _torch(kind: type) -> type[Framework]:
    from .tensor_observer import steers
    from .torch_arrays import SteeredTensors, TorchArrays

    return SteeredTensors if steers(kind) else TorchArrays


_HOMES = {"numpy": _numpy, "cupy": _cupy, "torch": _torch}  # by the top-level package of the array's type
_frameworks: dict[type[Framework], Framework] = {}
known_frameworks: dict[type, Any] = {}  # by the type of their arrays, of those that came before


def framework_of(array: Array, name: str) -> Framework:
    """The framework of an array, told by its type. AttnccError A622 if the argument of this name is no such array."""
    found = known_frameworks.get(type(array))
    if found is None:
        found = known_frameworks[type(array)] = _find(array, name)
    return found


def _find(array: Array, name: str) -> Framework:
    home = _home(array)
    if home is None or (home == "torch" and not isinstance(array, sys.modules["torch"].Tensor)):
        if is_foreign(array):
            raise mixed(name, type(array))
        raise not_an_array(name, type(array), "a NumPy, CuPy or torch array, or one with __dlpack__")
    if is_masked(array):
        raise masked(name)
    made = _HOMES[home](type(array))
    if made not in _frameworks:
        _frameworks[made] = made()
    return _frameworks[made]


def _home(array: Array) -> str | None:
    homes = [base.__module__.partition(".")[0] for base in type(array).__mro__]
    return next((home for home in homes if home in _HOMES), None) if hasattr(array, "dtype") else None


def is_traced() -> bool:
    """Whether torch.compile or torch.export looks at a call instead of running it."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def is_array(value: Any) -> bool:
    """Whether it is an array at all, of any framework or one that comes by DLPack."""
    return type(value) in known_frameworks or hasattr(value, "__dlpack__") or _home(value) is not None


def is_foreign(array: Array) -> bool:
    """Whether the array is of some other framework, one that exchanges arrays by DLPack."""
    return type(array) not in known_frameworks and hasattr(array, "__dlpack__") and _home(array) is None


def stream_handle(stream: Any, ordinal: int) -> int:
    """The handle of what a caller passes as `stream=`: a torch or CuPy stream, `__cuda_stream__`, or an int.

    AttnccError A651 on anything else, and on a stream that tells it is of another GPU than this one.
    """
    for name in ("device_index", "device_id"):  # torch's and CuPy's; CuPy's default streams have -1
        of_stream = getattr(stream, name, None)
        if isinstance(of_stream, int) and of_stream not in (-1, ordinal):
            raise AttnccError(_no_stream(f"a stream of GPU {ordinal}, where the arrays are", f"one of GPU {of_stream}"))
    handle = stream
    for name in ("cuda_stream", "ptr"):
        handle = getattr(stream, name, handle)
    if not isinstance(handle, int) and hasattr(stream, "__cuda_stream__"):
        handle = int(stream.__cuda_stream__()[1])
    if isinstance(handle, int) and not isinstance(handle, bool) and 0 <= handle < _HANDLES:
        return handle
    came = f"{handle}" if isinstance(handle, int) else f"{type(stream).__module__}.{type(stream).__qualname__}"
    expected = "a torch or CuPy stream, an object with __cuda_stream__, or a handle as an int"
    raise AttnccError(_no_stream(expected, came))


def no_stream_here(stream: Any) -> AttnccError:
    """A651 for a stream where the arrays are on the CPU."""
    return AttnccError(_no_stream("None, since the arrays are on the CPU", repr(stream)))


def _no_stream(expected: str, came: str) -> Diagnostic:
    help_ = "leave it out: calls use the current stream of the arrays' framework"
    return Diagnostic("A651", "`stream` can't be used", notes=(f"expected {expected}", f"came {came}"), help=help_)

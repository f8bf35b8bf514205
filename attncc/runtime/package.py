"""A built package's door: what the `__init__.py` of each variant imports. Nothing heavy is loaded before a call."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

    from .kernel import Kernel

    Array = Any  # a NumPy, CuPy or torch array, or one with __dlpack__
    Scalar = Any  # a Python number, or a 0-d array on the same device as q
    Stream = Any  # a torch or CuPy stream, an object with __cuda_stream__, or a handle
else:
    Array = Scalar = Stream = object


class Package:
    """The folder of one variant. `Package(__file__)` in the folder's `__init__.py`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._kernel: Kernel | None = None

    @property
    def kernel(self) -> Kernel:
        """The callable, made at the first call."""
        if self._kernel is None:
            from pathlib import Path

            from .kernel import Kernel
            from .package_store import PackageStore

            self._kernel = Kernel(PackageStore(Path(self._file).parent))
        return self._kernel

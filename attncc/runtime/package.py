"""A built package's door: what the `__init__.py` of each variant imports. Nothing heavy is loaded before a call."""

from __future__ import annotations

from itertools import count

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Never, ParamSpec, Protocol

    from ..problem.gradients import Gradients
    from .kernel import Kernel

    P = ParamSpec("P")

    class Exported(Protocol[P]):
        """A variant's function, with what else kernels have."""

        variant: str
        configurations: tuple[tuple[str, int, int], ...]  # what it was built for: dtype, head dim, value head dim

        def load(self, device: int = 0) -> None:
            """Loads its machine code on a GPU now rather than at the first call, as CUDA graphs need it."""

        def backward(self, *args: Any, **kwargs: Any) -> Gradients:
            """The gradients of a call: see `attncc.Kernel.backward`."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    Array = Any  # a NumPy, CuPy or torch array, or one with __dlpack__
    Scalar = Any  # a Python number, or a 0-d array on the same device as q
    Stream = Any  # a torch or CuPy stream, an object with __cuda_stream__, or a handle
    Unknown = Never  # a keyword that no call has
else:
    Array = Scalar = Stream = Unknown = object


def given(**inputs: Any) -> dict[str, Any]:
    """The inputs that a call brings: one that it leaves out is None."""
    return {name: value for name, value in inputs.items() if value is not None}


class Package:
    """The folder of one variant. `Package(__file__)` in the folder's `__init__.py`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._token = f"package {next(_numbers)}"
        self._kernel: Kernel | None = None

    @property
    def kernel(self) -> Kernel:
        """The callable, made at the first call."""
        if self._kernel is None:
            _open(self._token, self._file)
            self._kernel = _opened.pop(self._token)
        return self._kernel

    def exported(self, configurations: tuple[tuple[str, int, int], ...]) -> Callable[[Callable[P, Any]], Exported[P]]:
        """Gives the variant's function `variant` (its name), `configurations`, `load` and `backward`, as `Kernel` has
        them, and `package`. An input that a call leaves out, or misspells, is None: so the kernel refuses the call
        and says what was meant, where Python would raise a TypeError."""

        def with_attributes(function: Any) -> Any:
            code = function.__code__
            keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
            function.__kwdefaults__ = dict.fromkeys(keywords) | function.__kwdefaults__
            function.variant, function.configurations = function.__name__, configurations
            function.load, function.backward, function.package = self._load, self._backward, self
            return function

        return with_attributes

    def _load(self, device: int = 0) -> None:
        self.kernel.load(device)

    def _backward(self, *args: Any, **kwargs: Any) -> Gradients:
        return self.kernel.backward(*args, **kwargs)


_numbers = count()
_opened: dict[str, Kernel] = {}  # on their way to their packages


def _open(token: str, file: str) -> None:
    """Python doesn't collect garbage meanwhile: the imports make 12,000 objects, which all stay. So many often start a
    full collection, and that takes longer than the imports where torch is loaded."""
    import gc
    from pathlib import Path

    collects = gc.isenabled()
    gc.disable()
    try:
        from .kernel import Kernel
        from .store.package_store import PackageStore

        _opened[token] = Kernel(PackageStore(Path(file).parent))
    finally:
        if collects:
            gc.enable()


# What torch.compile is told with `torch.compiler.assume_constant_result`: to run the function and not look into it.
_open._dynamo_marked_constant = True  # type: ignore[attr-defined]

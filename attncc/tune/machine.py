"""What tuning asks of a GPU: the one place where it meets hardware. `gpu.Gpu` is the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from ..compiler import Specification
from ..runtime.cuda.timing import Launch
from .race import Clocked
from .work import Work


class Machine(Clocked, Protocol):
    """A GPU that times calls of the kernels that a specification gives, all of one work."""

    @property
    def name(self) -> str: ...

    def environment(self) -> Mapping[str, Any]:
        """What a time means nothing without: driver, versions. Values are JSON's."""

    def launch(self, specification: Specification) -> Launch:
        """A call, on arrays that are on the GPU. AttnccError if the kernel can't be loaded or launched."""

    def results(self, specification: Specification, small: Work) -> Sequence[NDArray[Any]]:
        """What another call gives, a smaller one (`Work.smaller`): out, or dq, dk and dv."""

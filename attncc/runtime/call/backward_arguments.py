"""The arguments of backward calls."""

from __future__ import annotations

from typing import NamedTuple

from ...problem.call_arguments import Arguments
from ..frameworks.framework import Array


class BackwardArguments(NamedTuple):
    """One backward call as the user made it, `stream` apart. In `call`, `out` is None and `return_lse` false."""

    call: Arguments
    dout: Array
    out: Array | None
    lse: Array | None
    dlse: Array | None
    deterministic: bool

    @property
    def results(self) -> dict[str, Array]:
        """What was given besides the operands of the forward call, by name."""
        named = {"dout": self.dout, "out": self.out, "lse": self.lse, "dlse": self.dlse}
        return {name: array for name, array in named.items() if array is not None}

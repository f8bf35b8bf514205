"""The arguments of backward calls."""

from __future__ import annotations

from typing import NamedTuple

from ...problem.call_arguments import Arguments
from ..frameworks.framework import Array


class BackwardArguments(NamedTuple):
    """One backward call as the user made it, `stream` apart. In `call`, `out` is None and `return_lse` false.

    `dq`: an array that the gradient of q is written to, which shares no memory with the others; without it a new one.
    """

    call: Arguments
    dout: Array
    out: Array | None
    lse: Array | None
    dlse: Array | None
    deterministic: bool
    dq: Array | None = None

    @property
    def results(self) -> dict[str, Array]:
        """What was given besides the operands of the forward call, by name."""
        named = {"dout": self.dout, "out": self.out, "lse": self.lse, "dlse": self.dlse, "dq": self.dq}
        return {name: array for name, array in named.items() if array is not None}

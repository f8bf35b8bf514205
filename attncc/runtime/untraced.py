"""Calls in code that torch.compile compiles, but that it can't look into: they run as they do elsewhere.

Imported when such a call has come, and torch with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .operands import Arguments

if TYPE_CHECKING:
    from .kernel import Kernel


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's types aren't read here
def untraced(kernel: Kernel, call: Arguments, stream: Any) -> Any:
    """`Kernel.__call__`, of arguments that stand together."""
    return kernel.run(call, stream)

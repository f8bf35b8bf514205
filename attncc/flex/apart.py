"""Where a mod is traced: apart from what torch does with the operators of the call around it."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes


def apart() -> AbstractContextManager[Any]:
    """Without torch.func's transforms, dispatch modes (fake tensors, torch.export) and inference mode: they would take
    symbols for tensors of theirs, or leave operators whole that are otherwise decomposed."""
    stack = ExitStack()
    if _functorch.peek_interpreter_stack() is not None:
        stack.enter_context(temporarily_clear_interpreter_stack())
    if torch._C._len_torch_dispatch_stack():
        stack.enter_context(_disable_current_modes())
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(False))
    return stack


def is_transformed(tensor: Any) -> bool:
    """Whether it is what a transform of torch.func passes for a tensor."""
    return bool(_functorch.is_functorch_wrapped_tensor(tensor))

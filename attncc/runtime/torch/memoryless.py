"""Calls on FakeTensors, which have shapes and no memory: torch tells what they give if all tensors are of one mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ...problem.call_arguments import Arguments
from ...problem.refusal import refused


@contextmanager
def one_fake_mode(torch: Any, call: Arguments) -> Iterator[None]:
    """AttnccError A650 where torch can't take the tensors of a call together. It is asked rather than the tensors:
    those of transforms and wrappers may stand for FakeTensors too."""
    try:
        yield
    except AssertionError as error:
        reason = str(error).partition(" Found in ")[0]
        if "fake" not in reason.lower():
            raise
        fakes = [name for name, tensor in _tensors(torch, call) if hasattr(tensor, "fake_mode")]
        raise refused(
            "A650",
            "this call has FakeTensors beside tensors with memory, or FakeTensors of two modes",
            expected="all tensors from one FakeTensorMode",
            came=f"FakeTensors: {', '.join(fakes) or 'none, in a FakeTensorMode'}",
            help="make the others by mode.from_tensor(tensor), or the mode with allow_non_fake_inputs=True",
        ) from error


def mode_of(tensor: Any) -> Any:
    """What to make a tensor in that stands beside this one: a FakeTensorMode, or nothing."""
    return getattr(tensor, "fake_mode", None) or nullcontext()


def _tensors(torch: Any, call: Arguments) -> Iterator[tuple[str, Any]]:
    for name, value in (*zip(call._fields, call, strict=True), *call.inputs.items()):
        if isinstance(value, torch.Tensor):
            yield name, value

"""Kernels by token: torch.compile hands on texts, not kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ...ir import Variant
from ...problem.call_arguments import Arguments
from ...problem.gradients import Gradients
from ..call.backward_arguments import BackwardArguments
from ..store.store import Configuration

BackwardAgain = Callable[..., list[Any] | None]  # see `BackwardLauncher.again`


class RecordedKernel(Protocol):
    """What `autograd` asks of a kernel, which is a `Kernel`."""

    token: str

    @property
    def variant(self) -> Variant: ...

    @property
    def configurations(self) -> tuple[Configuration, ...]: ...

    def run(self, call: Arguments, stream: Any) -> Any:
        """A call that torch.compile doesn't look at."""

    def run_unrecorded(self, call: Arguments) -> Any:
        """A call that torch doesn't record, on the current stream."""

    def judge(self, call: Arguments) -> None:
        """AttnccError for what is wrong with a call, of which nothing is run."""

    def run_backward(self, arguments: BackwardArguments, stream: Any = None) -> Gradients:
        """The gradients of a call."""

    @property
    def backward_again(self) -> BackwardAgain:
        """What gives the same one after the other where calls of the form are known; else None."""

    def check_backward(self, configuration: Configuration, ordinal: int) -> None:
        """AttnccError A520 if there is no backward pass for this GPU."""


by_token: WeakValueDictionary[str, RecordedKernel] = WeakValueDictionary()
_numbers = itertools.count()


def token_of(kernel: RecordedKernel) -> str:
    """A new token, by which the kernel is found as long as it lives."""
    token = f"kernel {next(_numbers)}"
    by_token[token] = kernel
    return token

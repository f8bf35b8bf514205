"""The kernels of the suites' cases, compiled on every core while tests run.

This module must not import torch: each of the processes that compile imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Generic, Self, TypeVar

import pytest

import attncc
from attncc.runtime.kernel import Kernel
from tests.gpu.backward_cases import BackwardCase
from tests.gpu.cases import Case
from tests.kernels import discard, processes, with_backward, without_decode

C = TypeVar("C", Case, BackwardCase)


def asked_for(session: pytest.Session, cases: Iterable[C]) -> list[C]:
    """Those that tests of this run have as their `case`."""
    specs = (getattr(item, "callspec", None) for item in session.items)
    chosen = {spec.params["case"] for spec in specs if spec is not None and "case" in spec.params}
    return [case for case in cases if case in chosen]


def forward_kernel(case: Case, target: str) -> Kernel:
    """`target` is that of the device's portable kernels."""
    (key, value), arch = case.head_dims, case.target(target)
    compile_ = attncc.compile if case.family == "portable" else without_decode
    return compile_(case.source(arch), dtype=case.dtype, head_dim=key, value_head_dim=value, arch=arch)


def backward_kernel(case: BackwardCase, target: str) -> Kernel:
    """With the forward kernel that makes out and lse; those of decode are the forward suite's."""
    (key, value), arch = case.forward.head_dims, case.forward.target(target)
    text = case.source(target)
    dtype = case.forward.dtype
    return with_backward(without_decode, text, dtype=dtype, head_dim=key, value_head_dim=value, arch=arch)


class Kernels(Generic[C]):
    """All are begun at once, in the order of their cases; `kernels[case]` waits for its own. Used in a `with`."""

    def __init__(self, compile_: Callable[[C, str], Kernel], cases: Iterable[C], target: str) -> None:
        self._compile, self._target = compile_, target
        self._pool = processes()
        self._futures: dict[C, Future[None]] = {
            case: self._pool.submit(discard, partial(compile_, case, target)) for case in cases
        }

    def __getitem__(self, case: C) -> Kernel:
        self._futures[case].result()
        return self._compile(case, self._target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What hasn't begun won't."""
        self._pool.shutdown(cancel_futures=True)

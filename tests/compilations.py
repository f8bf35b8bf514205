"""Kernels compiled on all cores beside the other tests, so that the whole default build fits into the suite's time.

In processes of their own: tests change the environment, such as the folder of the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from attncc.build import prepare
from attncc.machine_code import compiled, other_kernels, settle
from attncc.resources import folder
from attncc.runtime.nvrtc import Resources
from attncc.runtime.store import kernel_name
from attncc.schedule.plan import BACKWARD_PASSES
from attncc.source import SourceFile


class Case(NamedTuple):
    """What `attncc build` is asked for."""

    spec: str
    target: str
    dtype: str
    head_dim: int
    value_head_dim: int | None = None  # the same
    backward: bool = False  # the kernels of the backward pass, and no others
    decode: bool = False  # the same of the decode pass

    def __str__(self) -> str:
        dims = self.head_dim if self.value_head_dim is None else f"{self.head_dim}x{self.value_head_dim}"
        return f"{self.spec}-{self.target}-{self.dtype}-{dims}{'-backward' * self.backward}{'-decode' * self.decode}"


def compile_all(case: Case) -> Mapping[str, Resources]:
    """What ptxas says of each kernel of a build, by name; of those with several plans, the one that a user gets."""
    path = folder("specs") / f"{case.spec}.attn"
    source = SourceFile(f"specs/{case.spec}.attn", path.read_text(encoding="utf-8"))
    head_dims = [case.head_dim] if case.value_head_dim is None else [(case.head_dim, case.value_head_dim)]
    packages = prepare(source, archs=[case.target], dtypes=[case.dtype], head_dims=head_dims, backward=case.backward)
    ladders = (ladder for package in packages for ladder in package.ladders)
    wanted = BACKWARD_PASSES if case.backward else ("decode",) if case.decode else ("forward", "patches")
    settled = [settle(item) for item in ladders if item.build.pass_name in wanted]
    others = other_kernels([item.plan for item in settled])
    return {kernel_name(item.plan): item.compiled.resources for item in settled} | {
        name: compiled(*item).resources for name, item in others.items()
    }


class Compilations:
    """Cases that are on their way. One that nobody began is compiled when it is asked for."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._futures: dict[Case, Future[Mapping[str, Resources]]] = {}

    def begin(self, cases: Iterable[Case]) -> None:
        self._pool = ProcessPoolExecutor(os.cpu_count(), get_context("spawn"))
        self._futures = {case: self._pool.submit(compile_all, case) for case in cases}

    def result(self, case: Case) -> Mapping[str, Resources]:
        return self._futures[case].result() if case in self._futures else compile_all(case)

    def end(self) -> None:
        """What hasn't begun won't."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


COMPILATIONS = Compilations()

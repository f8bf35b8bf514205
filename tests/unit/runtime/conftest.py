"""Kernels on the fake GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from attncc.runtime.cuda.driver import Driver
from attncc.runtime.frameworks import arrays
from attncc.runtime.kernel import Kernel
from attncc.runtime.store import loaded_kernels
from attncc.schedule.plan import KernelPlan
from tests.unit.runtime.fakes import FakeArray, FakeCuda, FakeFramework, FakeStore


@dataclass
class Bench:
    """A kernel, and what it does to the fake GPU."""

    kernel: Kernel
    cuda: FakeCuda
    framework: FakeFramework

    def params(self) -> dict[str, Any]:
        """What the last launch of the plan's own kernel was given."""
        return next(item.params for item in reversed(self.cuda.launches) if "forward" in item.kernel)


MakeBench = Callable[..., Bench]


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> FakeFramework:
    fake = FakeFramework()
    monkeypatch.setitem(arrays.known_frameworks, FakeArray, fake)
    return fake


@pytest.fixture
def bench(framework: FakeFramework, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeBench]:
    def make(*plans: KernelPlan, nvrtc: str = "13.0", **gpu: Any) -> Bench:
        store = FakeStore(*plans, nvrtc=nvrtc)
        cuda = FakeCuda(store.structs(), **gpu)
        opened: list[Driver] = []

        def driver() -> Driver:
            opened[:] = opened or [Driver(cuda)]  # type: ignore[arg-type]
            return opened[0]

        monkeypatch.setattr(loaded_kernels, "driver", driver)
        return Bench(Kernel(store), cuda, framework)

    yield make

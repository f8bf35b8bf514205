"""The CuPy door, with a stand-in for CuPy: real arrays need a GPU."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attncc.problem import ArrayFacts
from attncc.runtime.frameworks.cupy_arrays import CupyArrays


class StandIn:
    """As much of CuPy as the door uses. `device` is the current one; each has a current stream."""

    def __init__(self) -> None:
        self.device, self.log = 0, list[str]()
        self.handles = {ordinal: 0x11 + ordinal for ordinal in range(3)}
        self.capturing: int | None = None  # the device whose default stream is asked whether it is recorded
        stream = SimpleNamespace(from_external=self.external)
        runtime = SimpleNamespace(getDevice=lambda: self.device)
        self.cuda = SimpleNamespace(
            get_current_stream=self.current, Stream=stream, Device=self.on_device, runtime=runtime
        )

    def current(self, ordinal: int) -> Any:
        return SimpleNamespace(ptr=self.handles[ordinal], is_capturing=lambda: self.capturing == self.device)

    @contextmanager
    def external(self, stream: Any) -> Any:
        device = self.device
        before, self.handles[device] = self.handles[device], stream.__cuda_stream__()[1]
        yield
        assert self.device == device
        self.handles[device] = before

    @contextmanager
    def on_device(self, ordinal: int) -> Any:
        before, self.device = self.device, ordinal
        yield
        self.device = before

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.log.append(f"empty {dtype} on {self.device}")
        return array(shape, dtype, self.device)


def array(shape: tuple[int, ...], dtype: Any, ordinal: int = 0) -> Any:
    return stand_in(np.zeros(shape, dtype), ordinal)


def stand_in(made: Any, ordinal: int) -> Any:
    return SimpleNamespace(
        transpose=lambda axes: stand_in(made.transpose(axes), ordinal),
        shape=made.shape,
        strides=made.strides,
        dtype=made.dtype,
        itemsize=made.itemsize,
        data=SimpleNamespace(device_id=ordinal, ptr=made.ctypes.data),
    )


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    fake = StandIn()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def test_facts_count_elements(cupy: StandIn) -> None:
    found = CupyArrays()
    held = array((2, 3, 8), np.float16, ordinal=1)
    assert found.facts(held) == ArrayFacts((2, 3, 8), (24, 8, 1), "float16", "cuda:1")
    assert (found.ordinal(held), found.pointer(held)) == (1, held.data.ptr)
    pointers, key = found.observer().observe([held, held])
    assert pointers == [held.data.ptr] * 2
    assert key == found.observer().observe([array((2, 3, 8), np.float16, ordinal=1)] * 2)[1]
    assert key != found.observer().observe([held, array((2, 3, 8), np.float16, ordinal=0)])[1]


def test_memory_is_allocated_on_the_arrays_device(cupy: StandIn) -> None:
    found = CupyArrays()
    assert found.allocator((4,), "bfloat16", 1)().dtype.name == "bfloat16"
    found.allocator((4,), "float32", 0)()
    assert cupy.log == ["empty bfloat16 on 1", "empty float32 on 0"]
    assert cupy.device == 0


def test_axes_in_an_order_of_their_own(cupy: StandIn) -> None:
    made = CupyArrays().allocator((2, 3, 5, 4), "float32", 0, (2, 0, 1, 3))()
    assert (made.shape, made.strides) == ((2, 3, 5, 4), (48, 16, 96, 4))


def test_the_current_stream_and_a_given_one(cupy: StandIn) -> None:
    found = CupyArrays()
    assert found.current_stream(2) == 0x13
    with found.on_stream(0x99, 0):
        assert found.current_stream(0) == 0x99
    assert found.current_stream(0) == 0x11


def test_a_given_stream_is_that_of_the_arrays_device(cupy: StandIn) -> None:
    found = CupyArrays()
    with found.on_stream(0x99, 1):
        assert (found.current_stream(0), found.current_stream(1)) == (0x11, 0x99)
    assert (found.current_stream(1), cupy.device) == (0x12, 0)


def test_workspace_of_a_recorded_graph_is_kept(cupy: StandIn) -> None:
    found, workspace = CupyArrays(), array((4,), np.float32)
    found.release([workspace], 1)
    assert found._captured == []
    cupy.capturing = 1
    found.release([workspace], 0)
    assert found._captured == []
    found.release([workspace], 1)
    assert found._captured == [workspace]

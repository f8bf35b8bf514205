"""Frameworks: how arrays are told apart and read, without a copy. CPU tensors stand in for those of a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.problem import ArrayFacts
from attncc.runtime.frameworks.arrays import framework_of, is_foreign, stream_handle
from attncc.runtime.frameworks.framework import HostFramework


def framework(array: Any) -> HostFramework:
    return framework_of(array, "q")  # type: ignore[return-value]


def test_numpy_facts() -> None:
    array = np.zeros((3, 4, 8), np.float16)[:, ::2]
    assert framework(array).facts(array) == ArrayFacts((3, 2, 8), (32, 16, 1), "float16", "cpu")
    bf16 = np.zeros((2, 2), ml_dtypes.bfloat16)
    assert framework(bf16).facts(bf16).dtype == "bfloat16"
    assert framework(array).ordinal(array) == -1
    assert framework(array).to_numpy(array) is array


def test_subclasses_belong_to_their_framework() -> None:
    class Mine(np.ndarray):
        pass

    mine = np.zeros(3).view(Mine)
    assert framework(mine) is framework(np.zeros(3))
    assert not is_foreign(mine)


@pytest.mark.parametrize("value", [[1.0], "q", None, 3])
def test_what_is_no_array_is_refused_by_name(value: Any) -> None:
    with pytest.raises(AttnccError, match=r"A622.*`slope` is not an array"):
        framework_of(value, "slope")


def test_streams() -> None:
    class Torch:
        cuda_stream = 5

    class Cupy:
        ptr = 6

    assert [stream_handle(stream, 0) for stream in (Torch(), Cupy(), 7)] == [5, 6, 7]
    for bad in (True, None, object(), -1, 2**64):
        with pytest.raises(AttnccError, match="A651"):
            stream_handle(bad, 0)


def test_streams_of_another_gpu() -> None:
    class Torch:
        cuda_stream, device_index = 5, 1

    class Cupy:
        ptr, device_id = 6, 1

    class Default:
        ptr, device_id = 2, -1

    assert [stream_handle(stream(), 1) for stream in (Torch, Cupy, Default)] == [5, 6, 2]
    for stream in (Torch, Cupy):
        with pytest.raises(AttnccError, match=r"A651.*\n.*expected a stream of GPU 0.*\n.*came one of GPU 1"):
            stream_handle(stream(), 0)


class TestTorch:
    torch = pytest.importorskip("torch")

    def test_facts(self) -> None:
        tensor = self.torch.zeros(3, 4, 8, dtype=self.torch.bfloat16).transpose(0, 1)
        assert framework(tensor).facts(tensor) == ArrayFacts((4, 3, 8), (8, 32, 1), "bfloat16", "cpu")
        assert framework(tensor).ordinal(tensor) == -1

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_the_memory_is_shared(self, dtype: str) -> None:
        tensor = self.torch.arange(6, dtype=getattr(self.torch, dtype)).reshape(2, 3).T
        seen = framework(tensor).to_numpy(tensor)
        assert str(seen.dtype) == dtype
        assert np.array_equal(seen.astype(np.float64), tensor.double().numpy())
        seen[0, 0] = 77
        assert tensor[0, 0] == 77
        back = framework(tensor).from_numpy(seen)
        assert back.dtype == tensor.dtype
        assert back.data_ptr() == tensor.data_ptr()

    def test_a_gradient_is_not_cut_off_silently(self) -> None:
        torch = self.torch
        tensor = torch.zeros(2, requires_grad=True)
        with torch.no_grad():
            framework(tensor).facts(tensor)
        with pytest.raises(AttnccError, match="A652"):
            framework(tensor).facts(tensor)

    def test_other_devices_are_refused(self) -> None:
        tensor = self.torch.empty(2, device="meta")
        assert framework(tensor).ordinal(tensor) == -1
        with pytest.raises(AttnccError, match=r"A650.*meta"):
            framework(tensor).facts(tensor)

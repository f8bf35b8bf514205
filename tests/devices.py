"""Where a test runs: NumPy arrays on the CPU executor, or torch arrays on the GPU."""

from __future__ import annotations

from typing import Any, Protocol

import ml_dtypes
import numpy as np


class Device(Protocol):
    name: str
    target: str  # what schedules are for: the portable kernel family of the device
    arch: str | None  # what `attncc.compile` is asked for; nothing needs to be compiled for the CPU

    def put(self, array: np.ndarray) -> Any:
        """A contiguous copy on the device."""

    def get(self, array: Any) -> np.ndarray:
        """A copy in NumPy, in fp64 if it holds floats: exact, and comparable bit for bit."""

    def full(self, shape: tuple[int, ...], value: float, dtype: Any) -> Any: ...

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """A view whose new axes have stride 0."""


class Cpu:
    name = "cpu"
    target = "sm_90"
    arch = None

    def put(self, array: np.ndarray) -> Any:
        return np.array(array, order="C")

    def get(self, array: Any) -> np.ndarray:
        return array.astype(np.float64)

    def full(self, shape: tuple[int, ...], value: float, dtype: Any) -> Any:
        return np.full(shape, value, dtype)

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(array, shape)


class Cuda:
    name = "cuda"

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        major, minor = torch.cuda.get_device_capability()
        self.target = self.arch = "sm_80" if major == 8 else f"sm_{major}{minor}"

    def put(self, array: np.ndarray) -> Any:
        if array.dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):  # torch takes no such array
            bits = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}")
            return self.torch.from_numpy(bits).cuda().view(getattr(self.torch, array.dtype.name)).reshape(array.shape)
        return self.torch.from_numpy(np.array(array, order="C")).cuda()

    def get(self, array: Any) -> np.ndarray:
        return array.double().cpu().numpy()

    def full(self, shape: tuple[int, ...], value: float, dtype: Any) -> Any:
        return self.torch.full(shape, value, dtype=getattr(self.torch, str(np.dtype(dtype))), device="cuda")

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        return array.broadcast_to(shape)


def cpu() -> Device:
    return Cpu()


def cuda() -> Device:
    """The GPU; fails the test without torch or a GPU, since `-m gpu` asked for them."""
    import torch

    assert torch.cuda.is_available(), "pytest -m gpu needs a GPU that torch can use"
    return Cuda(torch)

"""torch's tensors on the CPU, taken for a GPU's that only takes notes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attncc.problem.strides import contiguous, dense
from attncc.runtime.frameworks.torch_arrays import TorchArrays


class OnGpu(TorchArrays):
    """Tensors on the CPU, as if they were on GPU 0. It knows which memory was made for calls, and whether it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.ordinal = lambda array: 0
        self.current_stream = lambda ordinal: 0x57
        self._made: list[tuple[int, int, Any, str]] = []

    def allocator(
        self, shape: tuple[int, ...], dtype: str, ordinal: int, order: tuple[int, ...] | None = None
    ) -> Callable[[], Any]:
        strides = contiguous(shape) if order is None else dense(shape, order)
        return lambda: self._noted(torch.empty_strided(shape, strides, dtype=self._dtypes[dtype]), f"new {shape}")

    def packed(self, array: Any, columns: int) -> Any:
        return self._noted(super().packed(array, columns), f"copy of {self.name(array.data_ptr())}")

    def narrowed(self, array: Any) -> Any:
        return self._noted(super().narrowed(array), f"int32 copy of {self.name(array.data_ptr())}")

    def give_names(self, named: dict[str, Any]) -> None:
        """Tensors of a user have these names from now on."""
        for name, tensor in named.items():
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and not tensor.is_meta:
                with torch.no_grad():
                    self._noted(tensor, name)

    def name(self, address: int) -> str:
        """What lives at an address or ends there: a user's tensor, a copy, new memory. Nowhere, where nothing does."""
        live = [
            (start, label) for start, end, held, label in reversed(self._made) if start <= address <= end and held()
        ]
        exact = next((label for start, label in live if start == address), None)
        return exact or (f"within {live[0][1]}" if live else "nowhere")

    def forget(self) -> None:
        self._made.clear()

    def _noted(self, tensor: Any, label: str) -> Any:
        start, size = tensor.data_ptr(), max(_extent(tensor), 1) * tensor.element_size()
        self._made.append((start, start + size, weakref.ref(tensor.untyped_storage()), label))
        return tensor


def _extent(tensor: Any) -> int:
    """Elements from a tensor's first to its last, in memory."""
    steps: Sequence[int] = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return sum(steps) + 1 if tensor.numel() else 0

"""The order of axes in memory: results take that of the operand they go with, as torch's own do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def axis_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The axes of a dense batch's array, the slowest in memory first; the last axis stays last.

    The order of the axes themselves for packed batches, and where axes repeat or go downwards. Axes of length 1 stay
    in their places.
    """
    axes = tuple(range(len(shape)))
    moving = [axis for axis in axes[:-1] if shape[axis] > 1]
    if len(shape) != 4 or any(strides[axis] <= 0 for axis in moving):
        return axes
    by_stride = iter(sorted(moving, key=lambda axis: -strides[axis]))
    return tuple(next(by_stride) if axis in moving else axis for axis in axes)


def repeats(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements share memory, since an axis has stride 0. Without elements strides mean nothing: NumPy has 0."""
    return 0 not in shape and any(stride == 0 and size > 1 for stride, size in zip(strides, shape, strict=True))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def dense(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array without gaps whose axes have this order in memory."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * shape[axis]
    return tuple(strides)


def dense_like(shape: Sequence[int], like: Any) -> tuple[int, ...]:
    """The strides of an array without gaps, its axes in memory as those of `like` (`ArrayFacts`)."""
    return dense(shape, axis_order(like.shape, like.strides))


def zeros_like(shape: Sequence[int], dtype: DTypeLike, like: NDArray[Any]) -> NDArray[Any]:
    """Zeros, the axes in memory as those of `like`."""
    order = axis_order(like.shape, like.strides)
    zeros: NDArray[Any] = np.zeros([shape[axis] for axis in order], dtype)
    return zeros.transpose(np.argsort(order))

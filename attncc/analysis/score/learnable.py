"""The gradients of a call's learnable inputs, added up from pairs with NumPy: for the reference and the executor."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...evaluate import Environment, evaluate
from ...problem import BoundCall, Sequence
from ...problem.arrays import own_part
from ...problem.inputs import merged
from .gradient import InputGradient, gradient

Array = NDArray[Any]


class LearnableSums:
    """`sums` has for each learnable input an array shaped as the call's. What is added first and last is the same in
    every run."""

    def __init__(self, bound: BoundCall, dtype: DTypeLike) -> None:
        self._bound = bound
        self._gradient = gradient(bound.variant)
        learnable = [item.name for item in bound.variant.inputs if item.learnable]
        self.sums: dict[str, Array] = {name: np.zeros(np.shape(bound.inputs[name]), dtype) for name in learnable}

    def add_pairs(self, sequence: Sequence, environment: Environment, dscore: Array) -> None:
        """Adds what pairs contribute: dscore [heads, rows, keys] is the gradient of their final score, exactly 0 where
        a pair weighs nothing; `score` in the environment is their raw score."""
        for read in self._gradient.inputs:
            value = np.broadcast_to(evaluate(read.value, environment), dscore.shape)
            with np.errstate(invalid="ignore", over="ignore"):
                self._add(sequence, read, environment, np.where(dscore == 0, 0, dscore * value))

    def add_sink(self, sequence: Sequence, environment: Environment, dlogit: Array) -> None:
        """Adds the gradient of the sink's logit, [heads, 1, 1] for the heads of the environment."""
        if self._gradient.sink is not None:
            self._add(sequence, self._gradient.sink, environment, dlogit)

    def _add(self, sequence: Sequence, read: InputGradient, environment: Environment, values: Array) -> None:
        declared = self._bound.variant.input(read.input)
        total = own_part(declared, self._bound.problem, sequence, self.sums[read.input])
        indices = [evaluate(index, environment) for index in read.indices]
        sizes = list(np.shape(environment.inputs[read.input]))
        inside: Array = np.asarray(True)
        for index, size in zip(indices, sizes, strict=True):
            inside = inside & (index >= 0) & (index < size)
        if merged(declared, self._bound.problem):
            del indices[[axis.tag for axis in declared.axes].index("batch")]
        _scatter(total, indices, inside, values)


def _scatter(total: Array, indices: Many[Array], inside: Array, values: Array) -> None:
    """total[indices] += values, for those inside; what goes to the same element of all is summed first."""
    shape = np.broadcast_shapes(inside.shape, *(index.shape for index in indices))
    lead = (1,) * (values.ndim - len(shape)) + shape
    alike = tuple(axis for axis, size in enumerate(lead) if size == 1)
    summed = values.sum(axis=alike, keepdims=True).reshape(shape) if alike else values
    if not indices:
        total += np.where(inside, summed, 0)
        return
    kept = np.broadcast_to(inside, shape)
    np.add.at(total, tuple(np.broadcast_to(index, shape)[kept] for index in indices), summed[kept])

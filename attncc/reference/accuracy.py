"""The accuracy rule: how far a result may be from the fp64 oracle, measured by what an unfused baseline achieves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EPSILON = {
    "fp16": float(np.finfo(np.float16).eps),
    "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps),
    "fp32": float(np.finfo(np.float32).eps),
    "e4m3": float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps),  # of the outputs
}


@dataclass(frozen=True)
class Accuracy:
    """The figures of the rule. Both limits must hold; a NaN anywhere breaks them."""

    max_error: float
    mean_error: float
    baseline_max_error: float
    baseline_mean_error: float
    allowance: float  # eps(dtype) * rms(oracle)
    undefined_rows: int = 0  # rows with an inf or NaN that the score lines make: those values count nowhere above

    @property
    def max_limit(self) -> float:
        return 2 * self.baseline_max_error + self.allowance

    @property
    def mean_limit(self) -> float:
        return 1.1 * self.baseline_mean_error + self.allowance / 10

    @property
    def holds(self) -> bool:
        return self.max_error <= self.max_limit and self.mean_error <= self.mean_limit

    def __str__(self) -> str:
        return (
            f"max error {self.max_error:.3e} (limit {self.max_limit:.3e}), "
            f"mean error {self.mean_error:.3e} (limit {self.mean_limit:.3e})"
        )


def accuracy(out: Array, baseline: Array, oracle: Array, dtype: str) -> Accuracy:
    """Judges `out` by the rule; all three have one shape. `dtype` is fp16, bf16, fp32 or e4m3."""
    exact = np.asarray(oracle, np.float64)
    own, other = (np.abs(np.asarray(x).astype(np.float64) - exact) for x in (out, baseline))
    rms = float(np.sqrt(np.mean(exact**2))) if exact.size else 0.0
    return Accuracy(_max(own), _mean(own), _max(other), _mean(other), EPSILON[dtype] * rms)


def accuracy_where_defined(out: Array, baseline: Array, oracle: Array, in_kernel: Array, dtype: str) -> Accuracy:
    """`accuracy` of a call whose score lines may make inf or NaN, as IEEE 754 has it: where the oracle isn't finite,
    `out` must not be either; where `reference.in_kernel_precision` isn't, it needn't be. Such values are left out, the
    others judged as by `accuracy`. All arrays have the shape of out, a row along the last axis."""
    own, other, exact, computed = (np.asarray(x).astype(np.float64) for x in (out, baseline, oracle, in_kernel))
    undefined = ~np.isfinite(own) & ~(np.isfinite(exact) & np.isfinite(computed))
    # S rounded to q's type overflows sooner, which is no excuse for `out`.
    other = np.where(np.isfinite(exact) & ~np.isfinite(other), exact, other)
    own = np.where(np.isfinite(own) & ~np.isfinite(exact), np.nan, own)  # which no limit admits, not even one of inf
    own, other, exact = (values[~undefined] for values in (own, other, exact))
    figures = accuracy(own, other, exact, dtype)
    return replace(figures, undefined_rows=int(undefined.any(axis=-1).sum()))


def _max(errors: Array) -> float:
    return float(errors.max(initial=0.0))


def _mean(errors: Array) -> float:
    return float(errors.mean()) if errors.size else 0.0

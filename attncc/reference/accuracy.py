"""The accuracy rule: how far a result may be from the fp64 oracle, measured by what an unfused baseline achieves."""

from __future__ import annotations

from dataclasses import dataclass
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


def _max(errors: Array) -> float:
    return float(errors.max(initial=0.0))


def _mean(errors: Array) -> float:
    return float(errors.mean()) if errors.size else 0.0

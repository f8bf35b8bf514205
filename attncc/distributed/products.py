"""Products of small matrices, by the calling thread alone.

All of one would wake a thread of OpenBLAS for each core, and these spin: 32 cores took 4 to 11 s of processor time for
plans that one core makes in 0.4 s. `numpy.einsum` never calls BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALONE = 1 << 18  # multiplications in a product of matrices for which OpenBLAS wakes no threads


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """`a @ b`, of counts: in parts, whose sums are exact in any order."""
    step = max(ALONE // (a.shape[-2] * b.shape[-1]), 1)
    found = np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
    for begin in range(0, a.shape[-1], step):
        found += a[..., begin : begin + step] @ b[..., begin : begin + step, :]
    return found

"""The mask of a variant as a dense array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..evaluate import Environment, evaluate
from ..ir import Expr, Variant
from ..problem.arrays import at_positions
from ..problem.masks import bind_mask
from ..statements import keep_condition

# Rows are evaluated in pieces of about so many pairs, which bounds the 64-bit intermediates.
_PAIRS = 2**22


def mask(
    variant: Variant,
    q_len: int,
    kv_len: int,
    *,
    batch: int | None = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    **inputs: Any,
) -> NDArray[np.bool_]:
    """Which pairs are kept: bool [batch, heads, q_len, kv_len]; batch and heads are 1 where the mask is the same.

    Sizes that the inputs' axes tell need not be given. Inputs that no keep line reads may be left out.
    AttnccError A6xx for an input that doesn't suit; A620 for a size that is needed and unknown.
    """
    sizes = {"batch": batch, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    bound = bind_mask(variant, q_len, kv_len, inputs, sizes)
    kept = np.ones((bound.batch, bound.heads, q_len, kv_len), np.bool_)
    condition = keep_condition(variant)
    if condition is not None:
        for plane, environment in zip(kept, bound.environments(), strict=True):
            _fill(plane, condition, environment)
    return kept


def _fill(plane: NDArray[np.bool_], condition: Expr, environment: Environment) -> None:
    heads, q_len, kv_len = plane.shape
    step = max(_PAIRS // max(heads * kv_len, 1), 1)
    kv_idx = np.arange(kv_len)
    for start in range(0, q_len, step):
        rows = np.arange(start, min(start + step, q_len))
        plane[:, rows[0] : rows[-1] + 1] = evaluate(condition, at_positions(environment, rows, kv_idx))

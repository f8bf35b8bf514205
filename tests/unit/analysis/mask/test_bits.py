"""Bit operations over tiles whose sides are aligned powers of two are bounded exactly."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.evaluate import Environment, evaluate

from ..tile_cases import box_of, environment, int_of, variant_of

# Every second bit of a position, gathered: x of a Z-order curve.
MORTON = (
    "let a = kv_idx & 0x5555",
    "let b2 = (a | a >> 1) & 0x3333",
    "let c = (b2 | b2 >> 2) & 0x0f0f",
    "let d = (c | c >> 4) & 0x00ff",
)


@pytest.mark.parametrize(
    "text",
    [
        "d",
        "kv_idx & 0x5a5a",
        "kv_idx | 37",
        "kv_idx ^ 85",
        "~(kv_idx & 12)",
        "(kv_idx ^ 3) >> 1",
        "(kv_idx & 21) << 2",
        "(kv_idx ^ 6) % 16",
    ],
)
def test_aligned_tiles_are_exact(text: str) -> None:
    variant = variant_of(*MORTON, f"keep if {text} == -99999 + q_len")
    box, canonical = box_of(variant, 64, 64)
    interval = box.interval(canonical.of(int_of(variant)))
    for size in (1, 2, 8, 64):
        for first in range(0, 1024, size):
            seen = environment(1, 1024, kv_first=first, kv_last=first + size - 1, q_first=0, q_last=0)
            values = evaluate(
                int_of(variant),
                Environment({**seen.symbols, "kv_idx": np.arange(first, first + size)}, {}, variant.lets),
            )
            assert (evaluate(interval.low, seen), evaluate(interval.high, seen)) == (values.min(), values.max())

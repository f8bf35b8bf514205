"""Ends of ints over a tile, against all pairs of the tile."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.evaluate import Environment, evaluate
from tests.examples import slow_beyond

from ..tile_cases import box_of, environment, int_of, tables, variant_of

TABLE = np.array([3, -8, 5, 0, 12, 7, -2, 9, 1, 4, -6, 2], np.int32)
INPUTS = {"w": np.asarray(11, np.int32), "table": TABLE}


def intervals(text: str, block: int = 8) -> list[tuple[int, int, int, int]]:
    """(low, high, least, greatest) over many tiles, the latter two by brute force."""
    variant = variant_of("input w: i32", "input table: i32[_]", f"keep if ({text}) == 99999 * w")
    box, canonical = box_of(variant, block, block)
    expr = int_of(variant)
    interval = box.interval(canonical.of(expr))
    arrays = {**INPUTS, **tables(box.tables, INPUTS)}
    found = []
    random = np.random.default_rng(3)
    for _ in range(150):
        q_len, kv_len = random.integers(1, 90, 2)
        q_first, kv_first = random.integers(0, q_len), random.integers(0, kv_len)
        q_last, kv_last = (
            min(q_first + random.integers(0, block), q_len - 1),
            min(kv_first + random.integers(0, block), kv_len - 1),
        )
        seen = environment(q_len, kv_len, arrays, q_first=q_first, q_last=q_last, kv_first=kv_first, kv_last=kv_last)
        q_idx, kv_idx = np.arange(q_first, q_last + 1)[:, None], np.arange(kv_first, kv_last + 1)
        pairs = seen.with_symbols(q_idx=q_idx, kv_idx=kv_idx, q_pos=q_idx + kv_len - q_len)
        values = evaluate(expr, Environment(pairs.symbols, pairs.inputs, variant.lets))
        low, high = int(evaluate(interval.low, seen)), int(evaluate(interval.high, seen))
        assert high - low <= interval.width
        found.append((low, high, int(values.min()), int(values.max())))
    return found


EXACT = [
    "q_pos - kv_idx", "3 * q_idx - 2 * kv_idx + 1", "kv_idx // 5", "(q_pos - kv_idx) // 7", "kv_idx // w",
    "kv_idx // (4 - w)", "kv_idx // (w - 11)", "min(q_idx, kv_idx)", "max(q_idx, 2 * kv_idx)", "abs(q_pos - kv_idx)",
    "clamp(q_pos, 3, 20)", "kv_idx * w", "kv_idx * (5 - w)", "q_idx * kv_idx", "kv_idx % 5", "kv_idx % w",
    "kv_idx % (4 - w)", "kv_idx % (w - 11)", "(q_idx if h < 1 else kv_idx)", "kv_idx >> w", "table[kv_idx]",
    "table[q_pos]", "kv_idx // 3 - q_idx % 4",
]  # fmt: skip

SOUND = [
    "kv_idx % 5 + kv_idx % 3", "q_idx // kv_idx", "q_idx % kv_idx", "kv_idx << q_idx", "kv_idx // 3 - kv_idx",
    "(q_idx if q_idx < kv_idx else kv_idx)", "abs(q_pos - kv_idx) % 6", "table[table[kv_idx]]", "q_pos * kv_idx",
    "table[kv_idx * 5]", "kv_idx & 6", "q_idx | kv_idx", "q_pos ^ kv_idx", "(q_pos - kv_idx) & 12", "q_pos | 3",
]  # fmt: skip


@pytest.mark.parametrize("text", EXACT)
def test_exact(text: str) -> None:
    """One occurrence of each position: no value between the ends is lost, none outside let in."""
    for low, high, least, greatest in intervals(text):
        assert (low, high) == (least, greatest)


@pytest.mark.parametrize("block", slow_beyond(1, [16, 1, 3]))
@pytest.mark.parametrize("text", [*EXACT, *SOUND])
def test_sound(text: str, block: int) -> None:
    for low, high, least, greatest in intervals(text, block):
        assert low <= least and greatest <= high


def test_terms_that_move_together() -> None:
    """x // 3 - x falls by two thirds of what x grows; each end alone would let in twice the block."""
    assert max(high - low - (greatest - least) for low, high, least, greatest in intervals("kv_idx // 3 - kv_idx")) <= 2

"""Tiles of which all pairs read one entry: never said where two entries are read, and said of the clamped ends."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.mask.same_entry import same_entry
from attncc.analysis.score.gradient import gradient
from attncc.evaluate import evaluate

from ..tile_cases import environment, tiles, variant_of

Q_LEN, KV_LEN, BLOCK_Q, BLOCK_KV = 150, 210, 16, 32


@pytest.mark.parametrize(
    ("index", "some"),
    [
        ("clamp(kv_idx - q_pos, -20, 20) + 20", True),
        ("(kv_idx - q_pos) // 64 + 9", True),
        ("kv_idx // 32 + q_idx // 16", True),
        ("kv_idx + q_idx", False),
    ],
)
def test_against_all_pairs(index: str, some: bool) -> None:
    variant = variant_of("input table: f32[99] learnable", f"score = score + table[{index}]")
    (read,) = gradient(variant).inputs
    rule = same_entry(variant, BLOCK_Q, BLOCK_KV, read.indices)
    seen = environment(Q_LEN, KV_LEN, {"table": np.zeros(99, np.float32)})
    q_idx, kv_idx = np.arange(Q_LEN)[:, None], np.arange(KV_LEN)[None]
    pairs = seen.with_symbols(q_idx=q_idx, kv_idx=kv_idx, q_pos=q_idx + KV_LEN - Q_LEN)
    entries = np.broadcast_to(evaluate(read.indices[0], pairs), (Q_LEN, KV_LEN))
    found = 0
    for rows, keys, ends in tiles(Q_LEN, KV_LEN, BLOCK_Q, BLOCK_KV):
        if rule is not None and evaluate(rule, seen.with_symbols(**ends)):
            assert np.ptp(entries[rows, keys]) == 0
            found += 1
    assert bool(found) == some


def test_what_inputs_say_is_not_known() -> None:
    variant = variant_of(
        "input bucket: i32[kv]", "input table: f32[9] learnable", "score = score + table[bucket[kv_idx]] * q_idx"
    )
    (read,) = gradient(variant).inputs
    assert same_entry(variant, 16, 16, read.indices) is None

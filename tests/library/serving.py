"""Masks over pools of keys: selected keys beside a local window."""

from __future__ import annotations

import numpy as np

from tests.library.cases import Drawn, Family, Random, distance, int32
from tests.library.documents import packed

case = Family()


@case("selected_attention", {"width": 2, "count": 3}, {"width": 5, "count": 1}, {"width": 40, "count": 4})
def selected_attention(random: Random, q_len: int, kv_len: int, *, width: int, count: int) -> Drawn:
    pool_len = int(random.integers(0, kv_len + 1))
    selected = random.integers(-1, max(pool_len, 1), (2, q_len, count))
    doc, same = packed(random, q_len, kv_len)
    kept = same & np.isin(distance(q_len, kv_len), range(width))
    kept[..., :pool_len] = False
    for b, row, slot in np.ndindex(2, q_len, count):
        if 0 <= selected[b, row, slot] < pool_len:
            kept[b, 0, row, selected[b, row, slot]] = True
    return {"pool_len": int32(pool_len), "selected": int32(selected), "doc": doc}, kept

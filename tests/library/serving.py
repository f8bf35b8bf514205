"""Masks over pools of keys: pages, and selected keys beside a local window."""

from __future__ import annotations

import numpy as np

from tests.library.cases import Drawn, Family, Random, distance, int32
from tests.library.documents import packed

case = Family()


@case("paged", {"page": 1}, {"page": 4}, {"page": 64})
def paged(random: Random, q_len: int, kv_len: int, *, page: int) -> Drawn:
    """Sequences whose pages lie anywhere in the pool, the last one in part; some pages belong to nobody."""
    pages = -(-kv_len // page)
    owner = random.integers(-1, 2, pages)
    logical = np.full((2, pages), -1)
    lengths = np.zeros(2, int)
    kept = np.zeros((2, 1, q_len, kv_len), bool)
    for b in range(2):
        own = random.permutation(np.flatnonzero(owner == b))
        lengths[b] = max(len(own) * page - int(random.integers(0, page)), 0)
        for number, place in enumerate(own):
            logical[b, place] = number
            for slot in range(page):
                if place * page + slot < kv_len:
                    first_row = number * page + slot - (lengths[b] - q_len)  # the query at that very token
                    kept[b, 0, max(first_row, 0) :, place * page + slot] = True
    return {"logical_page": int32(logical), "length": int32(lengths)}, kept


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

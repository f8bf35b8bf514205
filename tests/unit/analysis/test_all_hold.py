"""Conditions that hold for all pairs of some rows and a range of keys: never said wrongly, said of one document."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.algebra.algebra import FALSE
from attncc.analysis.mask.tiles import all_hold
from attncc.evaluate import evaluate

from .tile_cases import environment, mask_of, variant_of

BLOCK_Q = 16
DOC = "input doc: i32[batch, pos] nondecreasing"


@pytest.mark.parametrize(("q_len", "kv_len"), [(96, 96), (40, 90), (90, 60)])
@pytest.mark.parametrize("hinted", [True, False])
def test_against_all_pairs(q_len: int, kv_len: int, hinted: bool) -> None:
    variant = variant_of(DOC, "keep if doc[b, q_pos] == doc[b, kv_idx]")
    rule = all_hold(variant, BLOCK_Q, [keep.condition for keep in variant.keeps])
    doc = (
        np.repeat(np.int32([0, 2, 3, 7]), [25, 30, 7, kv_len - 62])[None] if kv_len > 62 else np.zeros((1, kv_len), int)
    )
    seen = environment(q_len, kv_len, {"doc": doc.astype(np.int32), "doc__sorted": np.array([hinted])})
    mask, found = mask_of(variant, seen), 0
    for first in range(0, q_len, BLOCK_Q):
        rows = slice(first, min(first + BLOCK_Q, q_len))
        for begin in range(0, kv_len, 5):
            for end in range(begin, kv_len, 7):
                ends = {"q_first": rows.start, "q_last": rows.stop - 1, "kv_first": begin, "kv_last": end}
                if evaluate(rule, seen.with_symbols(**ends)):
                    assert mask[rows, begin : end + 1].all()
                    found += 1
    assert bool(found) == hinted


def test_nothing_is_said_without_a_hint() -> None:
    variant = variant_of(DOC.replace("nondecreasing", ""), "keep if doc[b, q_pos] == doc[b, kv_idx]")
    assert all_hold(variant, BLOCK_Q, [keep.condition for keep in variant.keeps]) is FALSE

"""Which tests of pairs ask of a row for ids alone."""

from __future__ import annotations

import pytest

from attncc.analysis.mask.key_sets import pairwise_masks
from attncc.analysis.mask.shared_tests import ask_for_ids
from tests.printed import variant

INPUTS = "input doc: i32[batch, pos]\ninput time: f32[batch, pos]\ninput flag: bool[pos]\n"


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("doc[b, q_pos] == doc[b, kv_idx]", True),
        ("doc[b, q_pos] == doc[b, kv_idx] or flag[q_pos] and kv_idx < 9", True),
        ("q_pos // 64 != doc[b, kv_idx]", True),
        ("doc[b, q_pos] >= doc[b, kv_idx]", False),  # by order: each row may have its own
        ("time[b, q_pos] == time[b, kv_idx]", False),
        ("q_pos == doc[b, kv_idx]", False),
        ("doc[b, q_pos] == doc[b, kv_idx] or q_pos < 9", False),
        ("flag[kv_idx]", False),  # asks nothing of a row
    ],
)
def test_ids(condition: str, ids: bool) -> None:
    made = variant(f"{INPUTS}keep if {condition}")
    tests = [mask.each for mask in pairwise_masks(made) if mask.each is not None]
    assert ask_for_ids(made, tests) == ids

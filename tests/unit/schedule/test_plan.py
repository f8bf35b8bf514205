from __future__ import annotations

from dataclasses import replace

import pytest

from attncc.ir import Variant
from attncc.problem import Problem
from tests import plans


@pytest.mark.parametrize(
    ("variant", "packs"),
    [
        (plans.FULL, True), (plans.CAUSAL, True), (plans.ALIBI, True), (plans.SINK, True),  # the head scores, no more
        (plans.HEADWISE, False),  # its heads keep other tiles
        (plans.DROPOUT, False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)  # fmt: skip
def test_which_tiles_of_decode_hold_a_group(variant: Variant, packs: bool) -> None:
    decode = plans.plan(variant, "bf16", pass_name="decode", block_q=64, warps=4, split_kv=None)
    assert (decode.packs_heads, replace(decode, pass_name="forward").packs_heads) == (packs, False)
    problem = Problem(2, 12, 3, 20, 500, 16, 16)
    assert (decode.heads(problem), decode.q_blocks(problem)) == ((6, 2) if packs else (24, 1))
    for q_len in (16, 17):
        assert decode.serves(replace(problem, q_len=q_len)) == (q_len == 16 or not packs)
    packed = replace(problem, packed=True, q_len=70, batch=5)
    assert (decode.heads(packed), decode.q_blocks(packed)) == ((3, 70 * 4 // 64 + 5) if packs else (12, 70 // 64 + 5))

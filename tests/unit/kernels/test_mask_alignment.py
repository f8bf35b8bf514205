"""Tiles that begin and end with the blocks of a mask."""

from __future__ import annotations

import pytest

from attncc import api
from attncc.ir import Variant
from attncc.kernels.candidates import make_plan
from attncc.kernels.mask_alignment import key_blocks

MAP = "input wanted: bool[_, _]\nlet block = kv_idx // {0}\nkeep if wanted[q_idx // {0}, block]"


def variant(lines: str) -> Variant:
    return api.parse(f"attn 1\nvariant v {{\n{lines}\n}}\n").variant


def test_blocks_are_what_keep_lines_divide_keys_by() -> None:
    """Through lets; not score lines, rows, distances, or blocks that are finer than any tile."""
    assert key_blocks(variant(MAP.format(64))) == {64}
    assert key_blocks(variant("let key = kv_idx\nkeep if key // 48 == q_idx // 32 or kv_idx // 100 == 1")) == {48, 100}
    assert key_blocks(variant("keep if kv_idx // 8 == q_idx // 8 and (q_idx - kv_idx) // 64 == 0")) == set()
    assert key_blocks(variant("let block = kv_idx // 64\nscore = score + block")) == set()


@pytest.mark.parametrize(("block", "block_kv"), [(64, 64), (128, 64), (32, 96), (100, 96)])
def test_the_first_tile_that_suits_the_mask(block: int, block_kv: int) -> None:
    """96 keys to a tile come before 64; where no tiles suit, the first stay."""
    plan = make_plan(variant(MAP.format(block)), dtype="bf16", head_dim=128, value_head_dim=128, target="sm_90a")
    assert (plan.family, plan.block_kv) == ("hopper", block_kv)


def test_masks_that_loop_bounds_decide_keep_the_fastest_tiles() -> None:
    chunks = variant("keep if q_idx // 80 >= kv_idx // 80")
    plan = make_plan(chunks, dtype="bf16", head_dim=128, value_head_dim=128, target="sm_90a")
    assert plan.rules.bounds_suffice and (plan.block_q, plan.block_kv) == (192, 64)

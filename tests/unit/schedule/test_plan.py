from __future__ import annotations

from dataclasses import replace

import pytest

from attncc import api
from attncc.ir import Variant
from attncc.kernels.candidates import make_plan
from attncc.kernels.registry import facts_of
from attncc.problem import Problem
from attncc.schedule.schedule import Schedule
from tests import plans

SAME = "keep if doc[b, q_pos] == doc[b, kv_idx]"
HINTED = f"input doc: i32[batch, pos] nondecreasing\n{SAME}"
TILES = {"block_q": 128, "block_kv": 64, "warps": 4, "stages": 2}


@pytest.mark.parametrize(
    "variant",
    [plans.FULL, plans.CAUSAL, plans.ALIBI, plans.SINK, plans.HEADWISE, plans.DROPOUT],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_tiles_of_decode_hold_a_group(variant: Variant) -> None:
    """Also where heads keep other tiles, and where dropout has bits for each head."""
    decode = plans.plan(variant, "bf16", pass_name="decode", block_q=64, warps=4, split_kv=None)
    assert (facts_of(decode).packs_heads, facts_of(replace(decode, pass_name="forward")).packs_heads) == (True, False)
    problem = Problem(2, 12, 3, 20, 500, 16, 16)
    assert (facts_of(decode).heads(problem), facts_of(decode).q_blocks(problem)) == (6, 2)
    for q_len in (16, 17):
        assert facts_of(decode).serves(replace(problem, q_len=q_len)) == (q_len == 16)
    packed = replace(problem, packed=True, q_len=70, batch=5)
    grid = facts_of(decode).heads(packed), facts_of(decode).q_blocks(packed)
    assert grid == (3, 70 * 4 // 64 + 5)


@pytest.mark.parametrize(
    ("lines", "aligned"),
    [
        ("keep if causal()", False),
        ("keep if window(300)", False),
        ("input doc: i32[batch, pos] nondecreasing\nkeep if causal()\nkeep if same_document(doc)", False),
        ("keep if causal()\ndropout 0.1", True),  # whose bits stand in blocks of keys
        ("input doc: i32[batch, pos]\nkeep if same_document(doc)", True),  # tested tile by tile
        ("keep if causal()\nkeep if kv_idx % 2 == 0", True),
        ("keep if causal()\nkeep if kv_idx & 1 == 0", True),
    ],
)
def test_where_tiles_of_keys_begin(lines: str, aligned: bool) -> None:
    variant = api.parse("attn 1\nimport masks\nvariant v {\n" + lines + "\n}\n").variant
    sizes = {"dtype": "bf16", "head_dim": 64, "value_head_dim": 64, "target": "sm_90"}
    assert facts_of(make_plan(variant, **sizes)).aligns_tiles is aligned
    assert facts_of(make_plan(variant, pass_name="decode", **sizes)).aligns_tiles  # splits share them


@pytest.mark.parametrize(
    ("dtype", "head_dims", "lines", "pairs"),
    [
        ("bf16", (256, 256), "", True),
        ("fp16", (192, 192), "", True),
        ("bf16", (128, 128), "", True),
        ("bf16", (192, 128), "", False),  # two tiles of 128 keys
        ("bf16", (64, 64), "", False),  # four warpgroups
        ("bf16", (256, 256), "keep if q_pos >= kv_idx", False),  # other keys for each block
        ("bf16", (128, 128), "input bias: f32[head]\nscore = 2 * score + bias[h]", True),  # once a row
        ("bf16", (128, 128), "input slope: f32[head]\nscore = score - slope[h] * (q_pos - kv_idx)", False),
        ("bf16", (256, 256), "score = 30 * tanh(score / 30)", False),  # not timed
        ("bf16", (128, 128), "dropout 0.1", False),
        ("e4m3", (256, 256), "", False),  # two stages of 128 keys
        ("e4m3", (128, 128), "", True),
        ("e4m3", (128, 128), "keep if q_pos >= kv_idx", False),
    ],
)
def test_whose_blocks_load_keys_for_each_other(dtype: str, head_dims: tuple[int, int], lines: str, pairs: bool) -> None:
    variant = api.parse(f"attn 1\nvariant v {{\n{lines}\n}}\n").variant
    sizes = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
    assert facts_of(make_plan(variant, dtype=dtype, target="sm_90a", **sizes)).uses_clusters is pairs


@pytest.mark.parametrize(
    ("dtype", "head_dim", "lines", "expected"),
    [
        ("e4m3", 128, "", ("stale", "midway", 1)),
        ("e4m3", 128, "keep if q_pos >= kv_idx", ("stale", "late", 3)),
        ("e4m3", 256, "", ("stale", "early", 1)),
        ("e4m3", 256, "keep if q_pos >= kv_idx", ("stale", "late", 1)),
        ("e4m3", 256, "score = 30 * tanh(score / 30)", ("bounded", "late", 1)),
        ("e4m3", 128, "score = 30 * tanh(score / 30)", ("stale", "late", 1)),
        ("bf16", 256, "keep if q_pos >= kv_idx", ("stale", "late", 2)),
    ],
)
def test_when_p_is_rounded(dtype: str, head_dim: int, lines: str, expected: tuple[str, str, int]) -> None:
    """Early where there are registers for it; then one note serves all warpgroups. Midway where it does so anyway."""
    variant = api.parse(f"attn 1\nvariant v {{\n{lines}\n}}\n").variant
    plan = make_plan(variant, dtype=dtype, head_dim=head_dim, value_head_dim=head_dim, target="sm_90a")
    when = "early" if facts_of(plan).rounds_early else "midway" if facts_of(plan).rounds_midway else "late"
    assert (facts_of(plan).maximum, when, facts_of(plan).row_groups) == expected


@pytest.mark.parametrize(
    ("lines", "settings", "expected"),
    [
        (HINTED, {}, True),
        (HINTED.replace("nondecreasing", ""), {}, False),
        ("keep if q_pos >= kv_idx", {}, False),
        (HINTED, {"stages": 1}, False),  # warps have no registers for what they know of their own
        (HINTED, {"block_q": 64, "block_kv": 32}, False),  # nor is anything spilled
        (HINTED, {"skip": "never"}, False),
    ],
)
def test_which_kernels_search_for_keys(lines: str, settings: dict[str, str | int], expected: bool) -> None:
    variant = api.parse(f"attn 1\nvariant v {{\n{lines}\n}}\n").variant
    chosen = tuple((name, (value,)) for name, value in {"family": "portable", **TILES, **settings}.items())
    schedule = Schedule("s", "v", "forward", "sm_90", chosen)
    plan = make_plan(variant, dtype="bf16", target="sm_90", schedule=schedule, head_dim=128, value_head_dim=128)
    assert facts_of(plan).searches == expected

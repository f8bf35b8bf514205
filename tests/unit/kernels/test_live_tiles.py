from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc import api
from attncc.analysis.rules import TileKind
from attncc.executor.run import plan_grid
from attncc.kernels.candidates import make_plan
from attncc.kernels.live_tiles import most_tiles, reach
from attncc.problem import Problem
from attncc.problem.arrays import environment
from attncc.problem.problem import Sequence
from attncc.schedule.plan import KernelPlan


def decode(lines: str) -> KernelPlan:
    variant = api.parse("attn 1\nimport masks\nvariant v {\n" + lines + "\n}\n").variant
    return make_plan(variant, dtype="bf16", head_dim=64, value_head_dim=64, target="sm_80", pass_name="decode")


def problem(q_len: int, kv_len: int, **changes: Any) -> Problem:
    return Problem(**{
        "batch": 2, "num_heads": 8, "num_kv_heads": 2, "q_len": q_len, "kv_len": kv_len, "head_dim": 64,
        "value_head_dim": 64, **changes,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "q_len", "tiles"),
    [
        ("", 1, 157),  # 10,000 keys, 64 to a tile
        ("keep if causal()", 1, 157),
        ("keep if window(1024)", 1, 17),  # begins within a tile
        ("keep if window(1024)", 5, 17),
        ("keep if kv_idx < 100", 1, 2),
        ("keep if kv_idx < 0", 1, 0),
        ("keep if kv_idx < 1000 * h", 1, 110),  # the last head has most
        ("input doc: i32[batch, pos] nondecreasing\nkeep if same_document(doc)", 1, 157),  # known on the device alone
        ("input reach: i32\nkeep if kv_idx < reach", 1, 157),
        ("keep if scale > 0.1 or kv_idx < 100", 1, 157),  # each call's own
    ],
)
def test_known_cases(lines: str, q_len: int, tiles: int) -> None:
    assert most_tiles(decode(lines), problem(q_len, 10_000)) == tiles


def test_no_heads_have_no_tiles() -> None:
    assert most_tiles(decode("keep if kv_idx < 1000 * h"), problem(1, 10_000, num_heads=0)) == 0


def test_packed_batches_count_as_their_mean() -> None:
    packed = problem(7, 70_000, batch=7, packed=True)
    assert most_tiles(decode("keep if causal()"), packed) == 157
    assert most_tiles(decode("keep if window(64)"), packed) == 2


@pytest.mark.parametrize("q_len", [1, 3, 16, 17, 40])
@pytest.mark.parametrize("lines", ["keep if causal()", "keep if window(300)", "keep if q_idx >= kv_idx"])
def test_no_block_has_more_live_tiles(lines: str, q_len: int) -> None:
    plan, sizes = decode(lines), problem(q_len, 2000, num_heads=2)
    bare = environment(plan.variant, sizes, Sequence.whole(0, q_len, 2000), {}, np.float64)
    live = plan_grid(plan, bare).kinds != TileKind.EMPTY
    assert live.sum(axis=-1).max() <= most_tiles(plan, sizes)


@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        ("", 10_000),
        ("keep if causal()", 10_000),
        ("keep if window(1024)", 1024 + 128 - 1),  # and what its rows are apart, in tiles of 48
        ("input doc: i32[batch, pos] nondecreasing\nkeep if causal()\nkeep if same_document(doc)", 2_500),
        ("input first: i32[batch]\nkeep if kv_idx < first[b]", 10_000),  # only the end is unknown
    ],
)
def test_reach(lines: str, keys: int) -> None:
    variant = api.parse("attn 1\nimport masks\nvariant v {\n" + lines + "\n}\n").variant
    plan = make_plan(variant, dtype="bf16", head_dim=128, value_head_dim=128, target="sm_90")
    assert reach(plan, problem(10_000, 10_000)) in range(keys, keys + 2 * plan.block_kv)

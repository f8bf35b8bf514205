"""Which kernels search for the keys of their blocks."""

from __future__ import annotations

import pytest

from attncc import api
from attncc.schedule.schedule import Schedule, make_plan
from attncc.schedule.searching import searches

SAME = "keep if doc[b, q_pos] == doc[b, kv_idx]"
CLAIMED = f"input doc: i32[batch, pos] nondecreasing\n{SAME}"
TILES = {"block_q": 128, "block_kv": 64, "warps": 4, "stages": 2}


@pytest.mark.parametrize(
    ("lines", "settings", "expected"),
    [
        (CLAIMED, {}, True),
        (CLAIMED.replace("nondecreasing", ""), {}, False),
        ("keep if q_pos >= kv_idx", {}, False),
        (CLAIMED, {"stages": 1}, False),  # warps have no registers for what they know of their own
        (CLAIMED, {"block_q": 64, "block_kv": 32}, False),  # nor is anything parked
        (CLAIMED, {"skip": "never"}, False),
    ],
)
def test_searches(lines: str, settings: dict[str, str | int], expected: bool) -> None:
    variant = api.parse(f"attn 1\nvariant v {{\n{lines}\n}}\n").variant
    chosen = tuple((name, (value,)) for name, value in {"family": "portable", **TILES, **settings}.items())
    schedule = Schedule("s", "v", "forward", "sm_90", chosen)
    plan = make_plan(variant, dtype="bf16", target="sm_90", schedule=schedule, head_dim=128, value_head_dim=128)
    assert searches(plan) == expected

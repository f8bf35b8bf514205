"""When V of 8 bits is transposed ahead, and how many tiles there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attncc import api
from attncc.analysis.grid_2d import Grid2D
from attncc.kernels.candidates import make_plan
from attncc.kernels.helpers.transposition import TransposedValues, pays
from attncc.problem import Problem
from attncc.schedule.plan import KernelPlan


def planned(lines: str = "", head_dim: int = 128) -> KernelPlan:
    variant = api.parse(f"attn 1\nvariant v {{\n{lines}\n}}\n").variant
    return make_plan(variant, dtype="e4m3", head_dim=head_dim, value_head_dim=head_dim, target="sm_90a")


def square(length: int, batch: int = 1, kv_heads: int = 16) -> Problem:
    return Problem(batch, 16, kv_heads, length, length, 128, 128)


@pytest.mark.parametrize(
    ("lines", "problem", "expected"),
    [
        ("", square(16384), True),
        ("", square(4096, 4), False),  # three warps have time for it beside blocks of 192 rows
        ("", square(4096, 4, kv_heads=2), True),  # each tile of V serves eight heads
        ("", square(2048), False),
        ("keep if q_pos >= kv_idx", square(16384), True),
        ("keep if q_pos >= kv_idx and q_pos - kv_idx < 512", square(16384), False),
        ("keep if (q_idx // 64 + kv_idx // 64) % 3 == 0", square(16384), False),  # tiles are tested: who knows how many
        ("", Problem(2, 16, 16, 32768, 32768, 128, 128, packed=True), True),
        ("", Problem(64, 16, 16, 32768, 32768, 128, 128, packed=True), False),
    ],
)
def test_it_pays_where_a_tile_serves_many_rows(lines: str, problem: Problem, expected: bool) -> None:
    assert pays(planned(lines), problem) == expected


def test_it_pays_sooner_for_fewer_warps_and_rows() -> None:
    """Two warps transpose V for blocks of 128 rows; a mask may leave out half of their keys."""
    plan, problem = planned(head_dim=256), Problem(16, 8, 8, 1024, 1024, 256, 256)
    assert pays(plan, problem) and plan.block_q == 128
    assert not pays(replace(plan, block_q=192, warps=12), problem)
    assert not pays(planned("keep if q_pos >= kv_idx", head_dim=256), problem)


def test_tiles() -> None:
    plan = planned()
    assert plan.block_kv == 96
    dense = TransposedValues.of(plan, Problem(3, 8, 2, 100, 1000, 128, 128))
    assert (dense.heads, dense.tiles, dense.bytes) == (6, 11, 6 * 11 * 96 * 128)
    packed = TransposedValues.of(plan, Problem(3, 8, 2, 100, 1000, 128, 128, packed=True))
    assert (packed.heads, packed.tiles) == (2, 10 + 3)
    grid_2d = replace(plan, pass_name="patches", block_kv=64, grid_2d=Grid2D(24, 8, 8))
    assert TransposedValues.of(grid_2d, Problem(1, 1, 1, 24 * 20, 24 * 20, 128, 128)).tiles == 3 * 3  # of 8 x 8

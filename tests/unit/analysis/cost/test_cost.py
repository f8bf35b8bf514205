from __future__ import annotations

import math

import numpy as np
import pytest

from attncc import reference
from attncc.analysis.cost.cost import (
    Traffic,
    Workload,
    executed_flops,
    kept_pairs,
    kv_outer_traffic,
    paper_blocks,
    q_outer_traffic,
    sampled_pairs,
    standard_traffic,
    useful_flops,
)
from attncc.analysis.mask.grid import tally, tile_grid, uniform_grid
from attncc.analysis.rules import TileKind
from attncc.problem import Problem, Signature, bind_arrays
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.plans import CAUSAL, CAUSAL_RULES, FULL, HEADWISE, HEADWISE_RULES, WINDOW, WINDOW_RULES, qkv


def one_head(length: int, dim: int) -> Workload:
    return Workload(Problem(1, 1, 1, length, length, dim, dim))


def kv_outer_bytes(length: int, dim: int, onchip: int) -> int:
    grid = uniform_grid(TileKind.FULL, length, length, *paper_blocks(onchip, dim))
    return kv_outer_traffic(one_head(length, dim), [tally([grid], 1)]).total


def standard_bytes(length: int, dim: int) -> int:
    return standard_traffic(one_head(length, dim)).total


def test_standard_attention_is_nd_plus_n_squared() -> None:
    """Theorem 2: standard attention moves Theta(Nd + N^2); the constants are 4 tensors and 4 matrices of 2 bytes."""
    for length in (64, 512, 4096):
        for dim in (16, 64, 256):
            assert standard_bytes(length, dim) == 2 * (4 * length * dim + 4 * length**2)


@pytest.mark.parametrize("length", [4096, 8192, 16384])
@pytest.mark.parametrize("dim", [32, 64, 128])
@pytest.mark.parametrize("onchip", [2**15, 2**16, 2**17])
def test_kv_outer_is_n_squared_d_squared_over_m(length, dim, onchip) -> None:
    """Theorem 2: FlashAttention moves Theta(N^2 d^2 / M), M the elements that fit on chip."""
    # For each of the N^2 / B_c = 4 N^2 d / M rows visited: q (2 bytes an element), O in and out (4 + 4), l and m (16).
    quadratic = 4 * length**2 * dim // onchip * (2 * dim + 8 * dim + 16)
    # Once: k and v, the state at the beginning and at the end, out and lse.
    linear = length * (4 * dim + 2 * (4 * dim + 8) + 2 * dim + 4)
    assert kv_outer_bytes(length, dim, onchip) == quadratic + linear


def test_growth_with_each_of_n_d_and_m() -> None:
    def growth(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
        return math.log2(kv_outer_bytes(*other) / kv_outer_bytes(*one))

    assert growth((8192, 128, 2**14), (16384, 128, 2**14)) == pytest.approx(2, abs=0.01)
    assert growth((16384, 128, 2**14), (16384, 256, 2**14)) == pytest.approx(2, abs=0.03)
    assert growth((16384, 128, 2**14), (16384, 128, 2**15)) == pytest.approx(-1, abs=0.03)
    assert math.log2(standard_bytes(16384, 64) / standard_bytes(8192, 64)) == pytest.approx(2, abs=0.02)


def test_q_outer_reads_keys_once_for_each_q_tile() -> None:
    work = Workload(Problem(2, 4, 2, 100, 50, 64, 32))
    grids = [tally([uniform_grid(TileKind.FULL, 100, 50, 32, 16)], 4)] * 2
    assert q_outer_traffic(work, grids) == Traffic(
        {"q": 8 * 100 * 128, "k": 8 * 4 * 50 * 128, "v": 8 * 4 * 50 * 64}, {"out": 8 * 100 * 64, "lse": 8 * 100 * 4}
    )
    split = q_outer_traffic(work, grids, splits=3)
    assert split.reads["q"] == 3 * 8 * 100 * 128
    assert split.writes["partial_out"] == split.reads["partial_out"] == 3 * 8 * 100 * 32 * 4
    assert split.reads["k"] == 8 * 4 * 50 * 128


def test_empty_tiles_move_nothing() -> None:
    work = one_head(64, 32)
    empty = tally([uniform_grid(TileKind.EMPTY, 64, 64, 16, 16)], 1)
    assert q_outer_traffic(work, [empty]).reads == {"q": 64 * 64, "k": 0, "v": 0}
    assert kv_outer_traffic(work, [empty]).reads["k"] == 0


def test_no_lse_and_no_state_without_softmax() -> None:
    work = Workload(Problem(1, 1, 1, 64, 64, 32, 32), softmax=False)
    grid = tally([uniform_grid(TileKind.FULL, 64, 64, 16, 16)], 1)
    assert set(q_outer_traffic(work, [grid], splits=2).writes) == {"out", "partial_out"}
    assert set(kv_outer_traffic(work, [grid]).writes) == {"out", "partial_out"}


def test_traffic_adds_up() -> None:
    total = Traffic({"q": 1, "k": 2}, {"out": 3}) + Traffic({"k": 5, "v": 7}, {"lse": 11})
    assert total == Traffic({"q": 1, "k": 7, "v": 7}, {"out": 3, "lse": 11})
    assert total.total == 29


@pytest.mark.parametrize(
    ("variant", "own_rules"),
    [(FULL, CAUSAL_RULES), (CAUSAL, CAUSAL_RULES), (WINDOW, WINDOW_RULES), (HEADWISE, HEADWISE_RULES)],
    ids=lambda item: getattr(item, "name", ""),
)
@pytest.mark.parametrize("lengths", [(45, 70), (70, 45), (0, 10)])
def test_kept_pairs(variant, own_rules, lengths) -> None:
    q, k, v = qkv(lengths=lengths)
    bound = bind_arrays(Signature(variant), q, k, v)
    environment = bound.environment(next(bound.problem.sequences()), np.float64)
    mask = reference.mask(variant, *lengths, num_heads=4)
    expected = np.broadcast_to(mask, (1, 4, *lengths)).sum()
    for grid in (
        tile_grid(own_rules, environment, 16, 8),
        uniform_grid(TileKind.PARTIAL, *lengths, 32, 32),
    ):
        assert kept_pairs(variant, grid, environment, 4) == expected


def test_rows_stand_for_others_where_all_would_take_long() -> None:
    """Of a mask with a period: rows at equal distances would all be alike."""
    q, k, v = qkv(lengths=(640, 70))
    text = "attn 1\nvariant v {\n keep if q_idx % 16 == 3 or kv_idx < 7\n}\n"
    variant = load(SourceFile("v.attn", text)).variants[0]
    bound = bind_arrays(Signature(variant), q, k, v)
    environment = bound.environment(next(bound.problem.sequences()), np.float64)
    grid = uniform_grid(TileKind.PARTIAL, 640, 70, 320, 32)
    exact = sampled_pairs(variant, grid, environment, 4, np.inf)
    assert exact == (4 * (40 * 70 + 600 * 7), True)
    pairs, counted = sampled_pairs(variant, grid, environment, 4, 160 * 70 * 5)
    assert not counted and pairs != exact[0] and abs(pairs / exact[0] - 1) < 0.3
    assert sampled_pairs(variant, grid, environment, 4, 0)[0] > 0  # of one row at least


def test_flops() -> None:
    work = Workload(Problem(1, 2, 1, 64, 64, 40, 64))
    assert useful_flops(work, 10) == 10 * (2 * 40 + 2 * 64)
    grid = tally([uniform_grid(TileKind.FULL, 60, 64, 32, 16)], 2)
    assert executed_flops(work, [grid]) == 2 * 2 * 4 * 32 * 16 * 2 * (48 + 64)


def test_blocks_of_the_paper() -> None:
    assert paper_blocks(48 * 1024, 64) == (64, 192)
    assert paper_blocks(1000, 128) == (2, 2)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc import executor
from attncc.analysis.cost.cost import kv_outer_traffic, q_outer_traffic
from attncc.analysis.mask.grid import TileGrid, tally
from attncc.analysis.rules import TileKind
from attncc.executor.orders import split_work
from attncc.executor.run import plan_grid, workload
from attncc.executor.work import Meter, SequenceWork
from attncc.problem import Signature, bind_arrays
from tests.plans import CAUSAL, FULL, HEADWISE, SIGMOID, WINDOW, arguments, plan, qkv

CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "full": (FULL, "fp16", {}),
    "causal": (CAUSAL, "bf16", {}),
    "causal, splits": (CAUSAL, "fp16", {"split_kv": 3}),
    "window": (WINDOW, "fp16", {"block_q": 16}),
    "window, splits": (WINDOW, "fp32", {"split_kv": 5}),
    "headwise": (HEADWISE, "fp16", {"block_kv": 32}),
    "sigmoid": (SIGMOID, "fp16", {}),
    "sigmoid, splits": (SIGMOID, "fp64", {"split_kv": 2}),
    "causal, kv_outer": (CAUSAL, "fp16", {"loop": "kv_outer"}),
    "headwise, kv_outer": (HEADWISE, "fp64", {"loop": "kv_outer"}),
    "sigmoid, kv_outer": (SIGMOID, "bf16", {"loop": "kv_outer"}),
}


@pytest.mark.parametrize(("variant", "dtype", "settings"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_counted_bytes_are_those_of_the_model(variant, dtype, settings, packed) -> None:
    """The executor counts as it walks, the model in closed form."""
    q, k, v = qkv(dtype, lengths=(113, 141), head_dims=(16, 24))
    call = arguments(variant, 2, 4, 141)
    if packed:
        q, k, v = q[0], k[0], v[0]
        call |= {
            "cu_seqlens_q": np.array([0, 20, 113], np.int32),
            "cu_seqlens_kv": np.array([0, 50, 50], np.int32),
        }
    own = plan(variant, dtype, 16, 24, **settings)
    bound = bind_arrays(Signature(variant), q, k, v, **call)
    seen = (bound.environment(sequence, np.float64) for sequence in bound.problem.sequences())
    grids = [tally([plan_grid(own, environment)], bound.problem.num_heads) for environment in seen]
    work = workload(own, bound.problem)
    expected = kv_outer_traffic(work, grids) if own.loop == "kv_outer" else q_outer_traffic(work, grids, own.split_kv)
    assert executor.run(own, q, k, v, **call).traffic == expected


def test_bytes_of_one_head_by_hand() -> None:
    q, k, v = qkv("fp16", batch=1, heads=(1, 1), lengths=(64, 64), head_dims=(16, 24))
    element, rows = 2, 64
    once = executor.run(plan(FULL, "fp16", 16, 24, block_q=32, block_kv=16), q, k, v).traffic
    assert once.reads == {"q": rows * 16 * element, "k": 2 * rows * 16 * element, "v": 2 * rows * 24 * element}
    assert once.writes == {"out": rows * 24 * element, "lse": rows * 4}
    first = executor.run(plan(FULL, "fp16", 16, 24, loop="kv_outer", block_q=32, block_kv=16), q, k, v).traffic
    state = {"partial_out": 5 * rows * 24 * 4, "row_max": 5 * rows * 4, "row_sum": 5 * rows * 4}
    assert first.reads == {"q": 4 * rows * 16 * 2, "k": rows * 16 * 2, "v": rows * 24 * 2, **state}
    assert first.writes == {**state, "out": rows * 24 * 2, "lse": rows * 4}


def sequence_work(kinds) -> SequenceWork:
    heads, q_tiles, kv_tiles = kinds.shape
    grid = TileGrid(kinds, 16 * q_tiles, 16 * kv_tiles, 16, 16)
    nothing: Any = None
    empty = np.zeros((heads, 0, 0))
    return SequenceWork(plan(FULL), nothing, nothing, grid, empty, empty, empty, nothing, 0, 256, Meter(), nothing)


@pytest.mark.parametrize("splits", [1, 2, 3, 7, 16])
def test_each_live_tile_belongs_to_one_split(splits) -> None:
    kinds = np.random.default_rng(splits).integers(0, 3, (3, 20, 17)).astype(np.uint8)
    kinds[1, 4] = TileKind.EMPTY
    parts = np.stack([part.grid.kinds for part in split_work(sequence_work(kinds), splits)])
    np.testing.assert_array_equal((parts != TileKind.EMPTY).sum(axis=0), kinds != TileKind.EMPTY)
    np.testing.assert_array_equal(parts.max(axis=0), kinds)
    live = (parts != TileKind.EMPTY).sum(axis=-1)
    assert live.max() <= -(-17 // splits)  # evenly, as far as the tiles between can tell

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from attncc import executor, reference
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.rules import TileKind
from attncc.diagnostics import AttnccError
from attncc.ir import Const, Keep, Load, Score, Type, Variant, apply, const, symbol
from tests.plans import (
    ALIBI,
    CAUSAL,
    DOCUMENTS,
    DROPOUT,
    DTYPES,
    FULL,
    HEADWISE,
    SIGMOID,
    SINK,
    VARIANTS,
    arguments,
    declared,
    load,
    plan,
    qkv,
    rules,
)

# Loop order, splits and blocks: no two alike, and none that divides the lengths.
SCHEDULES = {
    "small": {},
    "wide": {"block_q": 64, "block_kv": 128},
    "splits": {"split_kv": 3},
    "more splits than tiles": {"split_kv": 16, "block_kv": 32},
    "kv_outer": {"loop": "kv_outer", "block_q": 16, "block_kv": 48},
    "no skipping": {"skip": "never"},
    "auto splits": {"split_kv": None},
}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_every_schedule_agrees_with_the_reference(variant, schedule) -> None:
    q, k, v = qkv("fp64", head_dims=(16, 24))
    given = arguments(variant, 2, 4, 70)
    expected, expected_lse = reference.forward(variant, q, k, v, **given)
    result = executor.run(plan(variant, "fp64", 16, 24, **schedule), q, k, v, **given)
    np.testing.assert_allclose(result.out, expected, rtol=1e-9, atol=1e-12)
    assert result.out.dtype == np.float64
    if expected_lse is None:
        assert result.lse is None
    else:
        np.testing.assert_allclose(result.lse, expected_lse, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("schedule", ["small", "splits", "kv_outer"])
@pytest.mark.parametrize("variant", [CAUSAL, ALIBI, SINK, DROPOUT], ids=lambda variant: variant.name)
def test_the_accuracy_rule_holds(variant, dtype, schedule) -> None:
    q, k, v = qkv(dtype, lengths=(113, 203), heads=(4, 1))
    given = arguments(variant, 2, 4, 203)
    result = executor.run(plan(variant, dtype, **SCHEDULES[schedule]), q, k, v, **given)
    oracle, lse = reference.forward(variant, q, k, v, **given)
    figures = reference.accuracy(result.out, reference.baseline(variant, q, k, v, **given)[0], oracle, dtype)
    assert figures.holds, str(figures)
    assert result.out.dtype == DTYPES[dtype]
    assert result.lse.dtype == np.float32
    np.testing.assert_allclose(result.lse, lse, atol=3e-6)


def test_tile_rules_are_believed() -> None:
    """FULL tiles run no keep, EMPTY ones nothing at all: wrong rules give wrong results."""
    q, k, v = qkv("fp64")
    everything = executor.run(plan(CAUSAL, "fp64", rules=rules(all_kept=const(True), bounds_suffice=False)), q, k, v)
    np.testing.assert_allclose(everything.out, reference.forward(FULL, q, k, v)[0], rtol=1e-9)
    nothing = executor.run(plan(CAUSAL, "fp64", rules=rules(any_kept=const(False), bounds_suffice=False)), q, k, v)
    assert not nothing.out.any()
    unread = executor.run(plan(CAUSAL, "fp64", rules=rules(any_kept=const(False), bounds_suffice=True)), q, k, v)
    assert unread.out.any()  # the bounds suffice, so no tile is asked


def test_tiles_by_kind() -> None:
    q, k, v = qkv("fp32", lengths=(64, 64), heads=(4, 2))
    result = executor.run(plan(CAUSAL, block_q=16, block_kv=16), q, k, v)
    assert result.tiles == {TileKind.EMPTY: 8 * 6, TileKind.PARTIAL: 8 * 4, TileKind.FULL: 8 * 6}
    result = executor.run(plan(CAUSAL, block_q=16, block_kv=16, skip="never"), q, k, v)
    assert result.tiles == {TileKind.EMPTY: 0, TileKind.PARTIAL: 8 * 16}


def test_rules_that_depend_on_the_head() -> None:
    q, k, v = qkv("fp64", lengths=(96, 96))
    result = executor.run(plan(HEADWISE, "fp64", block_q=32, block_kv=16), q, k, v)
    # Keys beyond the causal ones that a head sees make tiles live: 12, 16, 17 and 18 of 18.
    assert result.tiles[TileKind.EMPTY] == 2 * (6 + 2 + 1 + 0)


def test_no_query_heads() -> None:
    q, k, v = qkv("fp32", heads=(0, 1))
    result = executor.run(plan(HEADWISE, "fp32"), q, k, v)
    assert result.out.shape == (*q.shape[:-1], v.shape[-1]) and not any(result.tiles.values())


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("schedule", ["small", "splits", "kv_outer"])
def test_packed_batches(layout, schedule) -> None:
    q, k, v = (x[0] for x in qkv("fp64", batch=1, lengths=(90, 200)))
    starts = {
        "cu_seqlens_q": np.array([0, 5, 5, 60], np.int32),
        "cu_seqlens_kv": np.array([0, 37, 73, 190], np.int32),
    }
    doc = arguments(DOCUMENTS, 1, 4, 200)["doc"][0]
    turned = (q, k, v) if layout == "bhsd" else [x.swapaxes(0, 1) for x in (q, k, v)]
    given = {"layout": layout, "doc": doc, **starts}
    expected, expected_lse = reference.forward(DOCUMENTS, *turned, **given)
    result = executor.run(plan(DOCUMENTS, "fp64", **SCHEDULES[schedule]), *turned, **given)
    np.testing.assert_allclose(result.out, expected, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(result.lse, expected_lse, rtol=1e-12)
    assert result.tiles[TileKind.EMPTY] > 0


def test_writes_into_out() -> None:
    q, k, v = qkv("fp32")
    expected = executor.run(plan(CAUSAL), q, k, v).out
    out = np.full((2, 45, 4, 16), np.nan, np.float32).swapaxes(1, 2)
    result = executor.run(plan(CAUSAL), q, k, v, out=out)
    assert result.out is out
    np.testing.assert_array_equal(out, expected)


def test_garbage_under_the_mask() -> None:
    q, k, v = qkv("fp16")
    clean = executor.run(plan(CAUSAL, "fp16"), q, k, v).out
    k[:, :, -1] = np.nan
    out = executor.run(plan(CAUSAL, "fp16"), q, k, v).out
    np.testing.assert_array_equal(out[:, :, :-1], clean[:, :, :-1])
    assert np.isnan(out[:, :, -1]).all()


@pytest.mark.parametrize("schedule", ["small", "splits", "kv_outer"])
@pytest.mark.parametrize("sink", [None, "logit"])
def test_rows_with_nothing_kept(schedule, sink) -> None:
    late = Variant("late", (), SINK.inputs if sink else (), (Keep(apply("ge", symbol("q_idx"), const(10))),), sink=sink)
    q, k, v = qkv("fp16")
    logit = {"logit": np.array([0.5, -2, 3, -np.inf], np.float32)} if sink else {}
    result = executor.run(plan(late, "fp16", **SCHEDULES[schedule]), q, k, v, **logit)
    assert not result.out[:, :, :10].any()
    assert np.isfinite(result.out.astype(np.float32)).all()
    expected = logit["logit"][:, None] if sink else np.full((4, 1), -np.inf)
    np.testing.assert_allclose(result.lse[:, :, :10], np.broadcast_to(expected, (2, 4, 10)), rtol=1e-6)


@pytest.mark.parametrize("schedule", ["small", "splits", "kv_outer"])
def test_scores_of_minus_infinity_and_of_ten_thousand(schedule) -> None:
    bias = np.random.default_rng(1).choice([-np.inf, -1e4, 0, 1e4], (45, 70)).astype(np.float32)
    bias[3] = -np.inf
    added = apply("add", symbol("score"), load("bias", symbol("q_idx"), symbol("kv_idx")))
    biased = Variant("biased", (), (declared("bias", "f32", "q", "kv"),), (Score(added),))
    q, k, v = qkv("fp64")
    expected, lse = reference.forward(biased, q, k, v, bias=bias)
    result = executor.run(plan(biased, "fp64", **SCHEDULES[schedule]), q, k, v, bias=bias)
    np.testing.assert_allclose(result.out, expected, rtol=1e-9)
    np.testing.assert_allclose(result.lse, lse, rtol=1e-12)
    assert not result.out[:, :, 3].any()


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (1, 1), (1, 100)])
def test_short_sequences(q_len, kv_len) -> None:
    q, k, v = qkv("fp64", lengths=(q_len, kv_len))
    for settings in SCHEDULES.values():
        result = executor.run(plan(SIGMOID, "fp64", **settings), q, k, v)
        np.testing.assert_allclose(result.out, reference.forward(SIGMOID, q, k, v)[0], rtol=1e-9, atol=1e-13)


def test_dropout_rate_of_the_call() -> None:
    rated = Variant("rated", (), (declared("rate", "f32"),), dropout=Load(Type.FLOAT, "rate", ()))
    q, k, v = qkv("fp64")
    result = executor.run(plan(rated, "fp64"), q, k, v, rate=0.5, seed=3)
    np.testing.assert_allclose(result.out, reference.forward(rated, q, k, v, rate=0.5, seed=3)[0], rtol=1e-9)
    none = executor.run(plan(rated, "fp64"), q, k, v, rate=0.0)
    np.testing.assert_array_equal(none.out, executor.run(plan(FULL, "fp64"), q, k, v).out)
    for bad, code in (({"rate": 1.5, "seed": 3}, "A613"), ({"rate": 0.5}, "A612")):
        with pytest.raises(AttnccError, match=code):
            executor.run(plan(rated, "fp64"), q, k, v, **bad)


def test_arguments_are_checked() -> None:
    q, k, v = qkv("fp32")
    with pytest.raises(AttnccError, match="A604"):
        executor.run(plan(FULL, "fp16"), q, k, v)
    with pytest.raises(AttnccError, match="A603"):
        executor.run(plan(FULL, head_dim=32), q, k, v)
    const_rate = dataclasses.replace(FULL, dropout=Const(Type.FLOAT, 0.0))
    executor.run(plan(const_rate), q, k, v)  # nothing is dropped, so no seed is needed


def test_rows_that_no_sequence_owns_stay_as_they_are() -> None:
    q, k, v = (array[0] for array in qkv("fp32"))
    out = np.full_like(q[..., :1], 7).repeat(v.shape[-1], -1)
    starts = np.array([3, 9], np.int32)
    executor.run(plan(FULL, "fp32"), q, k, v, out=out, cu_seqlens_q=starts, cu_seqlens_kv=starts)
    assert (out[:, :3] == 7).all() and (out[:, 9:] == 7).all() and (out[:, 3:9] != 7).all()


def test_tiles_in_two_dimensions_are_refused() -> None:
    """Their rules, taken for those of 1-D tiles, would drop kept pairs."""
    in_tiles_2d = plan(CAUSAL, grid_2d=Grid2D(8, 8, 8), pass_name="patches")
    with pytest.raises(AttnccError, match="the CPU executor has no tiles in two dimensions"):
        executor.run(in_tiles_2d, *qkv())


@pytest.mark.parametrize("schedule", ["small", "splits", "kv_outer", "no skipping"])
def test_own_rows_have_the_bits_that_they_have_among_all(schedule) -> None:
    """Tiles without own rows are EMPTY: nothing of them is computed, and their rows of q are never read."""
    q, k, v = qkv("fp32", lengths=(113, 203))
    made, own = plan(CAUSAL, "fp32", **SCHEDULES[schedule]), np.zeros(113, bool)
    own[20:41] = own[100:] = True
    every = executor.run(made, q, k, v)
    needed = np.add.reduceat(own, np.arange(0, 113, made.block_q)) > 0
    q[:, :, ~np.repeat(needed, made.block_q)[:113]] = np.nan
    some = executor.run_bound(made, executor.bind_for((made,), q, k, v), own)
    np.testing.assert_array_equal(some.out[:, :, own], every.out[:, :, own])
    np.testing.assert_array_equal(some.lse[:, :, own], every.lse[:, :, own])
    assert some.tiles[TileKind.PARTIAL] < every.tiles[TileKind.PARTIAL]

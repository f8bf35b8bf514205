from __future__ import annotations

import numpy as np
import pytest

from attncc import reference
from attncc.ir import Const, Keep, Score, Type, Variant, apply, const, symbol
from attncc.philox import keep_mask, threshold
from attncc.reference import baseline, forward
from tests.plans import (
    ALIBI,
    CAUSAL,
    DOCUMENTS,
    DROPOUT,
    FULL,
    LET_OF_SCORE,
    SIGMOID,
    SINK,
    UNNORMALISED,
    WINDOW,
    arguments,
    declared,
    load,
    qkv,
)

Q_LEN, KV_LEN = 45, 70
Q_POS, KEYS = np.arange(Q_LEN)[:, None] + KV_LEN - Q_LEN, np.arange(KV_LEN)
CAUSAL_MASK = Q_POS >= KEYS


def scores(q, k, scale=0.25):
    return np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), k.repeat(2, axis=1).astype(np.float64)) * scale


def attention(score, mask, v, sink=None):
    """Softmax attention of a handful of heads, written down once more."""
    weight = np.exp(np.where(mask, score, -np.inf))
    row_sum = weight.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink.astype(np.float64))[:, None, None])
    return weight / row_sum @ v.repeat(2, axis=1), np.log(row_sum[..., 0])


def agree(result, expected) -> None:
    for got, wanted in zip(result, expected, strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


def test_causal_is_bottom_right_aligned() -> None:
    q, k, v = qkv()
    agree(forward(CAUSAL, q, k, v), attention(scores(q, k), CAUSAL_MASK, v))


def test_score_lines_run_top_to_bottom() -> None:
    q, k, v = qkv()
    given = arguments(ALIBI, 2, 4, KV_LEN)
    biased = scores(q, k) - given["slope"][:, None, None].astype(np.float64) * (Q_POS - KEYS)
    expected = attention(5.0 * np.tanh(biased / 5.0), CAUSAL_MASK, v)
    agree(forward(ALIBI, q, k, v, **given), expected)
    agree(forward(ALIBI, q, k, v, **{**given, "cap": np.array(5, np.float32)}), expected)


def test_a_let_holds_the_score_of_where_it_stands() -> None:
    q, k, v = qkv()
    agree(forward(LET_OF_SCORE, q, k, v), attention(3 * scores(q, k), True, v))


@pytest.mark.parametrize("scale", [-0.7, 0.0, 2.0])
def test_scale_of_the_call(scale) -> None:
    q, k, v = qkv()
    agree(forward(CAUSAL, q, k, v, scale=scale), attention(scores(q, k, scale), CAUSAL_MASK, v))


def test_scale_of_the_variant_and_the_default() -> None:
    q, k, v = qkv()
    by_line = Variant("scaled", scale=apply("div", Const(Type.FLOAT, 8.0), apply("to_float", symbol("head_dim"))))
    agree(forward(by_line, q, k, v), attention(scores(q, k, 0.5), True, v))
    agree(forward(by_line, q, k, v, scale=0.1), attention(scores(q, k, 0.1), True, v))
    agree(forward(FULL, q, k, v), attention(scores(q, k, 1 / 4), True, v))


def test_sink_takes_part_in_the_normaliser_alone() -> None:
    q, k, v = qkv()
    logit = arguments(SINK, 2, 4, KV_LEN)["logit"]
    agree(forward(SINK, q, k, v, logit=logit), attention(scores(q, k), CAUSAL_MASK, v, logit))


def test_sigmoid_and_none_have_no_row_sum() -> None:
    q, k, v = qkv()
    window = CAUSAL_MASK & (Q_POS - KEYS < 40)
    repeated = v.repeat(2, axis=1)
    out, lse = forward(SIGMOID, q, k, v)
    np.testing.assert_allclose(out, np.where(window, 1 / (1 + np.exp(-scores(q, k))), 0) @ repeated, rtol=1e-10)
    assert lse is None
    out, lse = forward(UNNORMALISED, q, k, v)
    np.testing.assert_allclose(out, np.where(CAUSAL_MASK, scores(q, k), 0) @ repeated, rtol=1e-10, atol=1e-12)
    assert lse is None


# Rows 0 to 9 keep nothing; from there on, causal.
LATE = Variant("late", statements=(*CAUSAL.statements, Keep(apply("ge", symbol("q_idx"), const(10)))))


def test_rows_with_nothing_kept() -> None:
    q, k, v = qkv()
    out, lse = forward(LATE, q, k, v)
    assert not out[:, :, :10].any()
    assert np.isneginf(lse[:, :, :10]).all()
    agree((out[:, :, 10:], lse[:, :, 10:]), (x[:, :, 10:] for x in forward(CAUSAL, q, k, v)))


def test_lse_of_an_empty_row_is_the_sink() -> None:
    q, k, v = qkv()
    logit = np.array([0.5, -2, 3, -np.inf], np.float32)
    late_sink = Variant("late_sink", SINK.consts, SINK.inputs, LATE.statements, sink="logit")
    out, lse = forward(late_sink, q, k, v, logit=logit)
    assert not out[:, :, :10].any()
    np.testing.assert_array_equal(lse[:, :, :10], np.broadcast_to(logit[:, None], (2, 4, 10)))


@pytest.mark.parametrize("normalize", ["softmax", "sigmoid", "none"])
def test_a_kept_score_of_minus_infinity_weighs_nothing(normalize) -> None:
    q, k, v = qkv()
    bias = np.zeros((Q_LEN, KV_LEN), np.float32)
    bias[:, ::3] = -np.inf
    bias[7] = -np.inf
    added = apply("add", symbol("score"), load("bias", symbol("q_idx"), symbol("kv_idx")))
    biased = Variant("biased", (), (declared("bias", "f32", "q", "kv"),), (Score(added),), normalize)
    kept = Variant(
        "kept", (), (declared("bias", "f32", "q", "kv"),), (Keep(apply("eq", added.args[1], const(0.0))),), normalize
    )
    out, lse = forward(biased, q, k, v, bias=bias)
    expected, expected_lse = forward(kept, q, k, v, bias=bias)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    assert not out[:, :, 7].any()
    if normalize == "softmax":
        np.testing.assert_allclose(lse, expected_lse, rtol=1e-12)


def test_nan_in_masked_keys_never_reaches_the_output() -> None:
    q, k, v = qkv()
    clean, _ = forward(CAUSAL, q, k, v)
    k[:, :, -1] = np.nan
    out, _ = forward(CAUSAL, q, k, v)
    np.testing.assert_array_equal(out[:, :, :-1], clean[:, :, :-1])
    assert np.isnan(out[:, :, -1]).all()


def test_dropout_zeroes_and_rescales_by_the_actual_rate() -> None:
    q, k, v = qkv()
    rate = Variant("dropped", statements=CAUSAL.statements, dropout=Const(Type.FLOAT, 0.1))
    out, lse = forward(rate, q, k, v, seed=99)
    _, plain_lse = forward(CAUSAL, q, k, v)
    np.testing.assert_array_equal(lse, plain_lse)
    prob = np.exp(np.where(CAUSAL_MASK, scores(q, k), -np.inf) - plain_lse[..., None])
    kept = keep_mask(99, threshold(0.1), np.arange(8).reshape(2, 4), np.arange(Q_LEN), KEYS)
    np.testing.assert_allclose(out, prob * kept * 256 / 230 @ v.repeat(2, axis=1), rtol=1e-11, atol=1e-13)
    assert np.abs(out - forward(DROPOUT, q, k, v, seed=99)[0]).max() > 1e-3


def test_layouts_agree() -> None:
    q, k, v = qkv(head_dims=(16, 24))
    expected, expected_lse = forward(WINDOW, q, k, v)
    out, lse = forward(WINDOW, *(x.swapaxes(1, 2) for x in (q, k, v)), layout="bshd")
    np.testing.assert_array_equal(out.swapaxes(1, 2), expected)
    np.testing.assert_array_equal(lse, expected_lse)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_packed_batches_are_their_sequences(layout) -> None:
    q_starts, kv_starts = np.array([0, 5, 5, 40], np.int32), np.array([0, 20, 33, 70], np.int32)
    doc = arguments(DOCUMENTS, 1, 4, KV_LEN)["doc"][0]
    q, k, v = (x[0] for x in qkv(batch=1))
    turned = (q, k, v) if layout == "bhsd" else [x.swapaxes(0, 1) for x in (q, k, v)]
    out, lse = forward(DOCUMENTS, *turned, layout=layout, cu_seqlens_q=q_starts, cu_seqlens_kv=kv_starts, doc=doc)
    out = out if layout == "bhsd" else out.swapaxes(0, 1)
    for b in range(3):
        q_rows, kv_rows = slice(*q_starts[b : b + 2]), slice(*kv_starts[b : b + 2])
        own = forward(DOCUMENTS, q[None, :, q_rows], k[None, :, kv_rows], v[None, :, kv_rows], doc=doc[None, kv_rows])
        np.testing.assert_array_equal(out[:, q_rows], own[0][0])
        np.testing.assert_array_equal(lse[:, q_rows], own[1][0])
    assert not out[:, 40:].any()  # rows of no sequence
    assert np.isneginf(lse[:, 40:]).all()


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (0, 0)])
def test_empty_sequences(q_len, kv_len) -> None:
    out, lse = forward(SINK, *qkv(lengths=(q_len, kv_len)), logit=np.ones(4, np.float32))
    assert out.shape == (2, 4, q_len, 16)
    assert not out.any()
    assert (lse == 1).all()


def test_rows_taken_in_pieces_change_nothing(monkeypatch) -> None:
    q, k, v = qkv()
    whole = forward(DROPOUT, q, k, v, seed=1)
    monkeypatch.setattr(reference.dense, "_PAIRS", 900)
    agree(forward(DROPOUT, q, k, v, seed=1), whole)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_baseline_rounds_scores_and_probabilities(dtype) -> None:
    q, k, v = qkv(dtype)
    out, lse = baseline(CAUSAL, q, k, v)
    exact, exact_lse = forward(CAUSAL, q, k, v)
    assert out.dtype == q.dtype
    assert lse.dtype == np.float32
    epsilon = reference.accuracy(out, out, exact, dtype).allowance / np.sqrt((exact**2).mean())
    error, lse_error = np.abs(out.astype(np.float64) - exact).max(), np.abs(lse - exact_lse).max()
    assert epsilon / 8 < error < 8 * epsilon
    if dtype != "fp32":
        assert epsilon / 8 < lse_error < 4 * epsilon  # from S alone: exact scores would give 1e-7

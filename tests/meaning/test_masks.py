"""Rows that keep nothing, alignment, windows, the order of keep and score: the meaning table's rows on masks."""

from __future__ import annotations

import numpy as np
import pytest


def uniform(shape: tuple[int, ...]) -> np.ndarray:
    """q or k of zeros: every kept key then weighs the same, so that out is the mean of the kept V rows."""
    return np.zeros(shape, np.float16)


def kept_keys(attend, name: str, q_len: int, kv_len: int, **call) -> np.ndarray:
    """Which keys each row of one head attends to, read off the output: V has a one for each key, in turns."""
    kept = np.zeros((q_len, kv_len), bool)
    q, k = uniform((1, 1, q_len, 32)), uniform((1, 1, kv_len, 32))
    for first in range(0, kv_len, 32):
        v = np.zeros((1, 1, kv_len, 32), np.float16)
        width = min(32, kv_len - first)
        v[0, 0, first : first + width, :width] = np.eye(width)
        kept[:, first : first + width] = attend(name, q, k, v, **call)[0, 0, :, :width] > 0
    return kept


@pytest.mark.parametrize("name", ["after_three", "nothing"])
def test_row_with_nothing_kept(attend, draw, name) -> None:
    q, k, v = draw(2, 3, 40, 32), draw(2, 3, 50, 32), draw(2, 3, 50, 32)
    out, lse = attend(name, q, k, v, lse=True)
    empty = slice(0, 4) if name == "after_three" else slice(None)
    assert np.all(out[:, :, empty] == 0)
    assert np.all(np.isneginf(lse[:, :, empty]))
    assert np.all(np.isfinite(lse[:, :, 4:])) or name == "nothing"


def test_row_with_nothing_kept_but_a_sink(attend, draw) -> None:
    q, k, v = draw(2, 3, 40, 32), draw(2, 3, 50, 32), draw(2, 3, 50, 32)
    bias = np.array([-2.5, 0.0, 3.25], np.float32)
    out, lse = attend("sink_after_three", q, k, v, bias=bias, lse=True)
    assert np.all(out[:, :, :4] == 0)
    np.testing.assert_allclose(lse[:, :, :4], np.broadcast_to(bias[:, None], (2, 3, 4)), rtol=1e-6)
    attend.judge("sink_after_three", q, k, v, bias=bias)


def test_sink_is_untouched_by_the_scale(attend, draw) -> None:
    """With scores of 0 and a sink of 0 over n kept keys, each key weighs 1 / (n + 1), whatever the scale."""
    q, k = uniform((1, 1, 20, 32)), uniform((1, 1, 20, 32))
    v = np.ones((1, 1, 20, 32), np.float16)
    out = attend("sink_after_three", q, k, v, bias=np.zeros(1, np.float32), scale=9.0)
    kept = np.maximum(np.arange(20) - 3, 0)
    np.testing.assert_allclose(out[0, 0, :, 0], kept / (kept + 1), atol=1e-3)


def test_kept_scores_of_minus_infinity_weigh_nothing(attend, draw) -> None:
    q, k, v = draw(1, 2, 33, 32), draw(1, 2, 70, 32), draw(1, 2, 70, 32)
    far = np.arange(70) % 3 == 0
    out = attend("infinite", q, k, v, far=far)
    v_poisoned = np.where(far[:, None], np.float16(1000), v)
    np.testing.assert_array_equal(out, attend("infinite", q, k, v_poisoned, far=far))
    attend.judge("infinite", q, k, v, far=far)


def test_row_of_only_minus_infinity_is_an_empty_row(attend, draw) -> None:
    q, k, v = draw(1, 2, 33, 32), draw(1, 2, 70, 32), draw(1, 2, 70, 32)
    out, lse = attend("infinite", q, k, v, far=np.ones(70, bool), lse=True)
    assert np.all(out == 0)
    assert np.all(np.isneginf(lse))


def test_masking_comes_after_all_score_lines(attend, draw) -> None:
    """`score = score * 0 + 3` would bring masked pairs back, were it applied after the mask."""
    q, k, v = draw(1, 1, 45, 32), draw(1, 1, 45, 32), draw(1, 1, 45, 32)
    means = np.cumsum(v.astype(np.float64), axis=2) / np.arange(1, 46)[:, None]
    out, lse = attend("masked_then_scored", q, k, v, lse=True)
    np.testing.assert_allclose(out, means, atol=4e-3)
    np.testing.assert_allclose(lse[0, 0], 3 + np.log(np.arange(1, 46)), rtol=1e-5)


@pytest.mark.parametrize(("q_len", "kv_len"), [(40, 40), (24, 61), (61, 24)])
def test_causal_is_aligned_bottom_right(attend, q_len, kv_len) -> None:
    rows, keys = np.arange(q_len)[:, None], np.arange(kv_len)[None]
    np.testing.assert_array_equal(kept_keys(attend, "causal", q_len, kv_len), rows + kv_len - q_len >= keys)
    np.testing.assert_array_equal(kept_keys(attend, "top_left", q_len, kv_len), rows >= keys)


def test_a_window_holds_exactly_its_width(attend) -> None:
    kept = kept_keys(attend, "window_5", 60, 80)
    distance = np.arange(60)[:, None] + 20 - np.arange(80)[None]
    np.testing.assert_array_equal(kept, (distance >= 0) & (distance < 5))
    assert set(kept.sum(axis=1)) == {5}


def test_one_visible_key_gives_its_row_exactly(attend, draw) -> None:
    q, k, v = draw(2, 2, 50, 32), draw(2, 2, 75, 32), draw(2, 2, 75, 32)
    out, lse = attend("one_key", q, k, v, lse=True)
    key = np.arange(50) * 7 % 75
    np.testing.assert_array_equal(out, v[:, :, key].astype(np.float64))
    score = np.einsum("bhqd,bhqd->bhq", q.astype(np.float64), k[:, :, key].astype(np.float64)) / np.sqrt(32)
    np.testing.assert_allclose(lse, score, rtol=1e-4, atol=1e-4)


def test_loads_out_of_range_read_zero(attend, draw) -> None:
    q, k, v = draw(1, 1, 30, 32), draw(1, 1, 100, 32), draw(1, 1, 100, 32)
    table = np.full(20, -1, np.int32)  # keys 40 to 59 read -1; row 0 reads it too, all others read beyond the end
    kept = kept_keys(attend, "far_loads", 30, 100, table=table)
    keys = np.arange(100)
    outside = (keys < 40) | (keys >= 60)
    np.testing.assert_array_equal(kept[1:], np.broadcast_to(outside, (29, 100)))
    assert not kept[0].any()
    attend.judge("far_loads", q, k, v, table=table)


def test_division_by_zero_and_wild_shifts_are_zero(attend) -> None:
    assert kept_keys(attend, "divided", 5, 40, zero=0).all()


def test_boolean_inputs_over_batch_and_rows(attend, draw) -> None:
    q, k, v = draw(3, 2, 37, 32), draw(3, 2, 41, 32), draw(3, 2, 41, 32)
    gate = np.random.default_rng(1).random((3, 37)) < 0.5
    attend.judge("gated", q, k, v, gate=gate)


@pytest.mark.parametrize("sorted_documents", [True, False])
def test_nondecreasing_is_verified_not_trusted(attend, draw, sorted_documents) -> None:
    """An input declared nondecreasing that isn't takes the general path: never a wrong result."""
    q, k, v = draw(2, 2, 90, 32), draw(2, 2, 90, 32), draw(2, 2, 90, 32)
    doc = np.random.default_rng(2).integers(0, 4, (2, 90)).astype(np.int32)
    attend.judge("documents", q, k, v, doc=np.sort(doc, axis=1) if sorted_documents else doc)

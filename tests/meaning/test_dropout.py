"""Dropout bits belong to the pair: the same for every schedule, and equal to the published formula bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import attncc

Q_LEN, KV_LEN = 70, 150


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-7 in Python's integers, straight from the paper's round function."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(7):
        p0, p1 = x0 * 0xD2511F53, x2 * 0xCD9E8D57
        x0, x1, x2, x3 = (p1 >> 32) ^ x1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ x3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x0, x1, x2, x3


def kept_byte(seed: int, head: int, q_idx: int, kv_idx: int) -> int:
    """The byte that decides one pair, as docs/language.md defines it."""
    counter = (kv_idx // 32, q_idx // 16, head, q_idx % 8 * 4 + kv_idx % 8 // 2)
    word = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))[kv_idx // 8 % 4]
    return word >> 8 * (q_idx // 8 % 2 + 2 * (kv_idx % 2)) & 0xFF


def weights(attend, draw, **call) -> np.ndarray:
    """P after dropout [batch, heads, q, kv] of equal scores: 0 or 1 / KV_LEN over the keep rate, read through V."""
    q, k = np.zeros((2, 2, Q_LEN, 32), np.float16), np.zeros((2, 2, KV_LEN, 32), np.float16)
    columns = []
    for first in range(0, KV_LEN, 32):
        v = np.zeros((2, 2, KV_LEN, 32), np.float16)
        width = min(32, KV_LEN - first)
        v[:, :, first : first + width, :width] = np.eye(width)
        columns.append(attend("dropped", q, k, v, **call)[..., :width])
    return np.concatenate(columns, axis=-1)


@pytest.mark.parametrize("seed", [0, 7, 0x123456789ABCDEF])
def test_bits_replay_the_formula(attend, draw, seed) -> None:
    weight = weights(attend, draw, rate=0.25, seed=seed)
    t = 192
    pairs = np.random.default_rng(seed).integers(0, (2, 2, Q_LEN, KV_LEN), (400, 4))
    for b, h, q_idx, kv_idx in pairs.tolist():
        kept = kept_byte(seed, b * 2 + h, q_idx, kv_idx) < t
        assert (weight[b, h, q_idx, kv_idx] > 0) == kept, (b, h, q_idx, kv_idx)
    np.testing.assert_allclose(weight[weight > 0], 256 / t / KV_LEN, rtol=2e-3)


def test_the_rate_is_what_was_asked_for(attend, draw) -> None:
    for rate in (0.1, 0.5, 0.9):
        kept = (weights(attend, draw, rate=rate, seed=3) > 0).mean()
        assert abs(kept - (1 - rate)) < 0.01


def test_seeds_and_heads_differ(attend, draw) -> None:
    one, other = (weights(attend, draw, rate=0.5, seed=seed) > 0 for seed in (1, 2))
    assert 0.4 < (one == other).mean() < 0.6
    assert 0.4 < (one[0, 0] == one[0, 1]).mean() < 0.6
    assert 0.4 < (one[0, 0] == one[1, 0]).mean() < 0.6


def test_within_the_accuracy_rule(attend, draw) -> None:
    q, k, v = draw(2, 4, Q_LEN, 32), draw(2, 2, KV_LEN, 32), draw(2, 2, KV_LEN, 32)
    attend.judge("causal_dropout", q, k, v, seed=11)


def test_lse_ignores_dropout(attend, draw) -> None:
    q, k, v = draw(2, 2, Q_LEN, 32), draw(2, 2, KV_LEN, 32), draw(2, 2, KV_LEN, 32)
    _, with_dropout = attend("dropped", q, k, v, rate=0.5, seed=1, lse=True)
    _, without = attend("full", q, k, v, lse=True)
    np.testing.assert_allclose(with_dropout, without, rtol=1e-6)


def test_no_dropout_needs_no_seed(attend, draw) -> None:
    q, k, v = draw(1, 2, Q_LEN, 32), draw(1, 2, KV_LEN, 32), draw(1, 2, KV_LEN, 32)
    np.testing.assert_allclose(attend("dropped", q, k, v, rate=0.0), attend("full", q, k, v), atol=1e-3)


def test_seed_as_an_array_is_the_same_seed(attend, draw) -> None:
    """A 0-d i64 array, so that a captured graph can be given new seeds."""
    number = weights(attend, draw, rate=0.5, seed=5_000_000_000)
    array = weights(attend, draw, rate=0.5, seed=np.array(5_000_000_000, np.int64))
    np.testing.assert_array_equal(number, array)


@pytest.mark.parametrize(
    "call", [{"rate": 0.5}, {"rate": 1.0, "seed": 1}, {"rate": -0.1, "seed": 1}, {"rate": 1e-4, "seed": 1}], ids=str
)
def test_bad_rates_and_a_missing_seed_are_refused(attend, draw, call) -> None:
    q = draw(1, 2, Q_LEN, 32)
    if attend.device.name == "cuda" and "seed" not in call:
        pytest.skip("torch's generator draws the seed of a call on its tensors")
    with pytest.raises(attncc.AttnccError, match=r"seed|rate"):
        attend("dropped", q, q, q, **call)


def test_packed_batches_draw_by_sequence(attend, draw) -> None:
    """b counts sequences and positions are within the sequence, so packing changes no bit."""
    q, k, v = draw(2, 2, 40, 32), draw(2, 2, 40, 32), draw(2, 2, 40, 32)
    dense = attend("causal_dropout", q, k, v, seed=9)
    packed = [np.concatenate(list(item), axis=1) for item in (q, k, v)]
    cu = np.array([0, 40, 80], np.int32)
    out = attend("causal_dropout", *packed, seed=9, cu_seqlens_q=cu, cu_seqlens_kv=cu)
    np.testing.assert_array_equal(out, np.concatenate(list(dense), axis=1))

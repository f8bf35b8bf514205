"""What lies beyond a sequence, or under the mask, never reaches the output."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 6e4])
def test_masked_keys_may_hold_anything(attend, draw, garbage) -> None:
    """K rows that no query sees; V must be finite there, since a tensor core computes 0 * V for it."""
    q, k, v = draw(1, 2, 40, 32), draw(1, 2, 90, 32), draw(1, 2, 90, 32)
    clean = attend("odd_keys", q, k, v)
    k[:, :, ::2] = garbage
    np.testing.assert_array_equal(attend("odd_keys", q, k, v), clean)


def test_later_keys_may_be_nan_for_earlier_rows(attend, draw) -> None:
    """Under a causal mask a NaN key spoils the rows that see it, and no other."""
    q, k, v = draw(1, 1, 70, 32), draw(1, 1, 70, 32), draw(1, 1, 70, 32)
    clean = attend("causal", q, k, v)
    k[:, :, 50] = np.nan
    spoiled = attend("causal", q, k, v)
    np.testing.assert_array_equal(spoiled[:, :, :50], clean[:, :, :50])


@pytest.mark.parametrize("kv_len", [1, 31, 32, 33, 65])
def test_memory_behind_the_last_key(attend, device, draw, kv_len) -> None:
    """K and V are views into a buffer whose rows beyond kv_len are NaN."""
    q, k, v = draw(1, 2, 20, 32), draw(1, 2, 96, 32), draw(1, 2, 96, 32)
    expected = attend("full", q, k[:, :, :kv_len], v[:, :, :kv_len])
    k[:, :, kv_len:], v[:, :, kv_len:] = np.nan, np.nan
    kernel = attend.kernel("full")
    held = [device.put(item) for item in (q, k, v)]
    out = kernel(held[0], held[1][:, :, :kv_len], held[2][:, :, :kv_len])
    np.testing.assert_array_equal(device.get(out), expected)


def test_neighbour_sequences_in_a_packed_batch(attend, draw) -> None:
    """Rows of K and V outside all sequences, and those of a neighbour, are NaN; the sequence doesn't notice."""
    q, k, v = draw(2, 60, 32), draw(2, 120, 32), draw(2, 120, 32)
    cu_q, cu_kv = np.array([0, 20, 60], np.int32), np.array([0, 41, 100], np.int32)
    clean = attend("causal", q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
    for item in (k, v):
        item[:, 41:] = np.nan  # the second sequence and what lies behind it
    spoiled = attend("causal", q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
    np.testing.assert_array_equal(spoiled[:, :20], clean[:, :20])


def test_query_rows_outside_all_sequences_are_left_alone_or_zero(attend, draw) -> None:
    """Rows that belong to no sequence must not disturb those that do."""
    q, k, v = draw(2, 64, 32), draw(2, 64, 32), draw(2, 64, 32)
    cu = np.array([0, 30], np.int32)
    expected = attend("causal", q[:, :30], k[:, :30], v[:, :30], cu_seqlens_q=cu, cu_seqlens_kv=cu)
    q[:, 30:] = np.nan
    out = attend("causal", q, k, v, cu_seqlens_q=cu, cu_seqlens_kv=cu)
    np.testing.assert_array_equal(out[:, :30], expected)

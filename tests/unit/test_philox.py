from __future__ import annotations

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.philox import keep_mask, philox4x32, threshold

ZERO, ONES = (0,) * 4, (0xFFFFFFFF,) * 4
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)


@pytest.mark.parametrize(
    ("rounds", "counter", "key", "words"),
    [
        (7, ZERO, ZERO[:2], "5f6fb709 0d893f64 4f121f81 4f730a48"),
        (7, ONES, ONES[:2], "5207ddc2 45165e59 4d8ee751 8c52f662"),
        (7, *PI, "4dfccaba 190a87f0 c47362ba b6b5242a"),
        (10, ZERO, ZERO[:2], "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (10, ONES, ONES[:2], "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (10, *PI, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_known_answers_of_random123(rounds, counter, key, words) -> None:
    assert [f"{int(word):08x}" for word in philox4x32(counter, key, rounds)] == words.split()


def kept_one_by_one(seed: int, t: int, batch_head: int, q_idx: int, kv_idx: int) -> bool:
    """The definition of the meaning table, for one pair."""
    counter = (kv_idx // 32, q_idx // 16, batch_head, q_idx % 8 * 4 + kv_idx % 8 // 2)
    words = philox4x32(counter, (seed % 2**32, seed // 2**32 % 2**32))
    byte = q_idx // 8 % 2 + 2 * (kv_idx % 2)
    return (int(words[kv_idx // 8 % 4]) >> 8 * byte) & 0xFF < t


@pytest.mark.parametrize("seed", [0, 7, 2**63 + 12345, -5])
def test_keep_mask_is_the_definition(seed) -> None:
    rng = np.random.default_rng(0)
    batch_head, q_idx, kv_idx = rng.integers(0, 2**20, 3), rng.integers(0, 2**30, 20), rng.integers(0, 2**30, 20)
    mask = keep_mask(seed, 100, batch_head, q_idx, kv_idx)
    assert mask.shape == (3, 20, 20)
    for (i, j, n), kept in np.ndenumerate(mask):
        assert kept == kept_one_by_one(seed, 100, int(batch_head[i]), int(q_idx[j]), int(kv_idx[n]))


def test_bits_do_not_depend_on_how_the_mask_is_cut() -> None:
    heads, rows, keys = np.arange(3), np.arange(50), np.arange(90)
    whole = keep_mask(3, 128, heads, rows, keys)
    pieces = np.block([[keep_mask(3, 128, heads, r, c) for c in np.split(keys, [7, 33])] for r in np.split(rows, [13])])
    np.testing.assert_array_equal(whole, pieces)


def test_keep_rate_and_independence() -> None:
    rows, keys = np.arange(1024), np.arange(1024)
    one, other = (keep_mask(seed, 64, np.arange(2), rows, keys) for seed in (1, 2))
    pairs = one.size
    for rate, expected in ((one.mean(), 1 / 4), (other.mean(), 1 / 4), ((one & other).mean(), 1 / 16)):
        assert abs(rate - expected) < 5 * np.sqrt(expected * (1 - expected) / pairs)
    assert abs((one[0] & one[1]).mean() - 1 / 16) < 5 * np.sqrt(15 / 256 / (pairs / 2))


@pytest.mark.parametrize(
    ("rate", "kept"), [(0, 256), (0.0, 256), (0.5, 128), (0.1, 230), (1 / 256, 255), (255 / 256, 1)]
)
def test_threshold(rate, kept) -> None:
    assert threshold(rate) == kept


@pytest.mark.parametrize("rate", [1e-9, 0.001, 0.999, 1.0, -0.1, 2.0, float("nan")])
def test_rates_that_cannot_be_kept(rate) -> None:
    with pytest.raises(AttnccError, match="A613") as error:
        threshold(rate)
    assert repr(rate) in str(error.value)

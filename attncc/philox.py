"""Dropout bits, as the kernels draw them: a NumPy replica, bit for bit.

A bit belongs to a (batch, head, q_idx, kv_idx) pair and not to a tile, so it is the same for every schedule, loop order
and split. The generator is Philox4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011); one call serves 16 pairs, those that a thread holds in m16n8 fragments.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .diagnostics import AttnccError, Diagnostic

Words = NDArray[np.uint32]

ROUNDS = 7
# A probability is kept iff its byte is below the threshold, so rates come in steps of 1/256.
LEVELS = 256

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[int, int], rounds: int = ROUNDS) -> tuple[Words, ...]:
    """The four 32-bit words of one Philox4x32 call for each counter; the counter's parts broadcast."""
    x0, x1, x2, x3 = (np.asarray(part).astype(np.uint64) for part in counter)
    for step in range(rounds):
        key0, key1 = (np.uint64((word + step * bump) & 0xFFFFFFFF) for word, bump in zip(key, _KEY_STEPS, strict=True))
        product0, product1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1 = (product1 >> _HALF) ^ x1 ^ key0, product1 & _LOW
        x2, x3 = (product0 >> _HALF) ^ x3 ^ key1, product0 & _LOW
    return tuple(word.astype(np.uint32) for word in np.broadcast_arrays(x0, x1, x2, x3))


def keep_mask(
    seed: int, threshold: int, batch_head: NDArray[Any], q_idx: NDArray[Any], kv_idx: NDArray[Any]
) -> NDArray[np.bool_]:
    """Which probabilities dropout keeps: bool [*batch_head.shape, len(q_idx), len(kv_idx)].

    `batch_head` holds b * num_heads + h; q_idx and kv_idx are 1-D positions within the sequence; `seed` is an int of
    at most 64 bits (a negative one counts as its two's complement); `threshold` comes from the function of that name.
    """
    # Pairs that share a call have the same q lane and the same kv lane: compute each once, then gather.
    q_lanes, q_inverse = np.unique(q_idx // 16 * 8 + q_idx % 8, return_inverse=True)
    kv_lanes, kv_inverse = np.unique(kv_idx // 32 * 4 + kv_idx % 8 // 2, return_inverse=True)
    counter = (
        kv_lanes // 4,
        (q_lanes // 8)[:, None],
        np.asarray(batch_head)[..., None, None],
        (q_lanes % 8 * 4)[:, None] + kv_lanes % 4,
    )
    words = np.stack(philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)), axis=-1)
    octets = words.astype("<u4", copy=False).view(np.uint8)  # [..., q lanes, kv lanes, 4 words * 4 bytes]
    kept: NDArray[np.bool_] = octets < threshold
    of_q = (q_idx // 8 % 2)[:, None]
    of_kv = (kv_idx // 8 % 4) * 4 + 2 * (kv_idx % 2)
    return kept[..., q_inverse[:, None], kv_inverse, of_q + of_kv]


@lru_cache(maxsize=16)  # calls that change their seed alone ask again
def threshold(rate: float) -> int:
    """The byte threshold t for a dropout rate: t = round(256 * (1 - rate)), in fp32, ties to even.

    The actual keep rate is t / 256. AttnccError A613 where the rate is outside [0, 1), or is not 0 and rounds to
    "keep all" or "keep none".
    """
    if not 0 <= rate < 1:
        raise AttnccError(_bad_rate(rate, "a rate r must satisfy 0 <= r < 1"))
    kept = int(np.rint(np.float32(LEVELS) * (np.float32(1) - np.float32(rate))))
    if rate != 0 and kept in (0, LEVELS):
        raise AttnccError(_bad_rate(rate, f"rates come in steps of 1/{LEVELS}, and this one rounds to {kept} kept"))
    return kept


def _bad_rate(rate: float, why: str) -> Diagnostic:
    help_text = "use a rate from 1/256 to 255/256, or 0 for no dropout"
    return Diagnostic("A613", f"dropout rate {rate!r} can't be used", notes=(why,), help=help_text)

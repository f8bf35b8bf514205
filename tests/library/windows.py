"""Masks that look at how far apart query and key are, or at the start of the sequence."""

from __future__ import annotations

import numpy as np

from tests.library.cases import Drawn, Family, Random, distance, int32, positions

case = Family()


@case("full")
@case("flash_attention_1")
@case("relative_bias")
@case("alibi_signed")
@case("alibi_symmetric")
@case("graphormer_spatial")
@case("graphormer_edge")
@case("relu_attention")
@case("gelu_attention")
@case("doubled_score")
@case("squared_score")
@case("relative_distance")
@case("head_factor")
@case("trigonometric")
@case("batch_bias")
@case("head_and_query_bias")
@case("query_bias")
@case("key_bias")
def everything(random: Random, q_len: int, kv_len: int) -> Drawn:
    return {}, np.ones((q_len, kv_len), bool)


@case("causal")
@case("decode")
@case("alibi")
@case("softcap")
@case("dropout_attention")
@case("sink_attention")
@case("sigmoid_attention")
@case("silu_attention")
@case("sandwich")
@case("mla")
@case("mla_decode")
@case("relative_causal")
def causal(random: Random, q_len: int, kv_len: int) -> Drawn:
    return {}, np.tri(q_len, kv_len, kv_len - q_len, dtype=bool)


@case("causal_top_left")
def causal_top_left(random: Random, q_len: int, kv_len: int) -> Drawn:
    return {}, np.tri(q_len, kv_len, dtype=bool)


@case("inverse_causal")
def inverse_causal(random: Random, q_len: int, kv_len: int) -> Drawn:
    return {}, ~np.tri(q_len, kv_len, kv_len - q_len - 1, dtype=bool)


@case("sliding_window", {"width": 1}, {"width": 3}, {"width": 0}, {"width": 150})
def sliding_window(random: Random, q_len: int, kv_len: int, *, width: int) -> Drawn:
    return {}, np.isin(distance(q_len, kv_len), range(width))


@case("local_window")
def local_window(random: Random, q_len: int, kv_len: int) -> Drawn:
    left, right = (int(random.integers(-3, min(kv_len, 200) + 1)) for _ in range(2))
    return {"left": int32(left), "right": int32(right)}, np.isin(distance(q_len, kv_len), range(-right, left + 1))


@case("dilated_window", {"width": 3, "step": 2}, {"width": 1, "step": 9}, {"width": 40, "step": 4})
def dilated_window(random: Random, q_len: int, kv_len: int, *, width: int, step: int) -> Drawn:
    return {}, np.isin(distance(q_len, kv_len), [i * step for i in range(width)])


@case(
    "dilated_sliding_window",
    {"reach": 0, "step": 1},
    {"reach": 5, "step": 2},
    {"reach": 4, "step": 7},
    {"reach": 150, "step": 3},
)
def dilated_sliding_window(random: Random, q_len: int, kv_len: int, *, reach: int, step: int) -> Drawn:
    apart = [sign * d for d in range(0, reach + 1, step) for sign in (-1, 1)]
    return {}, np.isin(distance(q_len, kv_len), apart)


@case("global_sliding_window", {"reach": 0}, {"reach": 3}, {"reach": 60})
def global_sliding_window(random: Random, q_len: int, kv_len: int, *, reach: int) -> Drawn:
    """Longformer's global tokens are few, and mostly at the start."""
    flags = random.random((2, kv_len)) < 2 / kv_len
    flags[:, : kv_len // 50] = True
    kept = np.broadcast_to(np.isin(distance(q_len, kv_len), range(-reach, reach + 1)), (2, 1, q_len, kv_len)).copy()
    for b, key in np.argwhere(flags):
        kept[b, 0, :, key] = True
        if key + q_len - kv_len >= 0:
            kept[b, 0, key + q_len - kv_len] = True
    return {"is_global": flags}, kept


@case("prefix_lm")
def prefix_lm(random: Random, q_len: int, kv_len: int) -> Drawn:
    lengths = int32([0, 1, kv_len, kv_len + 7, random.integers(0, kv_len + 1)])
    kept = np.stack([causal(random, q_len, kv_len)[1] for _ in lengths])[:, None]
    for b, length in enumerate(lengths):
        kept[b, :, :, :length] = True
    return {"prefix_len": lengths}, kept


@case("token_window")
def token_window(random: Random, q_len: int, kv_len: int) -> Drawn:
    """Windows that change slowly along the sequence, as learned spans do."""
    before, after = (np.cumsum(random.integers(-2, 3, (2, kv_len)), axis=1) + kv_len // 9 for _ in range(2))
    kept = np.zeros((2, 1, q_len, kv_len), bool)
    for b in range(2):
        for row, place in enumerate(positions(q_len, kv_len)):
            if place >= 0:
                kept[b, 0, row, max(place - before[b, place], 0) : max(place + after[b, place] + 1, 0)] = True
    return {"before": int32(before), "after": int32(after)}, kept


@case("key_threshold")
def key_threshold(random: Random, q_len: int, kv_len: int) -> Drawn:
    """1-D tiles of keys that are seen, that are not, and of which some are."""
    limits = np.stack([np.zeros(kv_len, int), np.full(kv_len, kv_len), random.integers(0, kv_len + 1, kv_len)])
    sorts = np.repeat(random.integers(0, 3, (2, kv_len)), 50, axis=1)[:, :kv_len]
    thresholds = limits[sorts, np.arange(kv_len)]
    live = [[key >= thresholds[b, key] for key in range(kv_len)] for b in range(2)]
    kept = np.broadcast_to(np.array(live)[:, None, None], (2, 1, q_len, kv_len))
    return {"threshold": int32(thresholds)}, kept

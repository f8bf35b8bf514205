"""Masks as people write them on their first day."""

import torch
from torch.nn.attention.flex_attention import and_masks, create_block_mask, noop_mask, or_masks

WINDOW = 6
prefix_length = torch.tensor([3, 11], dtype=torch.int32)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


causal_by_lambda = lambda b, h, q, k: q >= k  # noqa: E731


def sliding_window(b, h, q_idx, kv_idx):
    return q_idx - kv_idx <= WINDOW


def prefix_mask(b, h, q_idx, kv_idx):
    return kv_idx < prefix_length[b]


prefix_lm_causal = or_masks(prefix_mask, causal)
sliding_window_causal = and_masks(causal, sliding_window)
block_mask = create_block_mask(sliding_window_causal, 1, 1, 64, 64, device="cpu")


def make_window(window_size: int):
    """A window that looks both ways."""

    def window_mask(b, h, q_idx, kv_idx):
        return (q_idx - kv_idx).abs() <= window_size

    return window_mask


def generate_dilated_window(window, dilation):
    def dilated(b, h, q_idx, kv_idx):
        distance = torch.abs(q_idx - kv_idx)
        in_window = distance <= window
        on_grid = (distance % dilation) == 0
        return in_window & on_grid

    return dilated


def longformer(is_global, window=4):
    def local_or_global(b, h, q_idx, kv_idx):
        local = torch.abs(q_idx - kv_idx) <= window
        return local | is_global[q_idx] | is_global[kv_idx]

    return local_or_global


def chained(b, h, q_idx, kv_idx):
    return 0 <= q_idx - kv_idx < 9


everything = and_masks(noop_mask, noop_mask)

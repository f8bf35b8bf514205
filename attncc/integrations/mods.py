"""What transformers' arguments say of a layer, as mods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.masking_utils import causal_mask_function


def of_tensor(attention_mask: torch.Tensor | None, causal: bool) -> Callable[..., Any] | None:
    """The mask of a layer without a mask function."""
    if attention_mask is None:
        return causal_mask_function if causal else None
    if attention_mask.dtype != torch.bool:
        return None
    batched, by_head = attention_mask.shape[0] > 1, attention_mask.shape[1] > 1

    def kept(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return attention_mask[b if batched else 0, h if by_head else 0, q_idx, kv_idx]

    return kept


def score_mod_of(softcap: float | None, *biases: torch.Tensor | None) -> Callable[..., Any] | None:
    """The soft cap, then what is added: a mask of floats, a position bias, [batch or 1, heads or 1, q_len, kv_len]."""
    added = [(bias, bias.shape[0] > 1, bias.shape[1] > 1) for bias in biases if bias is not None]
    if softcap is None and not added:
        return None

    def scored(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        for bias, batched, by_head in added:
            score = score + bias[b if batched else 0, h if by_head else 0, q_idx, kv_idx]
        return score

    return scored

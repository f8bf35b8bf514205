"""What transformers' arguments say of a layer, as mods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.masking_utils import causal_mask_function

_MASKED = -6e4  # and less is what models add to scores where a pair is masked: in fp16 -65504, its lowest number


def of_tensor(attention_mask: torch.Tensor | None, causal: bool) -> Callable[..., Any] | None:
    """The mask of a layer without a mask function. A mask of floats, which are added to scores, keeps all pairs but
    those with a number as low as masks have it: beside such scores a kernel isn't exact."""
    if attention_mask is None:
        return causal_mask_function if causal else None
    entry, added = _entry(attention_mask), attention_mask.dtype != torch.bool

    def kept(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        found = entry(b, h, q_idx, kv_idx)
        return found > _MASKED if added else found

    return kept


def score_mod_of(softcap: float | None, *biases: torch.Tensor | None) -> Callable[..., Any] | None:
    """The soft cap, then what is added: a mask of floats, a position bias, [batch, heads, q_len, kv_len], in which each
    length may be 1 instead."""
    added = [_entry(bias) for bias in biases if bias is not None]
    if softcap is None and not added:
        return None

    def scored(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        for entry in added:
            score = score + entry(b, h, q_idx, kv_idx)
        return score

    return scored


def _entry(tensor: torch.Tensor) -> Callable[..., Any]:
    """An entry for each pair. An axis of length 1 is the same for all, as where tensors are added."""
    batch, heads, rows, keys = [length > 1 for length in tensor.shape]

    def entry(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return tensor[b if batch else 0, h if heads else 0, q_idx if rows else 0, kv_idx if keys else 0]

    return entry


def misfit(tensor: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> str:
    """The shape that a mask or bias should have, if it has another one, else nothing. Keys beyond the last are left
    over by caches of a fixed length."""
    batch, heads, rows, _ = query.shape
    keys = key.shape[2]
    if tensor.ndim == 4:
        *lengths, held = tensor.shape
        alike = all(length in (1, want) for length, want in zip(lengths, (batch, heads, rows), strict=True))
        if alike and (held == 1 or held >= keys):
            return ""
    return f"[{batch} or 1, {heads} or 1, {rows} or 1, {keys} or 1]"

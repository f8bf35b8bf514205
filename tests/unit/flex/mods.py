"""PyTorch's own example mods, as its documentation, its tests and attention-gym write them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

BATCH, HEADS, Q_LEN, KV_LEN = 2, 4, 40, 40
WINDOW = 7


def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def sliding_window(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx - kv_idx <= WINDOW) & (q_idx >= kv_idx)


def prefix_lm(prefix: Any) -> Any:
    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx < prefix[b]) | causal(b, h, q_idx, kv_idx)

    return mask_mod


def documents(document_id: Any, inner: Any) -> Any:
    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (document_id[b, q_idx] == document_id[b, kv_idx]) & inner(b, h, q_idx, kv_idx)

    return mask_mod


def natten(width: int, height: int, kernel: int) -> Any:
    def place(index: Any) -> Any:
        return index // width, index % width

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        q_y, q_x = place(q_idx)
        kv_y, kv_x = place(kv_idx)
        center_x = q_x.clamp(kernel // 2, (width - 1) - kernel // 2)
        center_y = q_y.clamp(kernel // 2, (height - 1) - kernel // 2)
        return ((center_x - kv_x).abs() <= kernel // 2) & ((center_y - kv_y).abs() <= kernel // 2)

    return mask_mod


def nothing_for_some(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx % 3 > 0) & (kv_idx < 30)


def relative(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score + (q_idx - kv_idx)


def relative_causal(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return torch.where(q_idx <= kv_idx, score + (q_idx - kv_idx), score)


def times_two(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    return score * 2


def squared(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    return score * score


def causal_score(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return torch.where(q_idx >= kv_idx, score, float("-inf"))


def inverse_causal(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return torch.where(q_idx <= kv_idx, score, float("-inf"))


def trigonometric(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return torch.sin(score) + torch.cos(q_idx) * torch.tan(kv_idx * 0.01) - b


def alibi(heads: int) -> Any:
    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        scale = torch.exp2(-((h + 1) * 8.0 / heads))
        bias = (kv_idx - q_idx) * scale
        return score + bias

    return score_mod


def softcap(cap: float) -> Any:
    return lambda score, b, h, q_idx, kv_idx: cap * torch.tanh(score / cap)


def head_offset(offset: Any) -> Any:
    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score * offset[h]

    return score_mod


def dual(head_offset: Any, token_bias: Any) -> Any:
    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + head_offset[h] + token_bias[q_idx]

    return score_mod


def shifted(by: float, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any, *, factor: float) -> Any:  # noqa: PLR0917
    return score * factor + by


class Learned(torch.nn.Module):
    """A table of biases, read by a method."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-1, 1, HEADS * 16).reshape(HEADS, 16))
        self.reach = 15

    def bias(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + self.table[h, (q_idx - kv_idx).clamp(0, self.reach)]


@dataclass(frozen=True)
class Case:
    score_mod: Any = None
    mask_mod: Any = None


_IDS = torch.tensor([[0] * 10 + [1] * 20 + [2] * 10, [0] * 25 + [1] * 15], dtype=torch.int32)

CASES = {
    "no mods": Case(),
    "causal": Case(mask_mod=causal),
    "sliding window": Case(mask_mod=sliding_window),
    "prefix": Case(mask_mod=prefix_lm(torch.tensor([3, 21]))),
    "documents": Case(mask_mod=documents(_IDS, causal)),
    "natten": Case(mask_mod=natten(8, 5, 3)),
    "empty rows": Case(mask_mod=nothing_for_some),
    "relative": Case(relative),
    "relative causal": Case(relative_causal),
    "times two": Case(times_two),
    "squared": Case(squared),
    "causal score": Case(causal_score),
    "inverse causal": Case(inverse_causal),
    "trigonometric": Case(trigonometric),
    "alibi": Case(alibi(HEADS), causal),
    "softcap": Case(softcap(20.0), sliding_window),
    "softcap of documents": Case(softcap(5), documents(_IDS, causal)),
    "head offset": Case(head_offset(torch.tensor([0.5, -0.25, 1.0, 2.0], dtype=torch.bfloat16))),
    "dual": Case(dual(torch.arange(HEADS) / 4, torch.linspace(0, 1, Q_LEN))),
    "learned": Case(Learned().bias, causal),
    "partial": Case(functools.partial(shifted, 0.25, factor=0.5), causal),
}

"""The mods of PyTorch's own tests of flex_attention (test/inductor/test_flex_attention.py), in words of our own.

A case makes its mods from tensors; those that learn are named. `tests/gpu` may take the same table.
"""

# ruff: noqa: PLR0917

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.attention.flex_attention import and_masks, or_masks

BATCH, HEADS, LENGTH, DIM = 2, 4, 64, 32
Mods = tuple[Any, Any]  # a score_mod and a mask_mod, each or None


@dataclass(frozen=True)
class SuiteCase:
    """`mods(t)` gives the mods, where `t` holds the tensors of `captured()`; those in `learned` get gradients."""

    mods: Callable[[Any], Mods]
    learned: tuple[str, ...] = ()
    q_len: int = LENGTH
    kv_heads: int = HEADS
    kv_batch: int = BATCH
    value_dim: int = DIM
    options: dict[str, Any] = field(default_factory=dict)


def captured(device: str = "cpu", dtype: Any = torch.float32) -> SimpleNamespace:
    """The tensors that mods capture; biases are of the dtype."""
    drawn = torch.Generator().manual_seed(1)

    def floats(*shape: int) -> Any:
        return torch.randn(shape, generator=drawn).to(dtype).to(device)

    return SimpleNamespace(
        of_head=torch.rand(HEADS, generator=drawn).to(dtype).to(device),
        of_batch=floats(BATCH),
        of_token=floats(LENGTH),
        of_batch_and_token=floats(BATCH, LENGTH),
        of_four=floats(4, BATCH, HEADS, LENGTH),
        choices=floats(BATCH, HEADS, 4, LENGTH),
        of_pair=floats(LENGTH, LENGTH),
        of_batch_and_pair=floats(BATCH, LENGTH, LENGTH),
        of_head_and_pair=floats(HEADS, LENGTH, LENGTH),
        of_all=floats(BATCH, HEADS, LENGTH, LENGTH),
        of_distance=floats(2 * LENGTH),
        of_block=floats(BATCH, HEADS, LENGTH, 8),
        places=torch.randn(LENGTH, 3, generator=drawn).to(device),
        lengths=torch.logspace(0.001, 0.1, HEADS, device=device),
        few=floats(BATCH, 8),
        zero=torch.tensor(0, device=device),
        one=torch.ones((), dtype=torch.int32, device=device),
        two_way=torch.tensor([40, 7], dtype=torch.int32, device=device),
        padded=torch.arange(BATCH, dtype=torch.int32, device=device) + 1,
        documents=torch.arange(LENGTH, device=device).int() // 24,
        documents_of_batch=torch.arange(LENGTH, device=device).expand(BATCH, LENGTH).int().contiguous() // 32,
        starts=torch.tensor([0, 24, 48, LENGTH], dtype=torch.int32, device=device),
        second_half=torch.arange(LENGTH, device=device) >= LENGTH // 2,
        triangle=torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool, device=device).tril(),
    )


def causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def anticausal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q <= kv


def _scored(formula: Callable[..., Any]) -> Callable[[Any], Mods]:
    """A score_mod of (t, score, b, h, q, kv)."""
    return lambda t: (lambda score, b, h, q, kv: formula(t, score, b, h, q, kv), None)


def _kept(formula: Callable[..., Any]) -> Callable[[Any], Mods]:
    return lambda t: (None, lambda b, h, q, kv: formula(t, b, h, q, kv))


def _only(condition: Any, score: Any) -> Any:
    return torch.where(condition, score, -float("inf"))


def _alibi(t: Any, score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return score + (kv - q) * torch.exp2(-((h + 1) * 8.0 / HEADS))


def _cross(t: Any, score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    """Rows and columns of a grid of 8, with quotients that aren't whole."""
    near_rows, near_columns = (q / 8 - kv / 8).abs() <= 3, (q % 8 - kv % 8).abs() <= 3
    return _only(near_rows | near_columns, score)


def _two_way(t: Any, score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    limit = t.two_way[b]
    return _only(((q <= limit) & (kv <= limit)) | (q >= kv), score)


def _in_documents(t: Any, score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    own, other = q - t.starts[t.documents[q]], kv - t.starts[t.documents[kv]]
    return _only(own >= other, score)


def _euclidean(t: Any, score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    apart = (t.places[q] - t.places[kv]).pow(2).sum(-1).sqrt()
    return torch.exp(-apart / t.lengths[h]) * score


def _new_zeros(t: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return t.triangle[b, h.new_zeros(h.shape), q, kv]


def _branching(t: Any, score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
    return torch.cos(score) * torch.sin(score) + torch.tan(b)


CASES: dict[str, SuiteCase] = {
    "identity": SuiteCase(_scored(lambda t, s, b, h, q, kv: s)),
    "times two": SuiteCase(_scored(lambda t, s, b, h, q, kv: s * 2)),
    "squared": SuiteCase(_scored(lambda t, s, b, h, q, kv: s * s)),
    "causal": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(q >= kv, s))),
    "inverse causal": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(q <= kv, s))),
    "relative": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + (q - kv))),
    "relative causal": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(q >= kv, s + (q - kv)))),
    "alibi": SuiteCase(_scored(_alibi)),
    "head offset": SuiteCase(_scored(lambda t, s, b, h, q, kv: s * t.of_head[h])),
    "trigonometric": SuiteCase(_scored(lambda t, s, b, h, q, kv: torch.sin(torch.cos(s)) + torch.tan(b))),
    "branching": SuiteCase(_scored(_branching)),
    "causal mask": SuiteCase(lambda t: (None, causal)),
    "causal mask, fewer queries": SuiteCase(lambda t: (None, causal), q_len=LENGTH // 2),
    "grouped heads": SuiteCase(_scored(_alibi), kv_heads=2, options={"enable_gqa": True}),
    "grouped heads, causal mask": SuiteCase(lambda t: (None, causal), kv_heads=1, options={"enable_gqa": True}),
    "one sequence of keys": SuiteCase(lambda t: (_scored(_alibi)(t)[0], causal), kv_batch=1),
    "other head dims": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(q >= kv, s)), value_dim=16),
    "documents in the score": SuiteCase(
        _scored(lambda t, s, b, h, q, kv: _only((q >= kv) & (t.documents[q] == t.documents[kv]), s))
    ),
    "documents of the batch": SuiteCase(
        _kept(lambda t, b, h, q, kv: t.documents_of_batch[b, q] == t.documents_of_batch[b, kv])
    ),
    "index after index": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_batch_and_token[b][q])),
    "a number, then indices": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_four[0][b, h][q])),
    "a tensor that chooses": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.choices[b][h][t.zero, q])),
    "even keys": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(kv % 2 == 0, s))),
    "composed": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(q <= kv, s + (q - kv)))),
    "all kinds of scales": SuiteCase(
        _scored(lambda t, s, b, h, q, kv: s + t.of_token[q] + t.of_batch[b] + t.of_head[h])
    ),
    "halves": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(t.second_half[q] == t.second_half[kv], s))),
    "bias of the pair": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_pair[q, kv])),
    "bias of batch and pair": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_batch_and_pair[b, q, kv])),
    "bias of all": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_all[b, h, q, kv])),
    "bias of blocks": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_block[b, h, q, kv // 8])),
    "bias of the distance": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_distance[(q - kv) + LENGTH])),
    "both ways up to a limit": SuiteCase(_scored(_two_way)),
    "cross on a grid": SuiteCase(_scored(_cross)),
    "floor division": SuiteCase(_scored(lambda t, s, b, h, q, kv: s - q // (1 + kv))),
    "silu": SuiteCase(_scored(lambda t, s, b, h, q, kv: torch.nn.functional.silu(s))),
    "scores up to a limit": SuiteCase(_scored(lambda t, s, b, h, q, kv: _only(s <= t.padded[b], _only(q >= kv, s)))),
    "captured scale": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.one)),
    "captured reduction": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.few[b].sum(dim=-1))),
    "window": SuiteCase(lambda t: (None, and_masks(causal, lambda b, h, q, kv: q - kv <= 16))),
    "either way": SuiteCase(lambda t: (None, or_masks(causal, lambda b, h, q, kv: q < kv))),
    "positions in documents": SuiteCase(_scored(_in_documents)),
    "new zeros": SuiteCase(_kept(_new_zeros)),
    "rows without keys": SuiteCase(_kept(lambda t, b, h, q, kv: q < LENGTH // 2)),
    "unrolled reduction": SuiteCase(_scored(_euclidean)),
    "causal in score and mask": SuiteCase(lambda t: (lambda s, b, h, q, kv: _only(q >= kv, s), causal)),
    "learned head bias": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_head[h]), ("of_head",)),
    "learned bias of sums": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_distance[q + kv]), ("of_distance",)),
    "learned bias of the pair": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_pair[q, kv]), ("of_pair",)),
    "learned, index after index": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_pair[q][kv]), ("of_pair",)),
    "learned, transposed": SuiteCase(_scored(lambda t, s, b, h, q, kv: s + t.of_pair[kv, q]), ("of_pair",)),
    "learned, of heads": SuiteCase(
        _scored(lambda t, s, b, h, q, kv: s + t.of_head_and_pair[h, kv, q]), ("of_head_and_pair",)
    ),
}

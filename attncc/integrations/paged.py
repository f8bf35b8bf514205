"""transformers' continuous batching: packed sequences whose keys come from its paged cache.

    with attncc_transformers.paged(model):
        model.generate_batch(inputs=..., generation_config=...)

`generate_batch` takes an implementation that it doesn't know if "flash" is in its name. Such a one is handed what
FlashAttention's own functions for packed sequences are: bounds of the sequences, and no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from packaging.version import Version
from transformers import AttentionInterface, AttentionMaskInterface

from ..flex.attention import attend
from ..flex.call import Mods, Options
from ..problem.refusal import refused
from .mods import score_mod_of

PAGED = "attncc_flash"
OLDEST = "5.21"


def register_paged() -> None:
    """Makes `PAGED` known to transformers. `paged` does so itself, since a name that is unknown ends each request with
    no tokens and a line in a log."""
    if PAGED not in AttentionInterface().valid_keys():
        AttentionInterface.register(PAGED, paged_attention)
        AttentionMaskInterface.register(PAGED, lambda *_, **__: None)


@contextmanager
def paged(model: Any) -> Iterator[None]:
    """Within, `model.generate_batch` and its managers for continuous batching run attncc's kernels.

    transformers decides by a name in the model's configuration, which is restored at the end. A manager must be started
    and stopped within. The cache's rows are gathered by transformers, as for all implementations but FlashAttention 2
    and 3: its tables of blocks go to their functions alone.

    AttnccError A714 before transformers 5.21, which hands over other arguments.
    """
    if Version(transformers.__version__) < Version(OLDEST):
        came, help = transformers.__version__, "pip install -U transformers"
        raise refused("A714", "continuous batching", expected=f"transformers {OLDEST} or newer", came=came, help=help)
    register_paged()
    before = model.config._attn_implementation
    model.config._attn_implementation = PAGED
    try:
        yield
    finally:
        model.config._attn_implementation = before


def paged_attention(  # noqa: PLR0917  (transformers' order)
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """Sequences one after the other: query [1, heads, tokens, head_dim], key and value [1, kv_heads, rows, head_dim].

    `cu_seq_lens_q` and `cu_seq_lens_k`, int32 [sequences + 1], are their bounds; the last query of a sequence stands at
    its last key. Rows behind the last bound belong to nobody: they give zeros. The result is [1, tokens, heads,
    value_head_dim].

    AttnccError A714 outside continuous batching.
    """
    if given.get("cu_seq_lens_q") is None:
        help = 'attn_implementation="attncc" has all other calls'
        raise refused("A714", f"{PAGED} is for packed sequences", expected="cu_seq_lens_q=", came="none", help=help)
    if (pages := given.get("cache")) is not None:  # before 5.24 the cache is left to the attention function
        key, value = pages.update(key, value, module.layer_idx, given)
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    bounds = given["cu_seq_lens_q"], given["cu_seq_lens_k"]
    mask_mod = _packed(*bounds, query.shape[2], key.shape[2], _within(causal, sliding_window))
    options = Options(scale=scaling, enable_gqa=True, sink=s_aux, dropout=dropout)
    out = attend(query, key, value, Mods(score_mod_of(softcap), mask_mod=mask_mod), options)
    return out.transpose(1, 2).contiguous(), None


def _within(causal: bool, window: int | None) -> Callable[[Any, Any], Any] | None:
    """Which keys of its sequence a query sees, by places in the sequence; None where it sees all."""
    if window is not None and not causal:
        return lambda q, kv: abs(q - kv) < window
    if window is not None:
        return lambda q, kv: (q >= kv) & (q - kv < window)
    return (lambda q, kv: q >= kv) if causal else None


def _packed(
    cu_seq_lens_q: torch.Tensor,
    cu_seq_lens_k: torch.Tensor,
    q_len: int,
    kv_len: int,
    within: Callable[[Any, Any], Any] | None,
) -> Callable[..., Any]:
    """Pairs of one sequence that `within` keeps."""
    more = cu_seq_lens_k.diff() - cu_seq_lens_q.diff()  # keys of a sequence over its queries
    q_sequence, q_place = _places(cu_seq_lens_q, q_len, -1)
    kv_sequence, kv_place = _places(cu_seq_lens_k, kv_len, -2)
    q_place = q_place + more[q_sequence.clamp(min=0).long()]

    def packed(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        same = q_sequence[q_idx] == kv_sequence[kv_idx]
        return same if within is None else same & within(q_place[q_idx], kv_place[kv_idx])

    return packed


def _places(bounds: torch.Tensor, length: int, nobody: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sequence of each row, or `nobody`, and its place there: int32 [length] each."""
    rows = torch.arange(length, device=bounds.device, dtype=torch.int32)
    sequence = torch.bucketize(rows, bounds[1:], right=True, out_int32=True)
    first = bounds[sequence.long().clamp(max=len(bounds) - 2)].int()
    return torch.where(sequence < len(bounds) - 1, sequence, nobody).int(), rows - first

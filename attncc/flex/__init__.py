"""`attncc.flex_attention`: torch's flex_attention, computed by an attncc kernel.

Read in this order: `call` (its arguments, and what is wrong with them), `attention` (the cache), `keys` (what a
function is), `tracer` (runs a mod on symbols), `aten`, `shapes` and `indexing` (what torch's operators are in `.attn`),
`inputs` (captured tensors), `text`; `in_graph` and `graph_tracer` (calls in the graphs of torch.compile). torch is
imported at the first call.
"""

from __future__ import annotations

from typing import Any

from ..diagnostics import AttnccError, Diagnostic

__all__ = ["flex_attention", "flex_spec"]


def flex_attention(  # noqa: PLR0917  (torch's own signature)
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
    mask_mod: Any = None,
    fallback: str | None = None,
) -> Any:
    """`torch.nn.attention.flex_attention.flex_attention` by an attncc kernel: out, or (out, lse) with `return_lse`.

    query is [batch, heads, q_len, head_dim], key and value [batch, kv_heads, kv_len, head_dim], in fp16, bf16 or fp32
    (on the CPU also fp64). `score_mod(score, b, h, q_idx, kv_idx)` and `mask_mod(b, h, q_idx, kv_idx)` are any Python
    functions of torch's operators; a BlockMask gives its mask_mod, and both masks are AND-ed. lse is the natural
    logarithm, fp32 [batch, heads, q_len]. A row with nothing kept gives 0, and lse -inf.

    The mods run once, on symbols, and become a `.attn` text (`flex_spec` shows it), which is compiled. They run again
    where their code, or a number or function that they capture, has changed. Other values or lengths of captured
    tensors change nothing, unless the mod asks for a shape. Captured tensors that require a gradient get one.

    What differs: scores are computed in fp32 and ints have 64 bits, whatever dtype the mod casts to. Blocks of a
    BlockMask aren't read, unless its mask_mod is `noop_mask`. An index out of range reads 0 (torch: undefined); below 0
    it counts from the end, except where it is the entry of another tensor. `kernel_options` have no effect.

    Under torch.compile the call is an operator of the graph, also with fullgraph=True; with `fallback` it breaks the
    graph. AttnccError A713 for a mod that `.attn` can't express, with its line, unless `fallback="torch"` hands such a
    call to torch's own; A714 for arguments; and what kernels raise.
    """
    attention = _attention()
    options = attention.Options(scale, enable_gqa, return_lse, kernel_options, return_aux, fallback)
    return attention.attend(query, key, value, attention.Mods(score_mod, block_mask, mask_mod), options)


def flex_spec(score_mod: Any = None, block_mask: Any = None, *, mask_mod: Any = None) -> str:
    """The `.attn` text of what `flex_attention` computes with these mods, to read, check or keep as a file.

    AttnccError A713 for a mod that `.attn` can't express, A714 for what is no mod.
    """
    attention = _attention()
    text: str = attention.text(attention.Mods(score_mod, block_mask, mask_mod))
    return text


def _attention() -> Any:
    try:
        import torch  # noqa: F401
    except ImportError:
        what = "flex_attention needs torch, which isn't installed"
        raise AttnccError(Diagnostic("A716", what, help="pip install torch")) from None
    from . import attention

    return attention

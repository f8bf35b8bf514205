"""What arguments of other attention libraries are called here, for users who bring their calls from there.

The words are those of FlashAttention, torch's SDPA and FlexAttention, vLLM and xFormers.
"""

from __future__ import annotations

from ..ir import Variant

_MASK = "the mask is written in the variant, as `keep if` lines: `attncc list` prints those that ship"
_FLEX = "attncc.flex_attention takes it; `attncc import-flex` makes a variant of it"
_DROPOUT = "write `dropout 0.1` in the variant; calls give a `seed`"
_SINK = "write `sink logit` in the variant, as sink_attention does: logit is an input then"
_DESCALE = "kernels of e4m3 take it; beside q of 16 bits, caches of 8 bits have k_scale and v_scale"
_LENGTHS = "leave it out: lengths are read on the device"

_RENAMED = {
    "softmax_scale": "scale", "sm_scale": "scale",
    "cu_seqlens_k": "cu_seqlens_kv", "cu_seqlens": "cu_seqlens_q and cu_seqlens_kv",
    "kv_len": "kv_lens", "cache_seqlens": "kv_lens", "seqused_k": "kv_lens", "context_lens": "kv_lens",
    "seq_lens": "kv_lens", "block_tables": "block_table", "page_table": "block_table",
    "rotary_cos": "rotary=(cos, sin)", "rotary_sin": "rotary=(cos, sin)",
    "return_softmax_lse": "return_lse", "return_attn_probs": "return_lse",
}  # fmt: skip

_ELSEWHERE = {
    "is_causal": _MASK, "causal": _MASK, "attn_mask": _MASK, "attention_mask": _MASK, "mask": _MASK,
    "attn_bias": "the variant adds it: `score = score + bias[h, q_idx, kv_idx]`, with bias as an input",
    "mask_mod": _FLEX, "score_mod": _FLEX, "block_mask": _FLEX,
    "window_size": "write `keep if window(width)` in the variant: attncc.compile(\"sliding_window\", width=…)",
    "alibi_slopes": "write the bias in the variant: attncc.compile(\"alibi\", …) has the input `slope`",
    "softcap": "write the cap in the variant: attncc.compile(\"softcap\", …)",
    "dropout": _DROPOUT, "dropout_p": _DROPOUT, "s_aux": _SINK, "sinks": _SINK,
    "max_seqlen_q": _LENGTHS, "max_seqlen_k": _LENGTHS, "max_seqlen_kv": _LENGTHS,
    "enable_gqa": "leave it out: query heads share key heads wherever there are fewer of these",
    "q_descale": _DESCALE, "k_descale": _DESCALE, "v_descale": _DESCALE,
    "deterministic": "`kernel.backward` takes it; of autograd ask it by torch.use_deterministic_algorithms(True)",
}  # fmt: skip


def help_with(name: str, variant: Variant) -> str:
    """What to write in place of an argument that a call doesn't have; empty for a word of no library."""
    if name in dict(variant.consts):
        return (
            f"it is a const, a number of the build: attncc.compile(…, {name}=…), or `-D {name}=…` on the command line"
        )
    if name in _RENAMED:
        return f"here it is {_RENAMED[name]}"
    return _ELSEWHERE.get(name, "")

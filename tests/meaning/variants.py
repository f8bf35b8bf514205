"""The variants that the tests of meaning run, by name."""

from __future__ import annotations

VARIANTS = {
    "full": "",
    "causal": "keep if causal()",
    "top_left": "keep if q_idx >= kv_idx",
    "window_5": "keep if window(5)",
    "after_three": "keep if kv_idx < q_idx - 3",  # the first rows keep nothing
    "nothing": "keep if kv_idx < 0",
    "one_key": "keep if kv_idx == (q_idx * 7) % kv_len",
    "odd_keys": "keep if kv_idx % 2 == 1",
    "sink_after_three": "input bias: f32[head]\nkeep if kv_idx < q_idx - 3\nsink bias",
    "infinite": "input far: bool[pos]\nscore = log(0.0) if far[kv_idx] else score",
    "masked_then_scored": "keep if causal()\nscore = score * 0 + 3",
    "alibi": "input slope: f32[head]\nkeep if causal()\nscore = score - slope[h] * (q_pos - kv_idx)",
    "softcap": "input cap: f32\nscore = cap * tanh(score / cap)",
    "sigmoids": "keep if causal()\nnormalize sigmoid",
    "unnormalised": "keep if causal()\nnormalize none",
    "half_scale": "scale 0.5 / sqrt(head_dim)",
    "documents": "input doc: i32[batch, pos] nondecreasing\nkeep if doc[b, q_pos] == doc[b, kv_idx]\nkeep if causal()",
    "gated": "input gate: bool[batch, q]\nkeep if gate[b, q_idx] or causal()",
    "dropped": "input rate: f32\ndropout rate",
    "causal_dropout": "keep if causal()\ndropout 0.25",
    "far_loads": "input table: i32[_]\nkeep if table[kv_idx - 40] + table[q_idx * 1000003] >= 0",
    "divided": "input zero: i32\nkeep if kv_idx // zero == 0 and kv_idx % zero == 0 and (1 << (kv_idx + 64)) == 0",
}


DECODE = "block_q = 16 split_kv = 3"  # the settings of a schedule for the pass decode, which few rows of q take


def source(name: str, settings: str | None, target: str) -> str:
    """The text of a variant, with a schedule that holds the settings where there are any."""
    body = "\n".join(f"    {line}" for line in VARIANTS[name].splitlines())
    pass_name = "decode " if settings == DECODE else ""
    schedule = f"schedule tested for {name} {pass_name}on {target} {{ {settings} }}\n" if settings else ""
    return f"attn 1\n\nimport masks\n\nvariant {name} {{\n{body}\n}}\n\n{schedule}"

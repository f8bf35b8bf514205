"""What users who know Python's words are told, and that it works when it is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import attncc
from attncc import flex_attention
from attncc.diagnostics import AttnccError

torch = pytest.importorskip("torch")

TABLE = torch.arange(16) // 5
WIDTHS = {0: 3, 1: 5}
WIDTHS_TENSOR = torch.tensor(list(WIDTHS.values()))

# The mistake, what the help says of it, the same as the help has it.
MASKS: dict[str, tuple[Callable[..., Any], str, Callable[..., Any]]] = {
    "math": (
        lambda b, h, q, k: math.exp(h) > k,
        "torch.exp in place of `math.exp`",
        lambda b, h, q, k: torch.exp(h) > k,
    ),
    "max": (
        lambda b, h, q, k: max(q, k) < 9,
        "torch.maximum(a, b)",
        lambda b, h, q, k: torch.maximum(q, k) < 9,
    ),
    "in": (
        lambda b, h, q, k: k in (1, 2),
        "(x == 1) | (x == 2)",
        lambda b, h, q, k: (k == 1) | (k == 2),
    ),
    "chain": (
        lambda b, h, q, k: 0 <= q - k < 5,
        "(a <= x) & (x < b)",
        lambda b, h, q, k: (q - k >= 0) & (q - k < 5),
    ),
    "item": (
        lambda b, h, q, k: TABLE[q.item()] == TABLE[k],
        "leave `.item()` out",
        lambda b, h, q, k: TABLE[q] == TABLE[k],
    ),
    "dict": (
        lambda b, h, q, k: q - k < WIDTHS[h],
        "torch.tensor(list(the_dict.values()))",
        lambda b, h, q, k: q - k < WIDTHS_TENSOR[h],
    ),
    "and": (
        lambda b, h, q, k: q >= k and k < 5,
        "& | ~ in place of `and` `or` `not`",
        lambda b, h, q, k: (q >= k) & (k < 5),
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_advice_helps(name: str) -> None:
    wrong, said, right = MASKS[name]
    with pytest.raises(AttnccError, match="A713") as refused:
        attncc.flex_spec(mask_mod=wrong)
    assert said in refused.value.diagnostics[0].help
    assert "keep if" in attncc.flex_spec(mask_mod=right)


def test_a_dense_mask_is_indexed_in_a_function() -> None:
    q, mask = torch.randn(1, 1, 8, 16), torch.ones(8, 8, dtype=torch.bool).tril()
    for name in ("mask_mod", "block_mask"):
        given: dict[str, Any] = {name: mask}
        with pytest.raises(AttnccError, match=r"A714(.|\n)*lambda b, h, q_idx, kv_idx: mask\[q_idx, kv_idx\]"):
            flex_attention(q, q, q, **given)
    out = flex_attention(q, q, q, mask_mod=lambda b, h, q_idx, kv_idx: mask[q_idx, kv_idx])
    wanted = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert torch.allclose(out, wanted, atol=1e-5)
